"""The plain-text gate: which patterns can match a text at all."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Entry(NamedTuple, Generic[T]):
    """An item under one of its words, with what else a text must hold."""

    rest: tuple[str, ...]
    any_of: tuple[str, ...]
    item: T
    number: int | None


class Gate(Generic[T]):
    """Finds the items of whose words all, and of whose `any_of` words one, stand in a text.

    Each item hangs on its longest word, which is looked for first and once for all items
    that share it; one that has no word but `any_of` hangs on each of those.
    """

    def __init__(self, items: Iterable[tuple[tuple[str, ...], tuple[str, ...], T]]) -> None:
        groups: defaultdict[str, list[_Entry[T]]] = defaultdict(list)
        for number, (words, any_of, item) in enumerate(items):
            if not words:
                for word in any_of:
                    groups[word].append(_Entry((), (), item, number))
                continue
            longest = max(words, key=len)
            rest = tuple(word for word in words if word != longest)
            groups[longest].append(_Entry(rest, any_of, item, None))
        self._groups = tuple((word, tuple(group)) for word, group in sorted(groups.items()))

    def candidates(self, text: str) -> Iterator[T]:
        """Give the items that a text may match, each once."""
        given: set[int] = set()
        for word, group in self._groups:
            if word in text:
                for rest, any_of, item, number in group:
                    if number is not None:
                        if number in given:
                            continue
                        given.add(number)
                    if all(other in text for other in rest) and (
                        not any_of or any(other in text for other in any_of)
                    ):
                        yield item
