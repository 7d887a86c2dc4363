"""Probes: lines of one shape, made of one and read the usual way, and where in them stands what they say."""

from collections.abc import Callable
from typing import NamedTuple

from vllm_triage.envelopes import Unwrapper
from vllm_triage.expressions import expression
from vllm_triage.lines import Line, parse
from vllm_triage.sources import decoded

_STATUS = expression(rb'" 200 OK')
_MAX_PROBES = 3


class Probe(NamedTuple):
    """A physical line that was read."""

    line: Line
    envelopes: tuple[tuple[str, int], ...]
    """How often it was in which envelope."""
    base: int
    """Where in the physical line the message begins."""


def alike(raw: bytes, unwrapper: Unwrapper) -> tuple[list[bytes], list[Probe]]:
    """The line and some of its shape, as they are and as they read; none when they read unlike."""
    lines = [raw, *_varied(raw)]
    read = [one for line in lines if (one := read_alone(line, unwrapper)) is not None]
    if (
        len(lines) == 1
        or len(read) < len(lines)
        or len({(one.line.origin, one.envelopes) for one in read}) > 1
    ):
        return lines, []
    return lines, read


def read_alone(raw: bytes, unwrapper: Unwrapper) -> Probe | None:
    """A line as it reads by itself; None where it is several, or what is before it matters."""
    reader = unwrapper.copy()
    text = decoded(raw)
    items = list(reader.feed(1, text))
    if len(items) != 1 or reader.state != unwrapper.state:
        return None
    item = items[0]
    lines = parse(
        "", 1, item.text, raw=item.text if item.unwrapped else text,
        time=item.time, level=item.level, container=item.container,
    )  # fmt: skip
    if len(lines) != 1:
        return None
    return Probe(lines[0], tuple(sorted(reader.counts.items())), raw.find(lines[0].text.encode()))


def _varied(raw: bytes) -> list[bytes]:
    """Lines of the same shape with other digits, no two places with the same ones; none where there are too many.

    The status of an answer stays.
    """
    status = _STATUS.search(raw)
    kept = range(status.start(), status.end()) if status else range(0)
    places = [place for place, byte in enumerate(raw) if 48 <= byte <= 57 and place not in kept]
    if len(places) > 9**_MAX_PROBES:
        return []
    lines = []
    step = 1
    while step < max(len(places), 2):
        out = bytearray(raw)
        for number, place in enumerate(places):
            out[place] = 49 + number // step % 9
        lines.append(bytes(out))
        step *= 9
    return lines


def place_of(lines: list[bytes], values: list[object]) -> tuple[bool, slice | None]:
    """Where in all of the lines these values stand; False when they do not stand in one place."""
    if all(value is None for value in values):
        return True, None
    texts = [str(value).encode() for value in values]
    start = lines[0].find(texts[0])
    while start >= 0:
        place = slice(start, start + len(texts[0]))
        if all(line[place] == text for line, text in zip(lines, texts, strict=True)):
            return True, place
        start = lines[0].find(texts[0], start + 1)
    return False, None


def shift_of(lines: list[bytes], read: list[Probe]) -> Callable[[tuple[int, int]], slice] | None:
    """How a place in the message becomes one in the physical line."""
    base = read[0].base
    if not all(
        one.base == base and line[base:].startswith(one.line.text.encode("ascii", "replace"))
        for line, one in zip(lines, read, strict=True)
    ):
        return None
    return lambda span: slice(base + span[0], base + span[1])
