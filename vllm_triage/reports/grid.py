"""Tables of an incident in plain text."""

from collections.abc import Sequence

from vllm_triage.reports.clean import clean

_MAX_CELL = 28
_GAP = 2


def cells(table: Sequence[Sequence[str]]) -> list[list[str]]:
    """The cells without control characters, none longer than a reader compares at a glance."""
    return [[_short(clean(cell)) for cell in row] for row in table]


def aligned(table: Sequence[Sequence[str]], width: int) -> list[str]:
    """The rows with their columns below each other, as many columns as the width takes."""
    shown = cells(table)
    if not shown:
        return []
    widths = [max(map(len, column)) for column in zip(*shown, strict=False)]
    count = len(widths)
    while count > 1 and sum(widths[:count]) + _GAP * (count - 1) > width:
        count -= 1
    gap = " " * _GAP
    return [
        gap.join(
            cell.ljust(size) for cell, size in zip(row[:count], widths, strict=False)
        ).rstrip()
        for row in shown
    ]


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 1] + "…"
