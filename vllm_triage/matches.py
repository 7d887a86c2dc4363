"""Matches: events that a pattern recognises, with the captured fields."""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from functools import cache, cached_property
from operator import itemgetter
from typing import NamedTuple

import regex

from vllm_triage import precompiled, prefilter
from vllm_triage.catalogue import Catalogue
from vllm_triage.conditions import accepts, in_bounds, raised_so, satisfies
from vllm_triage.events import Event
from vllm_triage.expressions import expression
from vllm_triage.gate import Gate
from vllm_triage.kinds import Confidence, Kind, Level, Phase, Role, Severity
from vllm_triage.lines import Line, Origin
from vllm_triage.phases import phase_of, quantized_by
from vllm_triage.plans import plans
from vllm_triage.prefilter import Ways, holds
from vllm_triage.rules import Pattern, Rule
from vllm_triage.run import Run
from vllm_triage.statistics import engine
from vllm_triage.tracebacks import Frame

TIMEOUT_S = 1.0
_MAX_TEXT = 262_144
_MAX_STREAKS = 1024
# Texts that are said again, as by each rank of a server that is started again and again.
_MAX_SAID = 256
_MAX_SAID_TEXT = 4096
_MAX_WORDINGS = 16
_DIGITS = bytes.maketrans(b"123456789", b"000000000")


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


class _Found(NamedTuple):
    """Where a pattern's regex found what."""

    groups: tuple[tuple[str, int, int], ...]
    start: int
    bounded: int
    """Where the last of the numbers that have bounds stands, -1 for none."""


class _Candidate:
    """A pattern that may match an event, and what its regex found, once it was tried."""

    __slots__ = ("found", "id", "is_blind", "is_tried", "rank", "recogniser")

    def __init__(self, recogniser: Recogniser) -> None:
        self.recogniser = recogniser
        self.id = recogniser.id
        self.rank = _rank(recogniser)
        self.is_blind = is_blind(recogniser.pattern.regex)
        """Whether its regex finds the same whatever the digits are."""
        self.is_tried = False
        self.found: _Found | None = None

    @property
    def is_out(self) -> bool:
        """Whether it is known not to match, whatever the digits are."""
        return self.is_blind and self.is_tried and self.found is None


class _Said:
    """What is known of events that are the same but for their digits."""

    __slots__ = ("candidates", "frames", "numbered", "phase", "quantization")

    def __init__(
        self, frames: tuple[Frame, ...], place: str | None, numbered: tuple[str, ...] = ()
    ) -> None:
        self.frames = frames
        self.phase = phase_of(frames, place)
        """What the server was doing, as far as the event itself tells."""
        self.quantization = quantized_by(frames)
        """The quantization code that the frames pass through."""
        self.numbered = numbered
        """The words by which the gate may tell them apart."""
        self.candidates: dict[tuple[str, ...], list[_Candidate]] = {}
        """The patterns that may match, by those of the words that an event has."""


class _Moment(NamedTuple):
    """What the server was doing, and with which quantization, when an event was said."""

    phase: Phase | None
    quantization: str | None


_Key = tuple[Origin, bytes, Level, str | None, str | None, Frame | None]


_ANY_DIGIT = expression(r"\{\d*+,?+\d*+\}|(?<!\\)\[\^?0-9")
_TELLS_DIGITS = expression(r"[0-9]|\(\?P=")


@cache
def is_blind(text: str) -> bool:
    """Tell whether a regex matches a text with other digits just so; sure where it says so."""
    return _TELLS_DIGITS.search(_ANY_DIGIT.sub("", text)) is None


@cache
def compiled(text: str) -> regex.Pattern[str]:
    """Compile a pattern's regex once, on first use."""
    return precompiled.compiled(text, regex.MULTILINE)


