"""The sieve: of many lines at once, those that must be read, and what the others say together."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_triage.assembler import MAX_MESSAGE_LINES
from vllm_triage.envelopes import Unwrapper
from vllm_triage.learning import Learner
from vllm_triage.lines import Key, Origin, Owner
from vllm_triage.runs import Served
from vllm_triage.shapes import (
    DIGITS,
    Known,
    Record,
    Shape,
    State,
    head_of,
    may_be_idle_talk,
    may_be_quiet,
    numbers_of,
    owner,
    skeleton_of,
    text_at,
)

_MAX_SHAPES = 16_384
# When a shape is worth learning: what logs say in passing comes again less surely.
_OFTEN = 4
_VERY_OFTEN = 6
_MAX_LOUD = 2_048
# Where in a stretch the processes that go on with something are looked for.
_SOON = 64
_MAX_SKELETONS = 1_024
_MAX_LOUD_LINE = 512


@dataclass(slots=True)
class Block:
    """Lines in a row; the first has the number `first`."""

    first: int
    raw: list[bytes]
    shapes: list[bytes]
    windows: list[tuple[int, State]] = field(default_factory=list)
    """The lines of statistics that are nothing to any rule, by their indices."""
    records: list[int] = field(default_factory=list)
    """The indices of logged records that are nothing to any rule."""

    @classmethod
    def of(cls, first: int, data: bytes) -> "Block":
        """The lines of a text without its last line end."""
        return cls(first, data.split(b"\n"), data.translate(DIGITS).split(b"\n"))


class Engine(NamedTuple):
    """What the windows of one engine in a stretch come to."""

    is_busy: bool
    """Whether there were requests in the last."""
    was_idle: bool
    """Whether there were none in one of them."""
    ids: frozenset[str]
    """The patterns whose row of windows they end."""


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
        self.shapes = [known[shape] for shape in set(block.shapes[start:stop])]

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
        for place in range(end - 1, first - 1, -1):
            index = records[place]
            key = self.key(source, index)
            record = self.shape(index).record(self.block.raw[index])
            stop, count, before = after.get(key, (self.stop, 0, record))
            is_part = (
                record == before
                and count < MAX_MESSAGE_LINES
                and not self._has_answer(source, key, index + 1, stop)
            )
            after[key] = (index, count + 1, record if is_part else None)
            if is_part:
                out.append(index)
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
        ids: dict[tuple[bytes, ...], set[tuple[str, ...]]] = {}
        windows, raws = self.block.windows, self.block.raw
        for place in range(bisect_left(windows, (self.start,)), len(windows)):
            index, state = windows[place]
            if index >= self.stop:
                break
            shape = self.shape(index)
            if shape.window is None:
                continue
            name = shape.engine(raws[index])
            last.pop(name, None)
            last[name] = index, state
            ids.setdefault(name, set()).add(shape.window.ids)
            if state is State.IDLE:
                idle.add(name)
        out: dict[tuple[object, ...], Engine] = {}
        for name, (index, state) in last.items():
            shape, raw = self.shape(index), raws[index]
            engine = shape.window and text_at(shape.window.engine, raw)
            out[(*shape.key(source, raw), engine or "")] = Engine(
                state is not State.IDLE, name in idle, frozenset().union(*ids[name])
            )
        return out


Sifted = list[tuple[int, bytes] | Summary]
"""Of a block's lines, in order, those to be read with their indices, and what the others come to."""


def sifted(sieve: "Sieve", data: bytes, source: str, *, reads_records: bool) -> tuple[int, Sifted]:
    """How many lines there are in a text without its last line end, and what is to be done with them.

    What was said before need not be known: lines that could go on with it are to be read.
    """
    block = Block.of(0, data)
    out: Sifted = []
    may_be_open = True
    for piece in sieve.sift(block, 0, reads_records=reads_records):
        if not isinstance(piece, Stretch):
            out.append((piece, block.raw[piece]))
            may_be_open = may_be_open or not sieve.is_window(block, piece)
            continue
        at = piece.start
        last = piece.last_records(source)
        first = piece.first_answers(source) if may_be_open else set()
        may_be_open = bool(last)
        for index in sorted(first.union(last)):
            if index > at:
                out.append(piece.part(at, index).summary(source))
            out.append((index, block.raw[index]))
            at = index + 1
        if at < piece.stop:
            out.append(piece.part(at, piece.stop).summary(source))
    return len(block.raw), out


