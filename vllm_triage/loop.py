"""The loop: bytes from one descriptor to another through a filter, until the end or a signal."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator

from vllm_triage.stream import Filter

_CHUNK = 65536
# What may still be read after SIGTERM: no more than a pipe holds.
_LAST = 1_048_576


class Loop:
    """Runs a filter between two descriptors.

    What is read is written before it is looked at, so a line never waits for its own analysis.
    SIGTERM and SIGINT end the loop as the end of input does, after what the pipe still holds.
    Raises BrokenPipeError when the reader has gone, OSError when the output cannot be written.
    """

    def __init__(self, stream: Filter, source: int, target: int, *, idle_s: float = 2.0) -> None:
        self._filter = stream
        self._in = source
        self._out = target
        self._tick_s = max(0.05, idle_s / 2)
        self._ticked = 0.0
        self.signal: int | None = None
        """The signal that ended it."""
        self._is_at_line_end = True
        self._aside: list[bytes] = []

    def aside(self, line: bytes) -> None:
        """Write a whole line of our own between two lines of the stream."""
        self._aside.append(line)

    def run(self) -> None:
        """Run until the end of input or a signal."""
        with _wakeup() as waker:
            while self.signal is None:
                ready, _, _ = select.select([self._in, waker], [], [], self._tick_s)
                if waker in ready:
                    self.signal = os.read(waker, 1)[0]
                    break
                if self._in in ready and not self._step():
                    break
                self._tick()
            if self.signal is not None:
                self._drain()
            rest = self._filter.close()
        self._write(rest)
        self._write_aside(is_end=True)

    def _step(self) -> bool:
        data = os.read(self._in, _CHUNK)
        if not data:
            return False
        self._write(self._filter.pass_on(data))
        self._write(self._filter.feed(data, time.monotonic()))
        self._write_aside()
        return True

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
def _wakeup() -> Iterator[int]:
    """A descriptor on which SIGTERM and SIGINT can be read while it is open."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {
        number: signal.signal(number, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        os.close(reader)
        os.close(writer)
