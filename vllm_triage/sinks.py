"""Sinks: where the incidents of a stream go."""

import contextlib
import errno
import os
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from vllm_triage.errors import SourceError
from vllm_triage.model import Update
from vllm_triage.reports import ndjson
from vllm_triage.templates import counted

Warn = Callable[[str], None]

# What poll() promises to take without waiting, and how long a reader may take to make room.
_PIECE = 4096
_WAIT_S = 0.2


class FileSink:
    """Appends each incident to a file as one NDJSON line, in one write.

    A file that was rotated away is opened anew. What cannot be written is counted and
    warned of once, until writing works again. A FIFO or a device never makes the log wait
    for its reader. Raises SourceError when the file cannot be opened at first.
    """

    def __init__(
        self, path: Path, warn: Warn, render: Callable[[Update], str] = ndjson.line
    ) -> None:
        self._path = path
        self._warn = warn
        self._render = render
        self._lost = 0
        self._file: int | None = None
        try:
            self._open()
        except OSError as error:
            if error.errno == errno.ENXIO:
                # A FIFO that nobody reads yet.
                return
            message = (
                f"{path}: cannot be written: {error.strerror}; choose another file for --incidents"
            )
            raise SourceError(message) from None

    def __call__(self, update: Update) -> None:
        """Write one incident."""
        line = (self._render(update) + "\n").encode()
        try:
            self._put(self._current(), line, is_after_loss=self._lost > 0)
        except OSError as error:
            if error.errno == errno.EPIPE:
                self.close()
            self._lost += 1
            if self._lost == 1:
                self._complain(f"incidents cannot be written: {_reason(error)}; the log goes on")
            return
        if self._lost:
            self._complain(
                f"can be written again; {counted(self._lost, 'incident')} {'was' if self._lost == 1 else 'were'} lost"
            )
            self._lost = 0

    def _complain(self, text: str) -> None:
        self._warn(f"{self._path}: {text}")

    @staticmethod
    def _put(file: int, line: bytes, *, is_after_loss: bool) -> None:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            # What was lost may have been torn.
            _write_all(file, b"\n" + line if is_after_loss else line)
            return
        written = 0
        try:
            while written < len(line):
                written += os.write(file, line[written:])
        except OSError:
            # A torn line would join the next one.
            end = os.lseek(file, 0, os.SEEK_CUR)
            # Where another process has appended since, its line must stay.
            if written and os.fstat(file).st_size == end:
                os.ftruncate(file, end - written)
            raise

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        self._file = os.open(self._path, flags, 0o644)
        return self._file

    def _current(self) -> int:
        if self._file is not None:
            try:
                if os.path.samestat(self._path.stat(), os.fstat(self._file)):
                    return self._file
            except FileNotFoundError:
                pass
            except OSError:
                # The folder cannot be searched any more; the open file still can be written.
                return self._file
            self.close()
        return self._open()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def to_stderr(render: Callable[[Update], str] = ndjson.line) -> Callable[[Update], None]:
    """A sink that writes to standard error; when that is closed or nobody reads it, nowhere."""

    def tell(update: Update) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
            _write_all(sys.stderr.fileno(), (render(update) + "\n").encode())

    return tell


def _reason(error: OSError) -> str:
    if error.errno == errno.ENXIO:
        return "nobody reads the pipe"
    return error.strerror or str(error)


def _write_all(file: int, line: bytes) -> None:
    """Write a line to what may be a pipe, without waiting for a reader that does not read.

    A line that found room for its beginning gets the time to end; it may be torn where it does not.
    """
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    for start in range(0, len(line), _PIECE):
        piece = line[start : start + _PIECE]
        while piece:
            if not poll.poll(_WAIT_S * 1000 if start else 0):
                raise OSError(errno.EAGAIN, "its reader does not read")
            try:
                piece = piece[os.write(file, piece) :]
            except BlockingIOError:
                raise OSError(errno.EAGAIN, "its reader does not read") from None
