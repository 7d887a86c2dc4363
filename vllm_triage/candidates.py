"""Candidates: the patterns that may match an event, remembered, as the same is said again and again."""

from collections.abc import Iterator
from functools import cache, cached_property
from typing import NamedTuple

import regex

from vllm_triage import precompiled, prefilter
from vllm_triage.catalogue import Catalogue
from vllm_triage.conditions import accepts, raised_so
from vllm_triage.events import Event
from vllm_triage.expressions import expression
from vllm_triage.gate import Gate
from vllm_triage.kinds import Confidence, Kind, Level, Role, Severity
from vllm_triage.lines import Origin
from vllm_triage.phases import phase_of, quantized_by
from vllm_triage.plans import plans
from vllm_triage.prefilter import Ways, holds
from vllm_triage.rules import Pattern, Rule
from vllm_triage.tracebacks import Frame

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


class Found(NamedTuple):
    """Where a pattern's regex found what."""

    groups: tuple[tuple[str, int, int], ...]
    start: int
    bounded: int
    """Where the last of the numbers that have bounds stands, -1 for none."""


class Candidate:
    """A pattern that may match an event, and what its regex found, once it was tried."""

    __slots__ = ("found", "id", "is_blind", "is_tried", "rank", "recogniser")

    def __init__(self, recogniser: Recogniser) -> None:
        self.recogniser = recogniser
        self.id = recogniser.id
        self.rank = _rank(recogniser)
        self.is_blind = is_blind(recogniser.pattern.regex)
        """Whether its regex finds the same whatever the digits are."""
        self.is_tried = False
        self.found: Found | None = None


class Said:
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
        self.candidates: dict[tuple[str, ...], list[Candidate]] = {}
        """The patterns that may match, by those of the words that an event has."""


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


class Candidates:
    """Finds the patterns of a catalogue that may match an event."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._said: dict[_Key, Said] = {}

    @cached_property
    def _gates(self) -> dict[Origin, Gate[Recogniser]]:
        every = [
            Recogniser(kind, rule, pattern)
            for kind, rule in self._catalogue.rules.items()
            for pattern in rule.worded
        ]
        by_origin = plans([one.pattern for one in every])
        return {origin: Gate(every, plan) for origin, plan in by_origin.items()}

    def asked_for(self, text: str, origin: Origin) -> Iterator[Recogniser]:
        """The patterns whose words are in a text."""
        return self._gates[origin].candidates(text)

    def known(self, level: Level, event: Event) -> Said:
        """What is known of an event; remembered, as the same is said again with other numbers."""
        frames, place, text = event.frames, event.first.place, event.text
        if len(text) > _MAX_SAID_TEXT:
            return Said(frames, place)
        # Bytes are translated many times as fast as text; and frames are slow to hash, not to compare.
        mapped = text.encode("utf-8", "surrogatepass").translate(_DIGITS)
        last = frames[-1] if frames else None
        key = (event.origin, mapped, level, event.exception, place, last)
        said = self._said.get(key)
        if said is None or said.frames != frames:
            if len(self._said) >= _MAX_SAID:
                self._said.clear()
            numbered = self._gates[event.origin].numbered(text)
            said = self._said[key] = Said(frames, place, numbered)
        return said

    def of(self, level: Level, event: Event, said: Said) -> list[Candidate]:
        """The patterns that may match, as far as its words tell; whoever learns that one cannot takes it out."""
        text = event.text
        words = tuple([word for word in said.numbered if word in text])
        found = said.candidates.get(words)
        if found is None:
            if len(said.candidates) >= _MAX_WORDINGS:
                said.candidates.clear()
            found = said.candidates[words] = self._new_candidates(level, event)
        return found

    def _new_candidates(self, level: Level, event: Event) -> list[Candidate]:
        return [
            Candidate(item)
            for item in self._gates[event.origin].candidates(event.text)
            if accepts(item.pattern, level, event.origin)
            and raised_so(item.pattern, event)
            and holds(event.text, self._asked(item.pattern.regex))
        ]

    def _asked(self, text: str) -> Ways:
        """What a text must hold for a regex to match it."""
        found = self._catalogue.prefilter.get(text)
        return prefilter.built_in().get(text, ()) if found is None else found


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