class Sieve:
    """Learns the shapes of one input's lines and holds back those that need no reading.

    What it has learnt holds while the unwrapper has learnt nothing new. Memory is bounded.
    """

    def __init__(self, learner: Learner, unwrapper: Unwrapper) -> None:
        self._learner = learner
        self._unwrapper = unwrapper
        self._state: tuple[object, ...] | None = None
        self._reads_records = True
        self._forget()

    def _forget(self) -> None:
        self._known: dict[bytes, Shape] = {}
        self._answers: set[bytes] = set()
        self._sizes: tuple[int, ...] = ()
        self._seen: dict[bytes, int] = {}
        self._skeletons: dict[bytes, Known] = {}
        self._loud: set[bytes] = set()
        """Shapes that are surely never worth learning."""

    def sift(self, block: Block, start: int, *, reads_records: bool) -> Iterator[Stretch | int]:
        """Give, in order, the lines from `start` on: an index to be read, or a stretch that need not be.

        With `reads_records` all logged records are read. When reading a line has taught the
        unwrapper something, what follows must be sifted anew.
        """
        state = self._unwrapper.state
        if state != self._state or len(self._known) > _MAX_SHAPES:
            self._forget()
            self._state = state
        at = start
        self._reads_records = reads_records
        for index in self._to_read(block, start):
            if index > at:
                yield Stretch(block, at, index, self._known)
            yield index
            at = index + 1
        if at < len(block.raw):
            yield Stretch(block, at, len(block.raw), self._known)

    def is_window(self, block: Block, index: int) -> bool:
        """Tell a line of statistics, which ends no message and begins none."""
        known = self._known.get(block.shapes[index])
        return known is not None and known.origin is Origin.STATISTICS

    def _to_read(self, block: Block, start: int) -> list[int]:
        block.windows.clear()
        block.records.clear()
        shapes, answers, loud, known = block.shapes, self._answers, self._loud, self._known
        odd = [index for index, shape in enumerate(shapes[start:], start) if shape not in answers]
        out = []
        for index in odd:
            shape = shapes[index]
            if shape in loud:
                out.append(index)
            elif (found := known.get(shape)) is not None:
                if not self._is_quiet(found, block, index):
                    out.append(index)
            elif not self._is_request(block, index):
                self._study(shape, block.raw[index])
                out.append(index)
        return out

    def _is_quiet(self, shape: Shape, block: Block, index: int) -> bool:
        if shape.origin is Origin.STATISTICS:
            state = shape.state(block.raw[index])
            if state is State.ASKED:
                return False
            block.windows.append((index, state))
        elif shape.origin is Origin.LOG:
            if self._reads_records:
                return False
            block.records.append(index)
        return True

    def _is_request(self, block: Block, index: int) -> bool:
        mapped = block.shapes[index]
        for size in self._sizes:
            head = mapped[:size]
            if head in self._known:
                raw = block.raw[index]
                if b"%|" in raw or b"#012" in raw or b"\r" in raw.removesuffix(b"\r"):
                    # These may make several lines of one.
                    return False
                block.shapes[index] = head
                return True
        return False

    def _study(self, mapped: bytes, raw: bytes) -> None:
        """Learn a shape when it has come a few times."""
        head = None if may_be_quiet(mapped) else head_of(mapped)
        if head is not None:
            if self._came(head) == _OFTEN:
                shape = self._learner.learn_head(raw, self._unwrapper)
                if shape is not None:
                    self._known[head] = shape
                    self._sizes = tuple(sorted({*self._sizes, len(head)}))
            return
        often = _OFTEN if may_be_quiet(mapped) else _VERY_OFTEN if may_be_idle_talk(mapped) else 0
        if often and self._came(mapped) != often:
            return
        shape = self._learnt(mapped, raw) if often else None
        if shape is None:
            self._never(mapped)
            return
        self._known[mapped] = shape
        if shape.origin is Origin.ACCESS:
            self._answers.add(mapped)

    def _learnt(self, mapped: bytes, raw: bytes) -> Shape | None:
        skeleton = skeleton_of(mapped)
        known = self._skeletons.get(skeleton)
        if known is not None:
            return self._learner.learn_like(known, mapped, raw, self._unwrapper)
        shape = self._learner.learn(raw, self._unwrapper)
        if (
            shape is not None
            and shape.origin is not Origin.LOG
            and len(self._skeletons) < _MAX_SKELETONS
        ):
            self._skeletons[skeleton] = Known(shape, numbers_of(mapped))
        return shape

    def _never(self, mapped: bytes) -> None:
        """Remember that a shape is not worth a look."""
        if len(self._loud) >= _MAX_LOUD:
            self._loud.clear()
        if len(mapped) <= _MAX_LOUD_LINE:
            self._loud.add(mapped)

    def _came(self, mapped: bytes) -> int:
        """How often it has come so far."""
        count = self._seen.get(mapped, 0) + 1
        if count == 1 and len(self._seen) >= _MAX_SHAPES:
            self._seen.clear()
        self._seen[mapped] = count
        return count
