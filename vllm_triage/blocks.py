"""Blocks: many lines at once on their road, most of them not read one by one."""

from collections.abc import Callable, Iterable

from vllm_triage.envelopes import Unwrapper
from vllm_triage.express import Express
from vllm_triage.quiet import Quiet
from vllm_triage.run import Run
from vllm_triage.sieve import Sieve, Sifted
from vllm_triage.sources import BLANK, decoded
from vllm_triage.stretches import Block, Stretch, Summary


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
        read: Callable[[int, str], None],
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

    @property
    def learnt(self) -> object:
        """What sifting depends on; None while nothing can be told of lines before those ahead of them are read."""
        state = self._unwrapper.state
        return None if state is None else (state, self._quiet.reads_records)

    def feed(self, first: int, data: bytes) -> None:
        """Take whole lines, without the last line end, of which the first has this number."""
        block = Block.of(first, data)
        at, end = 0, len(block.raw)
        while at < end:
            learnt = self.learnt
            if learnt is None:
                self._line(first + at, block.raw[at])
                at += 1
                continue
            reads_records = self._quiet.reads_records
            for piece in self._sieve.sift(block, at, reads_records=reads_records):
                if isinstance(piece, Stretch):
                    self._skip(piece)
                    at = piece.stop
                    continue
                at = piece + 1
                if self._line(first + piece, block.raw[piece]) and self.learnt != learnt:
                    break

    def sift(self, data: bytes) -> tuple[int, Sifted]:
        """Tell which lines of a text far ahead must be read; it may run in another process."""
        return self._sieve.sift_ahead(data, self._source, reads_records=self._quiet.reads_records)

    def feed_sifted(self, first: int, found: Sifted, data: Callable[[], bytes]) -> None:
        """Take what `sift` told of lines of which the first has this number; `data` gives the lines."""
        learnt = self.learnt
        for piece in found:
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

    def _line(self, number: int, raw: bytes) -> bool:
        """Take a line by itself; True when it was read, and so may have taught something."""
        if self._express.take(number, raw):
            self._after_blank = False
            self._passed(number, ())
            return False
        is_blank = raw in BLANK
        if is_blank and self._after_blank:
            # A run of blank lines says no more than one.
            self._passed(number, ())
            return False
        self._after_blank = is_blank
        self._read(number, decoded(raw))
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
