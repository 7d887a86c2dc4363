"""Matches: events that a pattern recognises, with the captured fields."""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from operator import itemgetter
from typing import NamedTuple

from vllm_triage.candidates import Candidate, Candidates, Found, Recogniser, compiled
from vllm_triage.catalogue import Catalogue
from vllm_triage.conditions import accepts, in_bounds, satisfies
from vllm_triage.events import Event
from vllm_triage.kinds import Kind, Level, Phase
from vllm_triage.lines import Line, Origin
from vllm_triage.rules import Pattern
from vllm_triage.run import Run
from vllm_triage.statistics import engine

TIMEOUT_S = 1.0
_MAX_TEXT = 262_144
_MAX_STREAKS = 1024


class Match(NamedTuple):
    """An event recognised."""

    recogniser: Recogniser
    event: Event
    line: Line
    fields: dict[str, str | float | None]
    run: Run
    phase: Phase | None
    quantization: str | None
    position: int

    @property
    def kind(self) -> Kind:
        """The kind of the pattern that matched."""
        return self.recogniser.kind


class Unknown(NamedTuple):
    """An exception that no rule knows."""

    event: Event
    run: Run
    phase: Phase | None
    position: int


class _Moment(NamedTuple):
    """What the server was doing, and with which quantization, when an event was said."""

    phase: Phase | None
    quantization: str | None


