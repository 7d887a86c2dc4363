"""The loop: bytes from one descriptor to another through a filter, until the end or a signal."""

import contextlib
import errno
import os
import select
import signal
import time
from collections import deque
from collections.abc import Iterator

from vllm_triage.errors import SourceError
from vllm_triage.stream import Filter

_CHUNK = 65536
# What may still be read after SIGTERM: no more than a pipe holds.
_LAST = 1_048_576
# What may be handed on before it is looked at, and how much is looked at between two reads.
_MAX_BEHIND = 8_388_608
_MIN_SLICE = 4096
# When so much waits that nothing is read any more, larger pieces cost less.
_FULL_SLICE = 1_048_576
# How long looking may keep a line that comes meanwhile.
_TURN_S = 0.0008


class Loop:
    """Runs a filter between two descriptors.

    Text is written as soon as it is read; it is looked at while no more is there to read, or
    when 8 MiB wait for it. So a line never waits for the analysis, and memory is bounded.
    SIGTERM, SIGINT and SIGHUP end the loop as the end of input does, after what the pipe still holds.
    Whatever ends it, what the lines told is told. Raises BrokenPipeError when the reader has
    gone, OSError when the output cannot be written, SourceError when the input cannot be read.
    """

    def __init__(self, stream: Filter, source: int, target: int, *, idle_s: float = 2.0) -> None:
        self._filter = stream
        self._in = source
        self._out = target
        self._tick_s = max(0.05, idle_s / 2)
        self._ticked = 0.0
        self.signal: int | None = None
        """The signal that ended it."""
        self._problem: OSError | None = None
        self._is_at_line_end = True
        self._aside: list[bytes] = []
        self._behind: deque[tuple[bytes, float]] = deque()
        self._size_behind = 0
        self._slice = _MIN_SLICE

    def aside(self, line: bytes) -> None:
        """Write a whole line of our own between two lines of the stream."""
        self._aside.append(line)

    def run(self) -> None:
        """Run until the end of input or a signal."""
        with wakeup() as waker:
            try:
                self._follow(waker)
                if self.signal is not None:
                    self._drain()
            finally:
                # Also when the output has failed: the incidents may go elsewhere.
                while self._behind:
                    self._look()
                rest = self._filter.close()
            self._write(rest)
            self._write_aside(is_end=True)
        if self._problem is not None:
            reason = self._problem.strerror or self._problem
            message = f"<stdin>: cannot be read: {reason}; pipe a log into it"
            raise SourceError(message)

    def _follow(self, waker: int) -> None:
        while True:
            wait_s = 0.0 if self._behind else self._tick_s
            ready, _, _ = select.select([self._in, waker], [], [], wait_s)
            if waker in ready:
                self.signal = os.read(waker, 1)[0]
                return
            if self._in in ready and self._size_behind < _MAX_BEHIND:
                if not self._step():
                    return
            elif self._behind:
                self._look()
                self._write_aside()
            if not self._behind:
                self._tick()

    def _step(self) -> bool:
        """Read once and hand on; False at the end."""
        try:
            data = os.read(self._in, _CHUNK)
        except BlockingIOError:
            return True
        except OSError as error:
            # A terminal that went away has ended.
            self._problem = None if error.errno == errno.EIO else error
            return False
        if not data:
            return False
        now = time.monotonic()
        self._behind.append((data, now))
        self._size_behind += len(data)
        self._write(self._filter.pass_on(data))
        while self._behind and not self._filter.passes_first:
            self._write(self._look())
        self._write_aside()
        return True

    def _look(self) -> bytes:
        """Look at some of what waits; at as much as can be looked at in a moment."""
        is_full = self._size_behind >= _MAX_BEHIND
        data, at = self._behind.popleft()
        if is_full:
            pieces = [data]
            size = len(data)
            while self._behind and size < _FULL_SLICE:
                data, at = self._behind.popleft()
                pieces.append(data)
                size += len(data)
            data = b"".join(pieces)
        elif len(data) > self._slice:
            self._behind.appendleft((data[self._slice :], at))
            data = data[: self._slice]
        self._size_behind -= len(data)
        before = time.perf_counter()
        out = self._filter.feed(data, at)
        took_s = time.perf_counter() - before
        if is_full:
            return out
        if took_s > _TURN_S:
            self._slice = max(_MIN_SLICE, self._slice // 2)
        elif took_s < _TURN_S / 4:
            self._slice = min(_CHUNK, self._slice * 2)
        return out

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked >= self._tick_s:
            self._ticked = now
            self._filter.tick(now)
            self._write_aside()

    def _drain(self) -> None:
        for _ in range(_LAST // _CHUNK):
            if not select.select([self._in], [], [], 0)[0] or not self._step():
                return

    def _write_aside(self, *, is_end: bool = False) -> None:
        if not self._aside or not (self._is_at_line_end or is_end):
            return
        lines, self._aside = self._aside, []
        self._write((b"" if self._is_at_line_end else b"\n") + b"".join(lines))

    def _write(self, data: bytes) -> None:
        if not data:
            return
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._out, view) :]
            except BlockingIOError:
                select.select([], [self._out], [])
        self._is_at_line_end = data.endswith(b"\n")


@contextlib.contextmanager
def wakeup() -> Iterator[int]:
    """A descriptor on which SIGTERM, SIGINT and, unless nohup ignores it, SIGHUP can be read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {
        number: signal.signal(number, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if number != signal.SIGHUP or signal.getsignal(number) is signal.SIG_DFL
    }
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(reader)
        os.close(writer)
