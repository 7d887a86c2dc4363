"""Matches: events that a pattern recognises, with the captured fields."""

import logging
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import NamedTuple

import regex

from vllm_triage.catalogue import Catalogue
from vllm_triage.events import Event
from vllm_triage.gate import Gate
from vllm_triage.kinds import Confidence, Kind, Level, Phase, Role, Severity
from vllm_triage.lines import Line, Origin
from vllm_triage.phases import phase_of, quantized_by
from vllm_triage.rules import Pattern, Rule
from vllm_triage.run import Run

TIMEOUT_S = 1.0
_LOG = logging.getLogger(__name__)
_MAX_TEXT = 262_144
_MAX_STREAKS = 1024


class Recogniser(NamedTuple):
    """A pattern with the kind it stands for."""

    kind: Kind
    rule: Rule
    pattern: Pattern

    @property
    def id(self) -> str:
        """`area.kind:pattern-name`."""
        return f"{self.kind}:{self.pattern.name}"

    @property
    def role(self) -> Role:
        """The pattern's role, else the rule's."""
        return self.pattern.role or self.rule.role

    @property
    def severity(self) -> Severity:
        """The pattern's severity, else the rule's."""
        return self.pattern.severity or self.rule.severity


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


@cache
def compiled(text: str) -> regex.Pattern[str]:
    """Compile a pattern's regex once, on first use."""
    return regex.compile(text, regex.MULTILINE)


@dataclass
class Matcher:
    """Tries the catalogue's patterns on events."""

    catalogue: Catalogue
    timed_out: set[str] = field(default_factory=set)
    """Patterns that took too long once; they are skipped."""
    _streaks: OrderedDict[tuple[object, ...], dict[str, list[Match]]] = field(
        default_factory=OrderedDict
    )
    """By process, of each pattern, the statistics windows in a row."""

    def another(self) -> "Matcher":
        """A matcher with the same patterns for another input."""
        other = Matcher(self.catalogue, self.timed_out)
        other.__dict__["_gates"] = self._gates
        return other

    @cached_property
    def _gates(self) -> dict[tuple[Level, Origin], Gate[Recogniser]]:
        every = [
            Recogniser(kind, rule, pattern)
            for kind, rule in self.catalogue.rules.items()
            for pattern in rule.pattern
        ]
        return {
            (level, origin): Gate(
                (item.pattern.keywords, item.pattern.any_of, item)
                for item in every
                if item.pattern.level.rank <= level.rank and _accepts(item.pattern, origin)
            )
            for level in Level
            for origin in (Origin.LOG, Origin.ACCESS, Origin.STATISTICS)
        }

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
        best_rank: tuple[int, int, int, int] | None = None
        for item in self._gates[level, event.origin].candidates(event.text):
            if item.id in self.timed_out:
                continue
            match = self._try(item, event, run, position)
            if match is None:
                continue
            rank = _rank(match)
            if best_rank is None or rank > best_rank:
                best, best_rank = match, rank
        return best

    def all(self, event: Event, run: Run) -> list[Match]:
        """Give every match of an event, best first; for checking rules."""
        level = event.level or Level.ERROR
        if event.origin in (Origin.ACCESS, Origin.STATISTICS):
            level = Level.ERROR
        found = (
            self._try(item, event, run, 0)
            for item in self._gates[level, event.origin].candidates(event.text)
        )
        return sorted((match for match in found if match is not None), key=_rank, reverse=True)

    def _try(self, item: Recogniser, event: Event, run: Run, position: int) -> Match | None:
        pattern = item.pattern
        if not _conditions(pattern, event):
            return None
        phase = phase_of(event.frames, event.first.place) or event.first.phase or run.phase
        if pattern.when is not None and phase is not None and phase is not pattern.when:
            return None
        quantization = run.quantization or quantized_by(event.frames)
        if not _needs(pattern.needs, run, quantization):
            return None
        try:
            found = compiled(pattern.regex).search(event.text[:_MAX_TEXT], timeout=TIMEOUT_S)
        except TimeoutError:
            self.timed_out.add(item.id)
            _LOG.warning(
                "pattern %s took over %g s on one line and is skipped from now on",
                item.id,
                TIMEOUT_S,
            )
            return None
        if found is None:
            self._break(item, event)
            return None
        fields: dict[str, str | float | None] = {
            **dict(event.observed),
            **pattern.facts,
            **{name: value for name, value in found.groupdict().items() if value is not None},
        }
        bounded = [
            found.start(name)
            for name in (*pattern.at_least, *pattern.at_most)
            if name in found.groupdict()
        ]
        # In a benchmark's table the row that is out of bounds states the fault, not the title.
        start = max(bounded, default=-1) if len(event.lines) > 1 else -1
        match = Match(
            item,
            event,
            event.line_at(start if start >= 0 else found.start()),
            fields,
            run,
            phase,
            quantization,
            position,
        )
        if not _in_bounds(pattern, fields):
            self._break(item, event)
            return None
        return self._times(item, event, match)

    def _break(self, item: Recogniser, event: Event) -> None:
        if item.pattern.times > 1 and event.origin is Origin.STATISTICS:
            self._streaks.get(event.first.key, {}).pop(item.id, None)

    def is_asked_for(self, line: Line) -> bool:
        """Tell whether any pattern's words are in a line, of which the level is known."""
        level = line.level or Level.ERROR
        return any(True for _ in self._gates[level, line.origin].candidates(line.text))

    def skip_windows(self, key: tuple[object, ...], ids: Collection[str] | None) -> None:
        """End rows of statistics windows of one process: those of some patterns, or all."""
        if ids is None:
            self._streaks.pop(key, None)
            return
        for one in ids:
            self._streaks.get(key, {}).pop(one, None)

    def reset(self) -> None:
        """Forget the statistics windows seen so far."""
        self._streaks.clear()

    def _forget(self, event: Event) -> None:
        self._streaks.pop(event.first.key, None)

    def _times(self, item: Recogniser, event: Event, match: Match) -> Match | None:
        needed = item.pattern.times
        if needed == 1:
            return match
        key = event.first.key
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


