"""Literals: many plain texts looked for at once by hyperscan, where the extra `fast` is installed."""

from collections.abc import Sequence
from threading import Lock
from typing import Any


class Literals:
    """A hyperscan database of plain texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        import hyperscan

        # Two searches of one database at once get in each other's way.
        self._lock = Lock()
        self._database: Any = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=[text.encode() for text in texts],
            ids=list(range(len(texts))),
            elements=len(texts),
            flags=[hyperscan.HS_FLAG_SINGLEMATCH] * len(texts),
            literal=True,
        )

    def find(self, text: str) -> list[int]:
        """Give the indices of the texts that stand in this one. Raises what hyperscan raises."""
        found: list[int] = []

        def note(number: int, *_: object) -> None:
            found.append(number)

        data = text.encode("utf-8", "surrogatepass")
        with self._lock:
            self._database.scan(data, match_event_handler=note)
        return found


def literals(texts: Sequence[str]) -> Literals | None:
    """The database of these texts; None where hyperscan is not there or does not work."""
    try:
        made = Literals(texts)
        return made if made.find(texts[0]) else None
    except Exception:  # noqa: BLE001
        # An extension that is broken in whatever way is as good as none.
        return None
