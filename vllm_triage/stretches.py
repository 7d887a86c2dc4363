"""Stretches: lines in a row that show nothing but a server serving, and what they come to together."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from vllm_triage.assembler import MAX_MESSAGE_LINES
from vllm_triage.lines import Key, Origin, Owner
from vllm_triage.plateaus import Steady
from vllm_triage.runs import Served
from vllm_triage.shapes import DIGITS, Record, Shape, State, owner, text_at

# Where in a stretch the processes that go on with something are looked for.
_SOON = 64


class Block:
    """Lines in a row, of which the first has the number `first`: a text without its last line end, cut or not."""

    __slots__ = ("counts", "first", "raw", "records", "shapes", "windows")

    def __init__(self, first: int, data: bytes, raw: list[bytes] | None = None) -> None:
        self.first = first
        self.raw = raw or data.split(b"\n")
        self.shapes = data.translate(DIGITS).split(b"\n")
        self.counts: Counter[bytes] | None = None
        """How often each shape comes, without those that have been counted elsewhere."""
        self.windows: list[tuple[int, State, Steady | None]] = []
        """The lines of statistics that are nothing to any rule, by their indices."""
        self.records: list[int] = []
        """The indices of logged records that are nothing to any rule."""


class Engine(NamedTuple):
    """What the windows of one engine in a stretch come to."""

    is_busy: bool
    """Whether there were requests in the last."""
    was_idle: bool
    """Whether there were none in one of them."""
    ids: frozenset[str]
    """The patterns whose row of windows they end."""
    windows: tuple[Steady | None, ...]
    """What they show of decoding, in order."""
    cache_pct: float
    """KV cache in use at the end of the last, 0 to 100."""


class Summary(NamedTuple):
    """What a stretch comes to. Lines are counted from 0, the first of the block."""

    start: int
    stop: int
    envelopes: tuple[tuple[str, int], ...]
    """How many of the lines came in which envelope."""
    served: tuple[tuple[str | None, Served], ...]
    """By container what they show."""
    engines: tuple[tuple[tuple[object, ...], Engine], ...]
    """By process and engine what its windows come to."""
    answering: frozenset[Owner]
    """Who printed access lines."""
    recording: frozenset[Owner]
    """Who logged records that say nothing."""


class Stretch:
    """Lines `start` to `stop` of a block, which show nothing but a server serving."""

    def __init__(self, block: Block, start: int, stop: int, known: dict[bytes, Shape]) -> None:
        self.block, self.start, self.stop = block, start, stop
        self._known = known

    @cached_property
    def shapes(self) -> list[Shape]:
        """The shapes of its lines, each once."""
        return [self._known[shape] for shape in set(self.block.shapes[self.start : self.stop])]

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def answers(self) -> list[Shape]:
        """The shapes of its access lines."""
        return [shape for shape in self.shapes if shape.origin is Origin.ACCESS]

    def shape(self, index: int) -> Shape:
        """The shape of a line."""
        return self._known[self.block.shapes[index]]

    def part(self, start: int, stop: int) -> "Stretch":
        """Some of the lines."""
        return Stretch(self.block, start, stop, self._known)

    def key(self, source: str, index: int) -> Key:
        """The process that printed a line."""
        return self.shape(index).key(source, self.block.raw[index])

    def last_records(self, source: str) -> list[int]:
        """The lines of each process's last record, where nothing has ended it.

        What is logged next may belong to it.
        """
        records = self.block.records
        first, end = bisect_left(records, self.start), bisect_left(records, self.stop)
        out: list[int] = []
        after: dict[Key, tuple[int, int, Record | None]] = {}
        ended: set[tuple[bytes, ...]] = set()
        for place in range(end - 1, first - 1, -1):
            index = records[place]
            shape, raw = self.shape(index), self.block.raw[index]
            name = shape.owner_of(raw)
            if name in ended:
                continue
            key = shape.key(source, raw)
            record = shape.record(raw)
            stop, count, before = after.get(key, (self.stop, 0, record))
            is_part = (
                record == before
                and count < MAX_MESSAGE_LINES
                and not self._has_answer(source, key, index + 1, stop)
            )
            after[key] = (index, count + 1, record if is_part else None)
            if is_part:
                out.append(index)
            else:
                ended.add(name)
        return out[::-1]

    def _has_answer(self, source: str, key: Key, start: int, stop: int) -> bool:
        """Whether an access line of a process stands between two others."""
        name = owner(key)
        return any(shape.owner == name for shape in self.answers) and any(
            self.shape(index).origin is Origin.ACCESS and self.key(source, index) == key
            for index in range(start, stop)
        )

    def first_answers(self, source: str) -> set[int]:
        """The first access line of each process that prints one soon: it ends what was said before."""
        out: dict[Key, int] = {}
        for index in range(self.start, min(self.stop, self.start + _SOON)):
            if self.shape(index).origin is Origin.ACCESS:
                out.setdefault(self.key(source, index), index)
        return set(out.values())

    def summary(self, source: str) -> Summary:
        """What the lines come to; there must be one at least."""
        return Summary(
            self.start,
            self.stop,
            tuple(self._envelopes()),
            tuple(self._served_by()),
            tuple(self._engines(source).items()),
            frozenset(shape.owner for shape in self.answers),
            frozenset(shape.owner for shape in self.shapes if shape.origin is Origin.LOG),
        )

    def _envelopes(self) -> Iterator[tuple[str, int]]:
        if len({shape.envelopes for shape in self.shapes}) == 1:
            for name, count in self.shapes[0].envelopes:
                yield name, count * len(self)
            return
        for index in range(self.start, self.stop):
            yield from self.shape(index).envelopes

    def _served_by(self) -> Iterator[tuple[str | None, Served]]:
        if all(shape.container is None for shape in self.shapes):
            yield None, self._served(range(self.start, self.stop))
            return
        indices: dict[str | None, list[int]] = {}
        for index in range(self.start, self.stop):
            container = text_at(self.shape(index).container, self.block.raw[index])
            indices.setdefault(container, []).append(index)
        for container, found in indices.items():
            yield container, self._served(found)

    def _served(self, indices: range | list[int]) -> Served:
        return Served(
            first=indices[0],
            lines=len(indices),
            first_time=self._time(indices),
            last_time=self._time(indices[::-1]),
            last_answer=self._first(indices[::-1], "is_answer"),
            is_service=self._first(indices, "is_service") is not None,
            is_engine=self._first(indices, "is_engine") is not None,
        )

    def _first(self, indices: range | list[int], name: str) -> int | None:
        """The first of these lines whose shape has something; None when none has it."""
        if not any(getattr(shape, name) for shape in self.shapes):
            return None
        return next((index for index in indices if getattr(self.shape(index), name)), None)

    def _time(self, indices: range | list[int]) -> str | None:
        index = self._first(indices, "time")
        return None if index is None else text_at(self.shape(index).time, self.block.raw[index])

    def _engines(self, source: str) -> dict[tuple[object, ...], Engine]:
        last: dict[tuple[bytes, ...], tuple[int, State]] = {}
        idle: set[tuple[bytes, ...]] = set()
        decoding: dict[tuple[bytes, ...], list[Steady | None]] = {}
        ids: dict[tuple[bytes, ...], set[tuple[str, ...]]] = {}
        windows, raws = self.block.windows, self.block.raw
        shapes, known = self.block.shapes, self._known
        first, end = bisect_left(windows, (self.start,)), bisect_left(windows, (self.stop,))
        cutters: dict[bytes, tuple[Callable[[bytes], tuple[bytes, ...]], tuple[str, ...]]] = {}
        for index, state, steady in reversed(windows[first:end]):
            found = cutters.get(shapes[index])
            if found is None:
                shape = known[shapes[index]]
                if shape.window is None:
                    continue
                found = cutters[shapes[index]] = shape.engine_of, shape.window.ids
            engine_of, asked = found
            name = engine_of(raws[index])
            if name not in last:
                last[name] = index, state
                ids[name] = {asked}
                decoding[name] = []
            elif asked not in ids[name]:
                ids[name].add(asked)
            if state is State.IDLE:
                idle.add(name)
            rows = decoding[name]
            if steady is not None or not rows or rows[-1] is not None:
                rows.append(steady)
        out: dict[tuple[object, ...], Engine] = {}
        for name, (index, state) in reversed(last.items()):
            shape, raw = self.shape(index), raws[index]
            if shape.window is None:
                continue
            engine = text_at(shape.window.engine, raw)
            out[(*shape.key(source, raw), engine or "")] = Engine(
                state is not State.IDLE,
                name in idle,
                frozenset().union(*ids[name]),
                tuple(reversed(decoding[name])),
                shape.window.cache_use(raw),
            )
        return out