def satisfies(needs: tuple[str, ...], run: Run, quantization: str | None) -> bool:
    """Tell whether a run shows all the facts that a pattern or variant needs."""
    return _needs(needs, run, quantization)


def _accepts(pattern: Pattern, origin: Origin) -> bool:
    wanted = "log" if pattern.origin == "kernel" else pattern.origin
    return wanted in ("any", origin.value)


def _conditions(pattern: Pattern, event: Event) -> bool:
    if pattern.exception:
        name = (event.exception or "").rpartition(".")[2]
        if name not in pattern.exception:
            return False
    if pattern.raised_in and not (
        event.frames and _frame_matches(pattern.raised_in, *event.frames[-1][::2])
    ):
        return False
    return not pattern.frames or any(
        _frame_matches(pattern.frames, file, function) for file, _, function in event.frames
    )


def _frame_matches(globs: tuple[str, ...], file: str, function: str) -> bool:
    for glob in globs:
        path, colon, name = glob.partition(":")
        if fnmatchcase(file, path) and (not colon or fnmatchcase(function, name)):
            return True
    return False


def _needs(needs: tuple[str, ...], run: Run, quantization: str | None) -> bool:
    for name in needs:
        if name == "quantization":
            if quantization is None:
                return False
        elif not run.arguments.get(name.replace("-", "_")):
            return False
    return True


def _in_bounds(pattern: Pattern, fields: dict[str, str | float | None]) -> bool:
    for bounds, is_least in ((pattern.at_least, True), (pattern.at_most, False)):
        for name, bound in bounds.items():
            value = fields.get(name)
            try:
                number = float(str(value).replace(",", ""))
            except ValueError:
                return False
            if (number < bound) if is_least else (number > bound):
                return False
    return True


_ROLE_RANK = {Role.CAUSE: 2, Role.SYMPTOM: 1, Role.CONSEQUENCE: 0}
_CONFIDENCE_RANK = {Confidence.CERTAIN: 2, Confidence.LIKELY: 1, Confidence.POSSIBLE: 0}


def _rank(match: Match) -> tuple[int, int, int, int]:
    pattern = match.recogniser.pattern
    conditions = sum(
        bool(one)
        for one in (
            pattern.when,
            pattern.needs,
            pattern.exception,
            pattern.raised_in,
            pattern.frames,
            pattern.at_least,
            pattern.at_most,
        )
    )
    return (
        _ROLE_RANK[match.recogniser.role],
        _CONFIDENCE_RANK[pattern.confidence],
        conditions,
        len(match.fields),
    )
