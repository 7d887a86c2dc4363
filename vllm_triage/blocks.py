"""Blocks: many lines at once on their road, most of them not read one by one."""

from collections.abc import Callable, Iterable

from vllm_triage.envelopes import Unwrapper
from vllm_triage.express import Express
from vllm_triage.quiet import Quiet
from vllm_triage.run import Run
from vllm_triage.sieve import Sieve, Sifted
from vllm_triage.sources import BLANK
from vllm_triage.stretches import Block, Stretch, Summary

# So many other lines do not tell that a block is not one of tracebacks.
_FEW = 64


def _is_most(part: int, whole: int) -> bool:
    return part * 4 >= whole * 3


class Blocks:
    """Takes the lines of one input, block by block; what is told is the same as line by line.

    `read` takes a line that must be read, with its number; `passed` is told the number of the
    last line that need not be, and the runs that answered requests.
    """

    def __init__(
        self,
        source: str,
        unwrapper: Unwrapper,
        sieve: Sieve,
        quiet: Quiet,
        express: Express,
        *,
        read: Callable[[int, bytes], None],
        passed: Callable[[int, Iterable[Run]], None],
    ) -> None:
        self._source = source
        self._unwrapper = unwrapper
        self._sieve = sieve
        self._quiet = quiet
        self._express = express
        self._read = read
        self._passed = passed
        self._after_blank = False
        self.is_dense = False
        """Whether nearly all lines belong to tracebacks: then none is sifted."""
        self._reach = _FEW
        """How many lines are sifted at once: those that are sifted in vain when a line before them teaches something."""
        self._inner = 0
        """How many lines were inside tracebacks."""

    @property
    def learnt(self) -> object:
        """What sifting depends on; None while nothing can be told of lines before those ahead of them are read."""
        state = self._unwrapper.state
        return None if state is None else (state, self._quiet.reads_records)

    def feed(self, first: int, data: bytes) -> None:
        """Take whole lines, without the last line end, of which the first has this number."""
        raws = data.split(b"\n")
        at, end = self._trace(first, raws), len(raws)
        if at < end:
            self._sifted(first, data, raws, at)

    def _sifted(self, first: int, data: bytes, raws: list[bytes], at: int) -> None:
        """Take the lines from index `at` on, those that must be read one by one."""
        block, end = Block(first, data, raws), len(raws)
        inner, start = self._inner, at
        while at < end:
            learnt = self.learnt
            if learnt is None:
                self._line(first + at, block.raw[at])
                at += 1
                continue
            reads_records = self._quiet.reads_records
            stop = min(end, at + self._reach)
            self._reach *= 2
            for piece in self._sieve.sift(block, at, stop, reads_records=reads_records):
                if isinstance(piece, Stretch):
                    self._skip(piece)
                    at = piece.stop
                    continue
                at = piece + 1
                if self._line(first + piece, block.raw[piece]) and self.learnt != learnt:
                    self._reach = _FEW
                    break
        self.is_dense = _is_most(self._inner - inner, end - start)

    def _trace(self, first: int, raws: list[bytes]) -> int:
        """Take lines one by one while nearly all belong to tracebacks; give the index of the next one."""
        number = first
        others = 0
        rows = enumerate(raws, first)
        while self.is_dense:
            row = self._express.take(number, rows)
            if row is None:
                end = first + len(raws)
                if end > number:
                    self._take_inner(end - 1, end - number)
                return len(raws)
            end, raw = row
            if end > number:
                # Who reads the line that follows is told its number, and so theirs.
                self._inner += end - number
                self._after_blank = False
            self._other(end, raw)
            others += 1
            number = end + 1
            self.is_dense = others <= _FEW or _is_most(number - first - others, number - first)
        return number - first

    def sift(self, data: bytes) -> tuple[int, Sifted]:
        """Tell which lines of a text far ahead must be read; it may run in another process."""
        return self._sieve.sift_ahead(data, self._source, reads_records=self._quiet.reads_records)

    def feed_sifted(self, first: int, found: Sifted, data: Callable[[], bytes]) -> None:
        """Take what `sift` told of lines of which the first has this number; `data` gives the lines."""
        learnt = self.learnt
        inner, end = self._inner, 1
        for piece in found:
            end = piece.stop if isinstance(piece, Summary) else piece[0] + 1
            if isinstance(piece, Summary):
                if self._quiet.may_await(piece):
                    lines = data().split(b"\n")[piece.start : piece.stop]
                    self.feed(first + piece.start, b"\n".join(lines))
                else:
                    self._take(first, piece)
                continue
            index, raw = piece
            if self._line(first + index, raw) and self.learnt != learnt:
                rest = data().split(b"\n")[index + 1 :]
                if rest:
                    self.feed(first + index + 1, b"\n".join(rest))
                return
        self.is_dense = _is_most(self._inner - inner, end)

    def _line(self, number: int, raw: bytes) -> bool:
        """Take a line by itself; True when it was read, and so may have taught something."""
        if self._express.take(number, iter(((number, raw),))) is None:
            self._take_inner(number, 1)
            return False
        return self._other(number, raw)

    def _take_inner(self, number: int, lines: int) -> None:
        """Note that the express has taken the lines up to this one."""
        self._inner += lines
        self._after_blank = False
        self._passed(number, ())

    def _other(self, number: int, raw: bytes) -> bool:
        """Take a line that the express has left; True when it was read."""
        is_blank = raw in BLANK
        if is_blank and self._after_blank and self._unwrapper.state is not None:
            # A run of blank lines says no more than one, unless the first ended a journal's entry.
            self._passed(number, ())
            return False
        self._after_blank = is_blank
        self._read(number, raw)
        return True

    def _skip(self, part: Stretch) -> None:
        """Take lines that show nothing but a server serving."""
        at = part.start
        for index in part.last_records(self._source):
            self._pass(part.part(at, index))
            self._line(part.block.first + index, part.block.raw[index])
            at = index + 1
        self._pass(part.part(at, part.stop))

    def _pass(self, part: Stretch) -> None:
        """Take those that go on with nothing at once, the others one by one."""
        while (index := self._quiet.awaited(part)) is not None:
            self._serve(part.part(part.start, index))
            self._line(part.block.first + index, part.block.raw[index])
            part = part.part(index + 1, part.stop)
        self._serve(part)

    def _serve(self, part: Stretch) -> None:
        if len(part):
            self._take(part.block.first, part.summary(self._source))

    def _take(self, first: int, part: Summary) -> None:
        self._after_blank = False
        self._passed(first + part.stop - 1, self._quiet.serve(first, part))
