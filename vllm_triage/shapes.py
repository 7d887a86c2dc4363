"""Shapes: lines that are the same but for their digits, and what each of them says.

A server that works prints the same few lines over and over: requests it got, answers it gave,
statistics with nothing unusual. What such a line says is learnt once, from reading one of its
shape the usual way, and afterwards taken from the places where its digits stand.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from vllm_triage.expressions import expression
from vllm_triage.kinds import Level
from vllm_triage.lines import REQUESTS, Key, Origin, Owner
from vllm_triage.numbers import whole
from vllm_triage.plateaus import MAX_PROMPT, Steady
from vllm_triage.statistics import number

DIGITS = bytes.maketrans(b"123456789", b"000000000")
"""Makes a line its shape."""

MAX_HEAD = 512
"""How far into a line its message may begin."""
_ANSWERED = b'" 000 OK'
_WINDOW = b"Avg prompt throughput: "
_WORDS = tuple(word.encode() for word in REQUESTS)
_MAX_LINE = 4096
_NUMBER = expression(rb"0+")
_ZEROES = {ord(digit): "0" for digit in "123456789"}


class State(Enum):
    """What a window of engine statistics is to the rules."""

    ASKED = auto()
    """A rule may ask for it."""
    BUSY = auto()
    """Nothing, though there are requests."""
    IDLE = auto()
    """Nothing, as there are none."""


_ASKED = (State.ASKED, None)


Record = tuple[Level | None, str | None, str | None]
"""Level, time and code place: what the lines of one record have in common."""


class Bound(NamedTuple):
    """A number that a rule asks of a window: where it stands, and what it must not be under or over."""

    place: slice | float | None
    """Its place in the line or its value; None for the tokens of one running request."""
    least: float
    greatest: float


_Rule = list[tuple[int | None, float, float]]
_Cutter = Callable[[bytes], Iterable[bytes]]
_Plan = tuple[_Cutter, int | None, int | None, tuple[int, int, int] | None, list[_Rule]]
_NOTHING = slice(0)


class Window:
    """What rules ask of a line of engine statistics, and where in it the numbers stand."""

    def __init__(
        self,
        *,
        running: slice | None,
        generation: slice | None,
        prompt: slice | None,
        waiting: slice | None,
        cache_pct: slice | None,
        engine: slice | None,
        rules: tuple[tuple[Bound, ...], ...],
        ids: tuple[str, ...],
    ) -> None:
        self.running = running
        self.generation = generation
        self.prompt = prompt
        self.waiting = waiting
        self.cache_pct = cache_pct
        self.engine = engine
        self.rules = rules
        """Of each rule the bounds; a window outside of one of them is nothing to the rule."""
        self.ids = ids
        """The patterns whose row of windows such a one ends."""

    def look(self, raw: bytes) -> tuple[State, Steady | None]:
        """What a line is to the rules, and what it shows of decoding."""
        cut, running_at, generation_at, steady_at, rules = self._plan
        if running_at is None:
            return State.IDLE, None
        try:
            numbers = [*map(float, cut(raw))]
            running = numbers[running_at]
            if not running:
                return State.IDLE, None
            for bounds in rules:
                for index, least, greatest in bounds:
                    if index is not None:
                        value = numbers[index]
                    else:
                        value = 0.0 if generation_at is None else numbers[generation_at] / running
                    if value < least or value > greatest:
                        break
                else:
                    return _ASKED
        except ValueError:
            return _ASKED
        if steady_at is None:
            return State.BUSY, None
        prompt_at, waiting_at, cache_at = steady_at
        if generation_at is None or numbers[waiting_at] or numbers[prompt_at] > MAX_PROMPT:
            return State.BUSY, None
        return State.BUSY, Steady(running, numbers[generation_at], numbers[cache_at])

    def cache_use(self, raw: bytes) -> float:
        """How much of the KV cache is in use, 0 where it is not printed."""
        return (number(raw[self.cache_pct]) if self.cache_pct else None) or 0.0

    @cached_property
    def _plan(self) -> _Plan:
        """What gives the numbers that are asked for, the indices of some of them, and the rules.

        The third are those of prompts, waiting requests and the cache, None where one is not printed.

        A bound of a rule has the index of its number, None for the tokens of one running request.
        """
        places: list[slice] = []

        def index(place: slice | None) -> int | None:
            if place is None:
                return None
            if place not in places:
                places.append(place)
            return places.index(place)

        running, generation = index(self.running), index(self.generation)
        prompt, waiting, cache = index(self.prompt), index(self.waiting), index(self.cache_pct)
        steady_at = None
        if prompt is not None and waiting is not None and cache is not None:
            steady_at = prompt, waiting, cache
        rules: list[_Rule] = []
        for bounds in self.rules:
            moving = [one for one in bounds if not isinstance(one.place, float)]
            fixed = [one for one in bounds if isinstance(one.place, float)]
            if all(one.least <= one.place <= one.greatest for one in fixed):  # type: ignore[operator]
                rules.append([(index(one.place), one.least, one.greatest) for one in moving])  # type: ignore[arg-type]
        return cutter(places), running, generation, steady_at, rules


class Shape(NamedTuple):
    """What all lines of one shape say, and where in them what differs stands."""

    origin: Origin
    envelopes: tuple[tuple[str, int], ...]
    time: slice | None
    container: slice | None
    process: slice | None
    pid: slice | None
    rank: slice | None
    place: slice | None
    owner: Owner
    is_service: bool
    is_answer: bool
    level: Level | None = None
    window: Window | None = None

    def owner_of(self, raw: bytes) -> tuple[bytes, ...]:
        """What tells one process from another, as it is printed."""
        places = (self.container, self.process, self.pid, self.rank)
        return tuple([raw[place] if place else b"" for place in places])

    @property
    def engine_of(self) -> Callable[[bytes], tuple[bytes, ...]]:
        """What cuts out of a line what tells an engine's windows from another's."""
        engine = None if self.window is None else self.window.engine
        return cutter([self.container, self.process, self.pid, self.rank, engine])

    def record(self, raw: bytes) -> Record:
        """What lines of one record have in common: level, time and code place."""
        return self.level, text_at(self.time, raw), text_at(self.place, raw)

    @property
    def is_engine(self) -> bool:
        """Whether the engine speaks of requests or of its own statistics."""
        return self.origin in (Origin.REQUEST, Origin.STATISTICS)

    def key(self, source: str, raw: bytes) -> Key:
        """The process that printed a line of this shape."""
        pid, rank = text_at(self.pid, raw), text_at(self.rank, raw)
        return (
            source,
            text_at(self.container, raw),
            text_at(self.process, raw),
            whole(pid) if pid is not None else None,
            whole(rank) if rank is not None else None,
        )


def cutter(places: Sequence[slice | None]) -> Callable[[bytes], tuple[bytes, ...]]:
    """What cuts several places out of a line at once, nothing where there is none."""
    if len(places) > 1:
        return itemgetter(*[place or _NOTHING for place in places])
    return lambda raw: tuple([raw[place or _NOTHING] for place in places])


def text_at(place: slice | None, raw: bytes) -> str | None:
    """What stands at a place of a line; None without a place."""
    return None if place is None else raw[place].decode("utf-8", "replace")


def may_be_quiet(mapped: bytes) -> bool:
    """Tell whether a shape is one of access lines or of statistics, by its words."""
    return len(mapped) <= _MAX_LINE and (_ANSWERED in mapped or _WINDOW in mapped)


def may_be_idle_talk(mapped: bytes) -> bool:
    """Tell whether a shape may be one of records that say nothing, by its level."""
    return len(mapped) <= _MAX_LINE and any(
        level in mapped[:MAX_HEAD] for level in (b"INFO 0", b"WARNING 0", b"DEBUG 0")
    )


def head_of(mapped: bytes) -> bytes | None:
    """The beginning of a line about a request, up to where what users sent follows."""
    for word in _WORDS:
        end = mapped.find(word, 0, MAX_HEAD)
        if end >= 0:
            return mapped[: end + len(word)]
    return None


class Known(NamedTuple):
    """A shape, and where in it the numbers stand."""

    shape: Shape
    numbers: tuple[tuple[int, int], ...]


def numbers_of(mapped: bytes) -> tuple[tuple[int, int], ...]:
    """Where in a shape the numbers stand."""
    return tuple(found.span() for found in _NUMBER.finditer(mapped))


def skeleton_of(mapped: bytes) -> bytes:
    """A shape with all its numbers of one digit."""
    return _NUMBER.sub(b"0", mapped)


def owner(key: Key) -> Owner:
    """A process as all of its shape are: every digit 0."""
    return tuple(None if part is None else str(part).translate(_ZEROES) for part in key[1:])