class Matcher:
    """Tries the catalogue's patterns on events."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.timed_out: set[str] = set()
        """Patterns that took too long once; they are skipped."""
        self._said: dict[_Key, _Said] = {}
        """What is known of events that may be said again."""
        self._streaks: OrderedDict[tuple[object, ...], dict[str, list[Match]]] = OrderedDict()
        """By process and engine, of each pattern, the statistics windows in a row."""

    def another(self) -> "Matcher":
        """A matcher with the same patterns for another input."""
        other = Matcher(self.catalogue)
        other.timed_out, other._said = self.timed_out, self._said
        other.__dict__["_gates"] = self._gates
        return other

    @cached_property
    def _gates(self) -> dict[Origin, Gate[Recogniser]]:
        every = [
            Recogniser(kind, rule, pattern)
            for kind, rule in self.catalogue.rules.items()
            for pattern in rule.worded
        ]
        by_origin = plans([one.pattern for one in every])
        return {origin: Gate(every, plan) for origin, plan in by_origin.items()}

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
        said = self._known(level, event)
        candidates = self._candidates(level, event, said)
        if not candidates:
            return
        moment = _Moment(
            said.phase or event.first.phase or run.phase, run.quantization or said.quantization
        )
        for candidate in candidates:
            if candidate.is_out:
                continue
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
                continue
            match = _match(item, found, event, run, moment, position)
            if not in_bounds(item.pattern, match.fields):
                self._break(item, event)
                continue
            whole = self._times(item, event, match)
            if whole is not None:
                yield (*candidate.rank, len(whole.fields)), whole

    def _known(self, level: Level, event: Event) -> _Said:
        """What is known of an event; remembered, as the same is said again with other numbers."""
        frames, place, text = event.frames, event.first.place, event.text
        if len(text) > _MAX_SAID_TEXT:
            return _Said(frames, place)
        # Bytes are translated many times as fast as text; and frames are slow to hash, not to compare.
        mapped = text.encode("utf-8", "surrogatepass").translate(_DIGITS)
        last = frames[-1] if frames else None
        key = (event.origin, mapped, level, event.exception, place, last)
        said = self._said.get(key)
        if said is None or said.frames != frames:
            if len(self._said) >= _MAX_SAID:
                self._said.clear()
            numbered = self._gates[event.origin].numbered(text)
            said = self._said[key] = _Said(frames, place, numbered)
        return said

    def _candidates(self, level: Level, event: Event, said: _Said) -> list[_Candidate]:
        """The patterns that may match, as far as its words tell."""
        text = event.text
        words = tuple([word for word in said.numbered if word in text])
        found = said.candidates.get(words)
        if found is None:
            if len(said.candidates) >= _MAX_WORDINGS:
                said.candidates.clear()
            found = said.candidates[words] = self._new_candidates(level, event)
        elif any(candidate.is_out for candidate in found):
            found = said.candidates[words] = [one for one in found if not one.is_out]
        return found

    def _new_candidates(self, level: Level, event: Event) -> list[_Candidate]:
        return [
            _Candidate(item)
            for item in self._gates[event.origin].candidates(event.text)
            if accepts(item.pattern, level, event.origin)
            and raised_so(item.pattern, event)
            and holds(event.text, self._asked(item.pattern.regex))
        ]

    def _asked(self, text: str) -> Ways:
        """What a text must hold for a regex to match it."""
        found = self.catalogue.prefilter.get(text)
        return prefilter.built_in().get(text, ()) if found is None else found

    def _search(self, item: Recogniser, event: Event) -> _Found | None:
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
        return _Found(groups, found.start(), max(bounded, default=-1))

    def _break(self, item: Recogniser, event: Event) -> None:
        if item.pattern.times > 1 and event.origin is Origin.STATISTICS:
            self._streaks.get(_engine(event), {}).pop(item.id, None)

    def is_asked_for(self, line: Line) -> bool:
        """Tell whether any pattern's words are in a line, of which the level is known."""
        level = line.level or Level.ERROR
        return any(
            accepts(item.pattern, level, line.origin)
            for item in self._gates[line.origin].candidates(line.text)
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
    item: Recogniser, found: _Found, event: Event, run: Run, moment: _Moment, position: int
) -> Match:
    # In a benchmark's table the row that is out of bounds states the fault, not the title.
    start = found.bounded if found.bounded >= 0 and len(event.lines) > 1 else found.start
    fields: dict[str, str | float | None] = {**dict(event.observed), **item.pattern.facts}
    text = event.text
    for name, first, last in found.groups:
        fields[name] = text[first:last]
    line = event.line_at(start)
    return Match(item, event, line, fields, run, moment.phase, moment.quantization, position)


_ROLE_RANK = {Role.CAUSE: 2, Role.SYMPTOM: 1, Role.CONSEQUENCE: 0}
_CONFIDENCE_RANK = {Confidence.CERTAIN: 2, Confidence.LIKELY: 1, Confidence.POSSIBLE: 0}


def _rank(item: Recogniser) -> tuple[int, int, int]:
    pattern = item.pattern
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
    return _ROLE_RANK[item.role], _CONFIDENCE_RANK[pattern.confidence], conditions
