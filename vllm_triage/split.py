"""Large plain files, cut at line ends and sifted by several processes; what is told is the same as by one."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from pathlib import Path
from typing import NamedTuple

from vllm_triage.paths import LARGE_BYTES, shown
from vllm_triage.scanner import Progress, Scanner
from vllm_triage.sieve import Sifted
from vllm_triage.sources import CHUNK, MAX_LINE, Splitter

_CHUNK = 524_288
# What is read alone first: by then the shapes of the log's lines are known.
_LEARNING = 8 * _CHUNK
_PIECE = 4_096
# How many chunks may be sifted before the one that is read.
_AHEAD = 24
_PAUSE_S = 0.001

_Told = tuple[int, Sifted] | None


def can_split() -> bool:
    """Tell whether the system can start processes that know what this one has learnt."""
    return "fork" in multiprocessing.get_all_start_methods()


class Span(NamedTuple):
    """Whole lines of a file, from byte `start` to before byte `stop`."""

    start: int
    stop: int


class SplitFile:
    """A plain file of UTF-8 text that a scanner reads with the help of `jobs` - 1 more processes."""

    def __init__(self, path: Path, jobs: int) -> None:
        self.name = shown(path)
        self._jobs = jobs
        self._file = os.open(path, os.O_RDONLY)
        self._scanner: Scanner
        self._progress: Progress | None = None
        self.problem: str | None = None
        self.lines = 0
        self.truncated_lines = 0
        self.bytes = 0
        """How many bytes have been read."""

    def deliver(self, scanner: Scanner, progress: Progress | None = None) -> None:
        """Have a scanner read the whole file, and what is appended to it meanwhile."""
        self._scanner = scanner
        self._progress = progress
        try:
            self._read()
        except OSError as error:
            self.problem = f"{self.name}: could be read only as far as line {self.lines}: {error.strerror or error}"
        finally:
            os.close(self._file)

    def _read(self) -> None:
        size = os.fstat(self._file).st_size
        is_helped = True
        while is_helped and size - self.bytes >= LARGE_BYTES // 2:
            for span in self._spans(self.bytes, min(size, self.bytes + _LEARNING)):
                self._alone(span)
            spans = list(self._spans(self.bytes, size))
            if not spans:
                break
            # Lines of tracebacks are told sooner than sifted.
            if self._scanner.blocks.learnt is not None and not self._scanner.blocks.is_dense:
                is_helped = self._together(spans)
        self._to_the_end()

    def _spans(self, start: int, size: int) -> Iterator[Span]:
        """Cut at line ends; ends before a line without end and before the last one."""
        while (stop := self._line_end(start + _CHUNK, size)) is not None:
            yield Span(start, stop)
            start = stop

    def _line_end(self, start: int, size: int) -> int | None:
        for place in range(start, min(size, start + 2 * MAX_LINE), _PIECE):
            found = os.pread(self._file, _PIECE, place).find(b"\n")
            if found >= 0:
                return place + found + 1
        return None

    def _data(self, span: Span) -> bytes:
        data = os.pread(self._file, span.stop - span.start, span.start)
        return (data if span.start else data.removeprefix(b"\xef\xbb\xbf")).removesuffix(b"\n")

    def _alone(self, span: Span) -> None:
        for block in _blocks(self._data(span)):
            self._feed(block)
        self._is_at(span.stop)

    def _to_the_end(self) -> None:
        splitter = Splitter()
        while data := os.pread(self._file, CHUNK, self.bytes):
            for block in splitter.blocks(
                data if self.bytes else data.removeprefix(b"\xef\xbb\xbf")
            ):
                self._feed(block)
            self._is_at(self.bytes + len(data))
        for block in splitter.close():
            self._feed(block)

    def _feed(self, block: bytes) -> None:
        if len(block) > MAX_LINE and b"\n" not in block:
            self.truncated_lines += 1
            block = block[:MAX_LINE]
        self._scanner.feed_block(self.lines + 1, block)
        self.lines += block.count(b"\n") + 1

    def _is_at(self, offset: int) -> None:
        self.bytes = offset
        if self._progress is not None:
            self._progress(offset)

    def _sift(self, span: Span) -> _Told:
        data = self._data(span)
        if len(data) > MAX_LINE and max(map(len, data.split(b"\n"))) > MAX_LINE:
            return None
        return self._scanner.blocks.sift(data)

    def _together(self, spans: list[Span]) -> bool:
        """Read spans with help, as long as what is told ahead holds; False when help has failed."""
        learnt = self._scanner.blocks.learnt
        told: dict[int, _Told] = {}
        with _crew(self, spans, self._jobs - 1) as crew:
            for number, span in enumerate(spans):
                crew.position.value = number
                while number not in told:
                    if not crew.take(told):
                        return False
                    if number in told:
                        break
                    mine = crew.claim()
                    if mine is not None and mine < len(spans):
                        told[mine] = self._sift(spans[mine])
                    elif crew.connections:
                        crew.wait()
                    else:
                        told[number] = self._sift(span)
                self._take(span, told.pop(number))
                if self._scanner.blocks.learnt != learnt or self._scanner.blocks.is_dense:
                    break
        return True

    def _take(self, span: Span, told: _Told) -> None:
        if told is None:
            self._alone(span)
            return
        lines, found = told
        self._scanner.blocks.feed_sifted(self.lines + 1, found, lambda: self._data(span))
        self.lines += lines
        self._is_at(span.stop)

    def work(self, spans: list[Span], crew: "_Crew", connection: Connection) -> None:
        """Sift spans in a process of its own until none is left."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while (number := crew.claim()) != len(spans):
            if number is None:
                time.sleep(_PAUSE_S)
            else:
                connection.send((number, self._sift(spans[number])))


