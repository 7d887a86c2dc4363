"""Learning: lines of one shape read the usual way, to tell what all lines of the shape say."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache

import regex

from vllm_triage import statistics
from vllm_triage.candidates import compiled
from vllm_triage.catalogue import Catalogue
from vllm_triage.conditions import accepts
from vllm_triage.envelopes import Unwrapper
from vllm_triage.kinds import Level
from vllm_triage.lines import BESIDE_STATISTICS, Line, Origin
from vllm_triage.matches import TIMEOUT_S
from vllm_triage.probes import Probe, alike, place_of, read_alone, shift_of
from vllm_triage.rules import Pattern
from vllm_triage.runs import is_idle_talk, service
from vllm_triage.shapes import (
    DIGITS,
    MAX_HEAD,
    Bound,
    Known,
    Shape,
    Window,
    head_of,
    numbers_of,
    owner,
    text_at,
)
from vllm_triage.statistics import TABLE
from vllm_triage.tracebacks import exception_name, frame, separator

_NOTHING = (False, False)
_IDLE = (Level.DEBUG, Level.INFO, Level.WARNING)
# Stands for a digit that may be any.
_ANY = "\0"
_DIGITS = frozenset("0123456789")
_WILD = {ord(digit): _ANY for digit in "0123456789"}


class _Mover:
    """Moves the places of a line to where they are in one with longer or shorter numbers."""

    def __init__(
        self, before: tuple[tuple[int, int], ...], after: tuple[tuple[int, int], ...]
    ) -> None:
        self._starts = [start for start, _ in before]
        self._before, self._after = before, after

    def __call__(self, place: slice | None) -> slice | None:
        return place and slice(self._moved(place.start), self._moved(place.stop, is_end=True))

    def _moved(self, offset: int, *, is_end: bool = False) -> int:
        index = bisect_right(self._starts, offset - is_end) - 1
        if index < 0:
            return offset
        (start, stop), (new_start, new_stop) = self._before[index], self._after[index]
        if offset < stop or (offset == stop and not is_end):
            return new_start + offset - start
        return new_stop + offset - stop


class Learner:
    """Reads a line the usual way, and others of its shape, to tell what the shape says."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._patterns = {
            origin: tuple(_patterns(catalogue, origin))
            for origin in (Origin.ACCESS, Origin.STATISTICS)
        }
        self._log = tuple(
            pattern
            for rule in catalogue.rules.values()
            for pattern in rule.worded
            if accepts(pattern, Level.ERROR, Origin.LOG)
            and not (pattern.exception or pattern.frames or pattern.raised_in)
        )
        self._slow: set[str] = set()
        """Patterns for windows that took too long once: whoever reads the windows will say so."""
        self._by_level: dict[Level, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def learn(self, raw: bytes, unwrapper: Unwrapper) -> Shape | None:
        """What lines of this one's shape say; None when they must be read one by one."""
        lines, read = alike(raw, unwrapper)
        if not read:
            return None
        line = read[0].line
        if line.origin is Origin.ACCESS and line.text.endswith('" 200 OK'):
            return None if self._is_asked_for(line) else _shape(lines, read)
        if line.origin is Origin.STATISTICS:
            shape, window = _shape(lines, read), self._window(lines, read)
            return None if shape is None or window is None else shape._replace(window=window)
        if line.origin is Origin.LOG and self._is_idle_talk(line):
            return _shape(lines, read)
        return None

    def learn_like(
        self, known: Known, mapped: bytes, raw: bytes, unwrapper: Unwrapper
    ) -> Shape | None:
        """What lines of a shape say that differs from a known one by how long its numbers are."""
        move = _Mover(known.numbers, numbers_of(mapped))
        shape = known.shape
        moved = shape._replace(
            time=move(shape.time),
            container=move(shape.container),
            process=move(shape.process),
            pid=move(shape.pid),
            rank=move(shape.rank),
            place=move(shape.place),
        )
        if shape.window is not None:
            moved = moved._replace(window=_moved(shape.window, move))
        read = read_alone(raw, unwrapper)
        if read is None:
            return None
        line = read.line
        said = (line.origin, read.envelopes, line.key, line.time, line.place, line.level)
        shown = (
            moved.origin, moved.envelopes, moved.key("", raw), text_at(moved.time, raw),
            text_at(moved.place, raw), moved.level,
        )  # fmt: skip
        if said != shown or (line.origin is Origin.ACCESS and self._is_asked_for(line)):
            return None
        if moved.window is not None and moved.window.ids != tuple(self._asking(line.text)):
            return None
        return moved._replace(owner=owner(line.key))

    def learn_head(self, raw: bytes, unwrapper: Unwrapper) -> Shape | None:
        """What lines about requests say that begin as this one does; None when that differs."""
        head = head_of(raw.translate(DIGITS))
        if head is None:
            return None
        lines, read = alike(raw[: len(head) + MAX_HEAD], unwrapper)
        shape = _shape(lines, read) if read and read[0].line.origin is Origin.REQUEST else None
        if shape is None:
            return None
        places = (shape.time, shape.container, shape.process, shape.pid, shape.rank, shape.place)
        return None if any(one is not None and one.stop > len(head) for one in places) else shape

    def _is_asked_for(self, line: Line) -> bool:
        text = _wild(line.text.removesuffix("200 OK")) + "200 OK"
        return any(_may_match(pattern, text) for _, pattern in self._patterns[Origin.ACCESS])

    def _is_idle_talk(self, line: Line) -> bool:
        """Tell a record of vLLM's logger that is nothing to any rule, alone or with what follows."""
        text = line.text
        return (
            line.place is not None
            and line.level in _IDLE
            and bool(text.strip())
            and is_idle_talk(text)
            and TABLE not in text
            and separator(text) is None
            and frame(text) is None
            and exception_name(text.strip(), in_traceback=False) is None
            and not self._may_be_asked_for(text, line.level)
        )

    def _may_be_asked_for(self, text: str, level: Level) -> bool:
        """Tell whether a record with these words may hold, with some digits, what a pattern asks for."""
        plain, numbered = self._words(level)
        if any(word in text for word in plain):
            return True
        wild = _wild(text)
        return any(_may_hold(wild, word) for word in numbered)

    def _words(self, level: Level) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of each pattern for plain records of a level a text that what it matches must hold; those with digits apart."""
        found = self._by_level.get(level)
        if found is None:
            words = {
                word
                for pattern in self._log
                if pattern.level.rank <= level.rank
                for word in (
                    [max(pattern.keywords, key=len)] if pattern.keywords else pattern.any_of
                )
            }
            numbered = {word for word in words if not _DIGITS.isdisjoint(word)}
            found = tuple(sorted(words - numbered)), tuple(sorted(numbered))
            self._by_level[level] = found
        return found

    def _asking(self, text: str) -> dict[str, Pattern]:
        """The patterns that may match a window with these words."""
        wild = _wild(text)
        return {
            number: pattern
            for number, pattern in self._patterns[Origin.STATISTICS]
            if _may_match(pattern, wild)
        }

    def _window(self, lines: list[bytes], read: list[Probe]) -> Window | None:
        text = read[0].line.text
        shift = shift_of(lines, read)
        if shift is None or text.startswith(BESIDE_STATISTICS):
            return None
        running, prompt, generation, waiting, cache_pct = statistics.spans(text)
        name = statistics.engine(text)
        rules: list[tuple[Bound, ...]] = []
        ids: list[str] = []
        for number, pattern in self._asking(text).items():
            if number in self._slow:
                return None
            try:
                bounds = _bounds(pattern, [one.line.text for one in read], shift)
            except TimeoutError:
                self._slow.add(number)
                return None
            if bounds is None:
                return None
            rules.append(bounds)
            ids.append(number)
        return Window(
            running=running and shift(running),
            generation=generation and shift(generation),
            prompt=prompt and shift(prompt),
            waiting=waiting and shift(waiting),
            cache_pct=cache_pct and shift(cache_pct),
            engine=shift((0, len(name))) if name else None,
            rules=tuple(rules),
            ids=tuple(ids),
        )


def _shape(lines: list[bytes], read: list[Probe]) -> Shape | None:
    line = read[0].line
    places: dict[str, slice | None] = {}
    for name in ("time", "container", "process", "pid", "rank", "place"):
        values = [getattr(one.line, name) for one in read]
        if name == "rank":
            values = [one.line.key[4] for one in read]
        found, places[name] = place_of(lines, values)
        if not found:
            return None
    said = {service(one.line.text) for one in read} if line.origin is Origin.ACCESS else {_NOTHING}
    if len(said) > 1:
        return None
    is_service, is_answer = said.pop()
    return Shape(
        line.origin,
        read[0].envelopes,
        time=places["time"],
        container=places["container"],
        process=places["process"],
        pid=places["pid"],
        rank=places["rank"],
        place=places["place"],
        level=line.level,
        owner=owner(line.key),
        is_service=is_service,
        is_answer=is_answer,
    )


def _moved(window: Window, move: Callable[[slice | None], slice | None]) -> Window:
    return Window(
        running=move(window.running),
        generation=move(window.generation),
        prompt=move(window.prompt),
        waiting=move(window.waiting),
        cache_pct=move(window.cache_pct),
        engine=move(window.engine),
        rules=tuple(
            tuple(
                bound._replace(place=move(bound.place))
                if isinstance(bound.place, slice)
                else bound
                for bound in bounds
            )
            for bounds in window.rules
        ),
        ids=window.ids,
    )


def _wild(text: str) -> str:
    return text.translate(_WILD)


def _patterns(catalogue: Catalogue, origin: Origin) -> Iterator[tuple[str, Pattern]]:
    for kind, rule in catalogue.rules.items():
        for pattern in rule.worded:
            if pattern.origin in ("any", origin.value) and pattern.level.rank <= Level.ERROR.rank:
                yield f"{kind}:{pattern.name}", pattern


def _may_match(pattern: Pattern, text: str) -> bool:
    return all(_may_hold(text, word) for word in pattern.keywords) and (
        not pattern.any_of or any(_may_hold(text, word) for word in pattern.any_of)
    )


def _may_hold(text: str, word: str) -> bool:
    if _DIGITS.isdisjoint(word):
        return word in text
    return max(_wild(word).split(_ANY), key=len) in text and _word(word).search(text) is not None


@cache
def _word(word: str) -> regex.Pattern[str]:
    return regex.compile(
        "".join(f"[{char}{_ANY}]" if char in _DIGITS else regex.escape(char) for char in word)
    )


def _bounds(
    pattern: Pattern, texts: list[str], shift: Callable[[tuple[int, int]], slice]
) -> tuple[Bound, ...] | None:
    """Of a rule for windows what its numbers must be; None when only reading a line tells."""
    if pattern.when is not None or pattern.needs or not (pattern.at_least or pattern.at_most):
        return None
    found = [compiled(pattern.regex).search(text, timeout=TIMEOUT_S) for text in texts]
    bounds = []
    # What a window shows only beside those before it may be within any bounds.
    for name in {*pattern.at_least, *pattern.at_most} - statistics.FROM_BEFORE:
        places = {one.span(name) if one and name in one.groupdict() else None for one in found}
        place = places.pop()
        if places:
            return None
        where: slice | float | None = None
        if place is not None and place[0] >= 0:
            where = shift(place)
        elif name in pattern.facts:
            where = float(pattern.facts[name])
        elif name != statistics.PER_REQUEST:
            return None
        bounds.append(Bound(where, *pattern.bounds[name]))
    return tuple(bounds)