class Matcher:
    """Tries the catalogue's patterns on events."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.timed_out: set[str] = set()
        """Patterns that took too long once; they are skipped."""
        self._candidates = Candidates(catalogue)
        self._streaks: OrderedDict[tuple[object, ...], dict[str, list[Match]]] = OrderedDict()
        """By process and engine, of each pattern, the statistics windows in a row."""

    def another(self) -> "Matcher":
        """A matcher with the same patterns for another input."""
        other = Matcher(self.catalogue)
        other.timed_out, other._candidates = self.timed_out, self._candidates
        return other

    def find(self, event: Event, run: Run, position: int) -> Match | None:
        """Give the one match of an event: cause before symptom, more conditions before fewer."""
        level = event.level or Level.ERROR
        if event.origin in (Origin.ACCESS, Origin.STATISTICS):
            level = Level.ERROR
            if ("windows_idle", 1.0) in event.observed:
                self._forget(event)
                return None
        best = self._best(level, event, run, position)
        if best is None and event.exception is not None and len(event.lines) > 1:
            # A terminal may have wrapped the message.
            wrapped = event._replace(text=event.text.replace("\n", " "), unwrapped=event.text)
            best = self._best(level, wrapped, run, position)
            if best is not None:
                best = best._replace(event=event)
        return best

    def _best(self, level: Level, event: Event, run: Run, position: int) -> Match | None:
        best: Match | None = None
        best_rank: tuple[int, ...] = ()
        for rank, match in self._matches(level, event, run, position):
            if rank > best_rank:
                best, best_rank = match, rank
        return best

    def all(self, event: Event, run: Run) -> list[Match]:
        """Give every match of an event, best first; for checking rules."""
        level = event.level or Level.ERROR
        if event.origin in (Origin.ACCESS, Origin.STATISTICS):
            level = Level.ERROR
        found = sorted(self._matches(level, event, run, 0), key=itemgetter(0), reverse=True)
        return [match for _, match in found]

    def _matches(
        self, level: Level, event: Event, run: Run, position: int
    ) -> Iterator[tuple[tuple[int, ...], Match]]:
        said = self._candidates.known(level, event)
        candidates = self._candidates.of(level, event, said)
        if not candidates:
            return
        moment = _Moment(
            said.phase or event.first.phase or run.phase, run.quantization or said.quantization
        )
        out: list[Candidate] = []
        for candidate in candidates:
            item = candidate.recogniser
            if (self.timed_out and candidate.id in self.timed_out) or not _fits(
                item.pattern, moment, run
            ):
                continue
            if candidate.is_blind and candidate.is_tried:
                found = candidate.found
            else:
                found = candidate.found = self._search(item, event)
                candidate.is_tried = True
            if found is None:
                self._break(item, event)
                if candidate.is_blind:
                    out.append(candidate)
                continue
            match = _match(item, found, event, run, moment, position)
            if not in_bounds(item.pattern, match.fields):
                self._break(item, event)
                continue
            whole = self._times(item, event, match)
            if whole is not None:
                yield (*candidate.rank, len(whole.fields)), whole
        for candidate in out:
            candidates.remove(candidate)

    def _search(self, item: Recogniser, event: Event) -> Found | None:
        pattern = item.pattern
        try:
            found = compiled(pattern.regex).search(event.text[:_MAX_TEXT], timeout=TIMEOUT_S)
        except TimeoutError:
            self.timed_out.add(item.id)
            import logging

            logging.getLogger(__name__).warning(
                "pattern %s took over %g s on one line and is skipped from now on; vllm-triage check-rules FOLDER tells why",
                item.id,
                TIMEOUT_S,
            )
            return None
        if found is None:
            return None
        names = found.groupdict()
        bounded = [
            found.start(name) for name in (*pattern.at_least, *pattern.at_most) if name in names
        ]
        groups = tuple((name, *found.span(name)) for name in names if found[name] is not None)
        return Found(groups, found.start(), max(bounded, default=-1))

    def _break(self, item: Recogniser, event: Event) -> None:
        if item.pattern.times > 1 and event.origin is Origin.STATISTICS:
            self._streaks.get(_engine(event), {}).pop(item.id, None)

    def is_asked_for(self, line: Line) -> bool:
        """Tell whether any pattern's words are in a line, of which the level is known."""
        level = line.level or Level.ERROR
        return any(
            accepts(item.pattern, level, line.origin)
            for item in self._candidates.asked_for(line.text, line.origin)
        )

    def skip_windows(self, key: tuple[object, ...], ids: Collection[str] | None) -> None:
        """End rows of statistics windows of one engine: those of some patterns, or all."""
        if ids is None:
            self._streaks.pop(key, None)
            return
        for one in ids:
            self._streaks.get(key, {}).pop(one, None)

    def reset(self) -> None:
        """Forget the statistics windows seen so far."""
        self._streaks.clear()

    def _forget(self, event: Event) -> None:
        self._streaks.pop(_engine(event), None)

    def _times(self, item: Recogniser, event: Event, match: Match) -> Match | None:
        needed = item.pattern.times
        if needed == 1:
            return match
        key = _engine(event)
        streak = self._streaks.setdefault(key, {}).setdefault(item.id, [])
        self._streaks.move_to_end(key)
        if len(self._streaks) > _MAX_STREAKS:
            self._streaks.popitem(last=False)
        if len(streak) < needed:
            streak.append(match)
        if len(streak) < needed:
            return None
        first = streak[0]
        return first._replace(
            fields={**first.fields, "windows": float(needed)},
            event=first.event._replace(lines=tuple(one.event.first for one in streak)),
        )


def _engine(event: Event) -> tuple[object, ...]:
    """Which engine of which process a window is of."""
    return (*event.first.key, engine(event.text))


def _fits(pattern: Pattern, moment: _Moment, run: Run) -> bool:
    if pattern.when is not None and moment.phase not in (None, pattern.when):
        return False
    return not pattern.needs or satisfies(pattern.needs, run, moment.quantization)


def _match(
    item: Recogniser, found: Found, event: Event, run: Run, moment: _Moment, position: int
) -> Match:
    # In a benchmark's table the row that is out of bounds states the fault, not the title.
    start = found.bounded if found.bounded >= 0 and len(event.lines) > 1 else found.start
    fields: dict[str, str | float | None] = {**dict(event.observed), **item.pattern.facts}
    text = event.text
    for name, first, last in found.groups:
        fields[name] = text[first:last]
    line = event.line_at(start)
    return Match(item, event, line, fields, run, moment.phase, moment.quantization, position)
