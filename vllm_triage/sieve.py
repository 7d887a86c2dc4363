"""The sieve: of many lines at once, those that must be read, and what the others say together."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_triage.envelopes import Unwrapper
from vllm_triage.lines import Origin
from vllm_triage.runs import Served
from vllm_triage.shapes import DIGITS, Learner, Shape, State, head_of, may_be_quiet, text_at

_MAX_SHAPES = 16_384
_MAX_LOUD = 2_048
_MAX_LOUD_LINE = 512


@dataclass(slots=True)
class Block:
    """Lines in a row; the first has the number `first`."""

    first: int
    raw: list[bytes]
    shapes: list[bytes]
    windows: list[tuple[int, State]] = field(default_factory=list)
    """The lines of statistics that are nothing to any rule, by their indices."""

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

    def until(self, stop: int) -> "Stretch":
        """The lines before `stop`."""
        return Stretch(self.block, self.start, stop, self._known)

    def after(self, index: int) -> "Stretch":
        """The lines after one."""
        return Stretch(self.block, index + 1, self.stop, self._known)

    def envelopes(self) -> Iterator[tuple[str, int]]:
        """How many of the lines came in which envelope."""
        if len({shape.envelopes for shape in self.shapes}) == 1:
            for name, count in self.shapes[0].envelopes:
                yield name, count * len(self)
            return
        for index in range(self.start, self.stop):
            yield from self.shape(index).envelopes

    def served(self) -> Iterator[tuple[str | None, Served]]:
        """By container what they come to."""
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
        number = self.block.first
        answer = self._first(indices[::-1], "is_answer")
        return Served(
            first=number + indices[0],
            lines=len(indices),
            first_time=self._time(indices),
            last_time=self._time(indices[::-1]),
            last_answer=0 if answer is None else number + answer,
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

    def engines(self, source: str) -> dict[tuple[object, ...], Engine]:
        """By process and engine what its windows come to."""
        out: dict[tuple[object, ...], Engine] = {}
        windows = self.block.windows
        for place in range(bisect_left(windows, (self.start,)), len(windows)):
            index, state = windows[place]
            if index >= self.stop:
                break
            shape, raw = self.shape(index), self.block.raw[index]
            if shape.window is None:
                continue
            key = (*shape.key(source, raw), text_at(shape.window.engine, raw) or "")
            before = out.pop(key, _NO_ENGINE)
            is_idle = state is State.IDLE
            out[key] = Engine(
                not is_idle, before.was_idle or is_idle, before.ids.union(shape.window.ids)
            )
        return out


_NO_ENGINE = Engine(is_busy=False, was_idle=False, ids=frozenset())


class Sieve:
    """Learns the shapes of one input's lines and holds back those that need no reading.

    What it has learnt holds while the unwrapper has learnt nothing new. Memory is bounded.
    """

    def __init__(self, learner: Learner, unwrapper: Unwrapper) -> None:
        self._learner = learner
        self._unwrapper = unwrapper
        self._state: tuple[object, ...] | None = None
        self._forget()

    def _forget(self) -> None:
        self._known: dict[bytes, Shape] = {}
        self._answers: set[bytes] = set()
        self._sizes: tuple[int, ...] = ()
        self._seen: dict[bytes, bool] = {}
        self._loud: set[bytes] = set()
        """Shapes that are surely never worth learning."""

    def sift(self, block: Block, start: int) -> Iterator[Stretch | int]:
        """Give, in order, the lines from `start` on: an index to be read, or a stretch that need not be.

        When reading a line has taught the unwrapper something, what follows must be sifted anew.
        """
        state = self._unwrapper.state
        if state != self._state or len(self._known) > _MAX_SHAPES:
            self._forget()
            self._state = state
        at = start
        for index in self._to_read(block, start):
            if index > at:
                yield Stretch(block, at, index, self._known)
            yield index
            at = index + 1
        if at < len(block.raw):
            yield Stretch(block, at, len(block.raw), self._known)

    def _to_read(self, block: Block, start: int) -> list[int]:
        block.windows.clear()
        shapes, answers = block.shapes, self._answers
        odd = [index for index, shape in enumerate(shapes[start:], start) if shape not in answers]
        loud = self._loud
        return [
            index for index in odd if shapes[index] in loud or not self._is_quiet(block, index)
        ]

    def _is_quiet(self, block: Block, index: int) -> bool:
        mapped, raw = block.shapes[index], block.raw[index]
        known = self._known.get(mapped)
        if known is not None:
            if known.origin is not Origin.STATISTICS:
                return True
            state = known.state(raw)
            if state is State.ASKED:
                return False
            block.windows.append((index, state))
            return True
        for size in self._sizes:
            head = mapped[:size]
            if head in self._known:
                if b"\r" in raw or b"%|" in raw or b"#012" in raw:
                    # These may make several lines of one.
                    return False
                block.shapes[index] = head
                return True
        self._study(mapped, raw)
        return False

    def _study(self, mapped: bytes, raw: bytes) -> None:
        """Learn a shape the second time that it comes."""
        if may_be_quiet(mapped):
            if self._is_known_to_come(mapped):
                shape = self._learner.learn(raw, self._unwrapper)
                if shape is not None:
                    self._known[mapped] = shape
                    if shape.origin is Origin.ACCESS:
                        self._answers.add(mapped)
            return
        head = head_of(mapped)
        if head is None:
            if len(self._loud) >= _MAX_LOUD:
                self._loud.clear()
            if len(mapped) <= _MAX_LOUD_LINE:
                self._loud.add(mapped)
        elif self._is_known_to_come(head):
            shape = self._learner.learn_head(raw, self._unwrapper)
            if shape is not None:
                self._known[head] = shape
                self._sizes = tuple(sorted({*self._sizes, len(head)}))

    def _is_known_to_come(self, mapped: bytes) -> bool:
        """Whether it came once before; the first and the third time tell nothing new."""
        came = self._seen.get(mapped)
        if came is None and len(self._seen) >= _MAX_SHAPES:
            self._seen.clear()
        self._seen[mapped] = came is not None
        return came is False
