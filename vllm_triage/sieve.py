"""The sieve: of many lines at once, those that must be read."""

from collections import Counter
from collections.abc import Iterator

from vllm_triage.envelopes import Unwrapper
from vllm_triage.learning import Learner
from vllm_triage.lines import Origin
from vllm_triage.shapes import (
    Known,
    Shape,
    State,
    head_of,
    may_be_idle_talk,
    may_be_quiet,
    numbers_of,
    skeleton_of,
)
from vllm_triage.stretches import Block, Stretch, Summary

_MAX_SHAPES = 16_384
# When a shape is worth learning: what logs say in passing comes again less surely.
_OFTEN = 4
_VERY_OFTEN = 6
_MAX_LOUD = 2_048
_MAX_LOUD_LINE = 512
_MAX_SKELETONS = 1_024

Sifted = list[tuple[int, bytes] | Summary]
"""Of a block's lines, in order, those to be read with their indices, and what the others come to."""


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
        self._seen: dict[bytes, int] = {}
        self._skeletons: dict[bytes, Known] = {}
        self._loud: set[bytes] = set()
        """Shapes that are surely never worth learning."""

    def sift(
        self, block: Block, start: int, stop: int, *, reads_records: bool
    ) -> Iterator[Stretch | int]:
        """Give, in order, the lines from `start` to `stop`: an index to be read, or a stretch that need not be.

        With `reads_records` all logged records are read. When reading a line has taught the
        unwrapper something, what follows must be sifted anew.
        """
        state = self._unwrapper.state
        if state != self._state or len(self._known) > _MAX_SHAPES:
            self._forget()
            self._state = state
            block.counts = None
        at = start
        for index in self._to_read(block, start, stop, reads_records=reads_records):
            if index > at:
                yield Stretch(block, at, index, self._known)
            yield index
            at = index + 1
        if at < stop:
            yield Stretch(block, at, stop, self._known)

    def sift_ahead(self, data: bytes, source: str, *, reads_records: bool) -> tuple[int, Sifted]:
        """How many lines there are in a text without its last line end, and what is to be done with them.

        What was said before need not be known: lines that could go on with it are to be read.
        """
        block = Block(0, data)
        out: Sifted = []
        may_be_open = True
        for piece in self.sift(block, 0, len(block.raw), reads_records=reads_records):
            if not isinstance(piece, Stretch):
                out.append((piece, block.raw[piece]))
                may_be_open = may_be_open or not self._is_window(block, piece)
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

    def _is_window(self, block: Block, index: int) -> bool:
        """Tell a line of statistics, which ends no message and begins none."""
        known = self._known.get(block.shapes[index])
        return known is not None and known.origin is Origin.STATISTICS

    def _to_read(self, block: Block, start: int, stop: int, *, reads_records: bool) -> list[int]:
        block.windows.clear()
        block.records.clear()
        shapes, raws, windows = block.shapes, block.raw, block.windows
        answers, loud, known = self._answers, self._loud, self._known
        # One byte a line: the rest of the loop sees only the few lines that are no answers.
        some = shapes if stop - start == len(shapes) else shapes[start:stop]
        find = bytes(map(answers.__contains__, some)).find
        out = []
        place = find(0)
        while place >= 0:
            index = start + place
            place = find(0, place + 1)
            shape = shapes[index]
            if shape not in known and shape not in loud:
                if self._is_request(block, index):
                    continue
                self._study(block, index)
            found = known.get(shape)
            if found is None:
                out.append(index)
            elif found.window is not None:
                state, steady = found.window.look(raws[index])
                if state is State.ASKED:
                    out.append(index)
                else:
                    windows.append((index, state, steady))
            elif found.origin is Origin.LOG:
                if reads_records:
                    out.append(index)
                else:
                    block.records.append(index)
        return out

    def _is_request(self, block: Block, index: int) -> bool:
        mapped = block.shapes[index]
        for size in self._sizes:
            head = mapped[:size]
            if head in self._known:
                if _may_be_several(block.raw[index]):
                    return False
                block.shapes[index] = head
                return True
        return False

    def _study(self, block: Block, index: int) -> None:
        """Learn the shape of a line when it comes a few times."""
        mapped, raw = block.shapes[index], block.raw[index]
        head = None if may_be_quiet(mapped) else head_of(mapped)
        if head is not None:
            if self._comes(head, 1, _OFTEN):
                shape = self._learner.learn_head(raw, self._unwrapper)
                if shape is not None:
                    self._known[head] = shape
                    self._sizes = tuple(sorted({*self._sizes, len(head)}))
            return
        often = _OFTEN if may_be_quiet(mapped) else _VERY_OFTEN if may_be_idle_talk(mapped) else 0
        if often:
            if block.counts is None:
                block.counts = Counter(block.shapes)
            if not self._comes(mapped, block.counts.pop(mapped, 0), often):
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

    def _comes(self, mapped: bytes, times: int, often: int) -> bool:
        """Count that it comes so many times more; whether that now is often."""
        before = self._seen.get(mapped, 0)
        if not before and len(self._seen) >= _MAX_SHAPES:
            self._seen.clear()
        self._seen[mapped] = before + times
        return before < often <= before + times


def _may_be_several(raw: bytes) -> bool:
    """Tell a line that may be several in one; single bytes are found much faster than two."""
    return (
        (b"\r" in raw and b"\r" in raw.removesuffix(b"\r"))
        or (b"%" in raw and b"%|" in raw)
        or (b"#" in raw and b"#012" in raw)
    )
