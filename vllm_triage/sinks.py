"""Sinks: where the incidents of a stream go."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from vllm_triage.errors import SourceError
from vllm_triage.model import Update
from vllm_triage.reports import ndjson

Warn = Callable[[str], None]


class FileSink:
    """Appends each incident to a file as one NDJSON line, in one write.

    A file that was rotated away is opened anew. What cannot be written is counted and
    warned of once, until writing works again. Raises SourceError when the file cannot be opened at first.
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
            message = (
                f"{path}: cannot be written: {error.strerror}; choose another file for --incidents"
            )
            raise SourceError(message) from None

    def __call__(self, update: Update) -> None:
        """Write one incident."""
        line = (self._render(update) + "\n").encode()
        try:
            file = self._current()
            written = os.write(file, line)
            if written < len(line):
                # A torn line would join the next one.
                os.ftruncate(file, os.fstat(file).st_size - written)
                raise OSError(28, os.strerror(28))  # noqa: TRY301
        except OSError as error:
            self._lost += 1
            if self._lost == 1:
                self._warn(
                    f"{self._path}: incidents cannot be written: {error.strerror}; the log goes on"
                )
            return
        if self._lost:
            self._warn(f"{self._path}: can be written again; {self._lost} incidents were lost")
            self._lost = 0

    def _open(self) -> int:
        self._file = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        return self._file

    def _current(self) -> int:
        if self._file is not None:
            try:
                if self._path.stat().st_ino == os.fstat(self._file).st_ino:
                    return self._file
            except FileNotFoundError:
                pass
            self.close()
        return self._open()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def to_stderr(render: Callable[[Update], str] = ndjson.line) -> Callable[[Update], None]:
    """A sink that writes to standard error; when that is closed, nowhere."""

    def tell(update: Update) -> None:
        try:
            sys.stderr.write(render(update) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    return tell