def _blocks(data: bytes) -> Iterator[bytes]:
    """The lines of a text without its last line end, as they would come from a file read alone."""
    splitter = Splitter()
    for start in range(0, len(data), CHUNK):
        yield from splitter.blocks(data[start : start + CHUNK])
    yield from splitter.blocks(b"\n")


@contextmanager
def _crew(file: SplitFile, spans: list[Span], count: int) -> Iterator["_Crew"]:
    context = multiprocessing.get_context("fork")
    crew = _Crew(context, len(spans))
    processes: list[ForkProcess] = []
    for stream in (sys.stdout, sys.stderr):
        # What is in a buffer would be written by each of them.
        if stream is not None:
            stream.flush()
    try:
        for _ in range(count):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=file.work, args=(spans, crew, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            crew.connections.append(ours)
        yield crew
    finally:
        for process in processes:
            process.kill()
            process.join()
        for connection in crew.connections:
            connection.close()


class _Crew:
    """The other processes, and which span is whose."""

    def __init__(self, context: ForkContext, count: int) -> None:
        self._count = count
        self._next = context.Value("q", 0)
        self.position = context.Value("q", 0, lock=False)
        """The span that is being read."""
        self.connections: list[Connection] = []

    def claim(self) -> int | None:
        """A span that nobody has; their number when none is left, None when it is too early for the next."""
        with self._next.get_lock():
            number = int(self._next.value)
            if number < self._count and number >= self.position.value + _AHEAD:
                return None
            self._next.value = min(number + 1, self._count)
            return number

    def take(self, told: dict[int, _Told]) -> bool:
        """Take what the others have told; False when one of them is gone with work undone."""
        for connection in self.connections:
            try:
                while connection.poll():
                    number, found = connection.recv()
                    told[number] = found
            except EOFError:
                if self._next.value < self._count:
                    return False
                self.connections.remove(connection)
                return self.take(told)
        return True

    def wait(self) -> None:
        """Wait until one of the others has something to tell."""
        wait(self.connections, 1.0)
