"""The plain-text gate: which patterns can match a text at all."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Gate(Generic[T]):
    """Finds the items whose keywords all stand in a text.

    Each item hangs on its longest keyword, which is looked for first and once for
    all items that share it.
    """

    def __init__(self, items: Iterable[tuple[tuple[str, ...], T]]) -> None:
        groups: defaultdict[str, list[tuple[tuple[str, ...], T]]] = defaultdict(list)
        for keywords, item in items:
            longest = max(keywords, key=len)
            rest = tuple(word for word in keywords if word != longest)
            groups[longest].append((rest, item))
        self._groups = tuple((word, tuple(group)) for word, group in sorted(groups.items()))

    def candidates(self, text: str) -> Iterator[T]:
        """Give the items that a text may match."""
        for word, group in self._groups:
            if word in text:
                for rest, item in group:
                    if all(other in text for other in rest):
                        yield item
