"""Excerpts: the lines of a log around those that matter, without secrets and prompts."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from vllm_triage.escapes import without_escapes
from vllm_triage.prompts import PromptFilter
from vllm_triage.redact import Redactor
from vllm_triage.reports.clean import clean
from vllm_triage.sources import Reader, decoded

WHOLE_BYTES = 262_144
"""A log up to this size is taken whole."""
EDGE_LINES = 50
"""How many lines are taken of a larger log's beginning, of its end and after each start of a server."""
MAX_CHARS = 2_097_152
MAX_LINE = 8_192
# Of a longer line the rest is not looked at.
_MAX_READ = 16_384
_MARK = b"PRIVATE KEY"
VALUE_REACHES = 2
"""How many lines above its name a manifest can have a value."""


class Shown(NamedTuple):
    """A line as it is shown."""

    number: int
    text: str


class Excerpt(NamedTuple):
    """What is shown of one file."""

    name: str
    lines: tuple[Shown, ...]
    total: int
    problem: str | None

    def text(self) -> str:
        """The lines with their numbers, and what is left out between them."""
        width = len(str(self.total))
        rows, last = [], 0
        for number, text in self.lines:
            rows += _gap(last + 1, number - 1)
            rows.append(f"{number:>{width}}: {text}")
            last = number
        return "\n".join([*rows, *_gap(last + 1, self.total)]) + "\n"


def _gap(first: int, last: int) -> list[str]:
    if first > last:
        return []
    return [f"[line {first} left out]" if first == last else f"[lines {first} to {last} left out]"]


class Cleaner:
    """What the lines of one file become: printable, no secrets, no prompts, not too long."""

    def __init__(self, longest: int = MAX_LINE) -> None:
        self._longest = longest
        self._redactor, self._prompts = Redactor(), PromptFilter()

    def __call__(self, line: str) -> str:
        """The line as it is shown."""
        rest = len(line) - _MAX_READ
        text = self._prompts(without_escapes(line[:_MAX_READ].rstrip("\r")))
        # Variables and words as /proc has them stand on one line.
        say = self._redactor.variable if "\0" in text else self._redactor
        text = clean("\0".join(map(say, text.split("\0"))))
        left_out = max(0, rest) + max(0, len(text) - self._longest)
        return f"{text[: self._longest]} [{left_out} characters left out]" if left_out else text

    @property
    def is_name(self) -> bool:
        """Whether the last line names a secret whose value may stand on the lines before."""
        return self._redactor.is_name

    def amended(self, before: Shown) -> Shown:
        """A line just before such a line, without the value."""
        return Shown(before.number, self._redactor.value(before.text))


def excerpt(
    reader: Reader,
    *,
    total: int,
    is_whole: bool,
    anchors: Sequence[int],
    starts: Sequence[int] = (),
    context: int = 100,
    max_chars: int = MAX_CHARS,
) -> Excerpt:
    """Read a file of so many lines and take those around the anchors, its beginning and its end.

    With `is_whole` all its lines. What is over `max_chars` characters is left out, what is
    farthest from an anchor first. Holds no more than what is taken and one block.
    """
    taking = _Taking(total, sorted({*anchors}), sorted({*starts}), context, is_whole)
    shown: list[tuple[int, Shown]] = []
    held = 0
    farthest = max(total, context + 1)
    cleaned = Cleaner()
    for first, data in reader.blocks():
        if not (taking.has(first, first + data.count(b"\n")) or _MARK in data):
            cleaned = Cleaner()
            continue
        for number, row in enumerate(data.split(b"\n"), first):
            text = cleaned(decoded(row))
            if cleaned.is_name:
                shown[-VALUE_REACHES:] = [
                    (far, cleaned.amended(one)) for far, one in shown[-VALUE_REACHES:]
                ]
            distance = taking.distance(number)
            if distance is None or distance > farthest:
                continue
            shown.append((distance, Shown(number, text)))
            held += len(text) + 10
            if held > max_chars:
                shown = _nearest(shown, max_chars // 2)
                held = sum(len(one.text) + 10 for _, one in shown)
                farthest = max((distance for distance, _ in shown), default=0)
    return Excerpt(reader.name, tuple(one for _, one in shown), max(total, 0), reader.problem)


def around(lines: Sequence[Shown], number: int, max_chars: int) -> list[Shown]:
    """The lines nearest to one of them that fit, as they stand."""
    # What led to an error says more than what followed.
    distances = [(one.number - number) * (3 if one.number > number else -1) for one in lines]
    return [one for _, one in _nearest(list(zip(distances, lines, strict=True)), max_chars)]


def _nearest(shown: list[tuple[int, Shown]], max_chars: int) -> list[tuple[int, Shown]]:
    """Those nearest to an anchor, in their order."""
    kept, held = set(), 0
    for index in sorted(range(len(shown)), key=lambda index: shown[index][0]):
        held += len(shown[index][1].text) + 10
        if held > max_chars:
            break
        kept.add(index)
    return [one for index, one in enumerate(shown) if index in kept]


class _Taking:
    """Which lines are taken, and how far each is from what matters."""

    def __init__(
        self, total: int, anchors: list[int], starts: list[int], context: int, is_whole: bool
    ) -> None:
        self._total = total
        self._anchors = anchors
        self._context = context
        self._is_whole = is_whole
        self._edges = [(1, EDGE_LINES), (total - EDGE_LINES + 1, total)]
        self._edges += [(start - 5, start + EDGE_LINES) for start in starts]

    def has(self, first: int, last: int) -> bool:
        """Whether some of these lines are taken."""
        if self._is_whole or any(start <= last and first <= end for start, end in self._edges):
            return True
        index = bisect_left(self._anchors, first - self._context)
        return index < len(self._anchors) and self._anchors[index] - self._context <= last

    def distance(self, number: int) -> int | None:
        """How many lines lie between this one and the nearest that matters; None where it is not taken."""
        index = bisect_left(self._anchors, number)
        near = [abs(number - one) for one in self._anchors[max(0, index - 1) : index + 1]]
        distance = min(near, default=self._total)
        if distance <= self._context or self._is_whole:
            return distance
        inside = any(start <= number <= end for start, end in self._edges)
        return self._context + 1 if inside else None
