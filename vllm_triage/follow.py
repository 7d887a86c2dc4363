"""Following files: what is appended to them, through rotation and truncation, by looking again and again."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from glob import has_magic
from pathlib import Path
from typing import NamedTuple

from vllm_triage.errors import SourceError
from vllm_triage.paths import expand, matched, shown

MAX_FILES = 256
_CHUNK = 65_536
_PER_POLL = 1_048_576
_TAIL = 64
# Of a long past the beginning says what was started, the end what is running.
PAST_HEAD = 4_194_304
PAST_END = 16_777_216
_SKIPPED_PER_POLL = 67_108_864
_RESCAN_S = 2.0
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_COULD_NOT = "cannot be read: {}; check its permissions"

Say = Callable[[str], None]


class Piece(NamedTuple):
    """Some bytes of a log as they came."""

    data: bytes = b""
    is_past: bool = False
    """It was there before anybody followed."""
    ends_past: bool = False
    """What was there before has been read."""
    skipped_lines: int = 0
    """How many line ends of the past stood before this and were only counted."""
    restarts: bool = False
    """It is the beginning of a new file of the same name, or of one that was emptied."""


class Follower:
    """One file, followed by its name as `tail -F` does.

    A file that is renamed or replaced is read to its end, then the new one of its name from the
    start; one that was emptied is read from the start, also when it has grown since. A file that
    is not there is waited for. Of what was there already, over 20 MiB, the middle is only counted,
    unless it is wanted whole (`skips_past`). Nothing here waits or reads a clock: `poll` gives what there is.
    """

    def __init__(
        self, path: Path, say: Say, *, is_new: bool = False, skips_past: bool = True
    ) -> None:
        self.name = shown(path)
        self.path = path
        self.is_over = False
        self.is_gone = False
        """Its name stands for no file, and what it was has been read."""
        self._say = say
        self._file: int | None = None
        self._position = 0
        self._past = 0
        self._skips_past = skips_past
        self._is_replaced = False
        self._tail = b""
        self._problem: str | None = None
        try:
            self._open()
        except FileNotFoundError:
            say(f"{self.name}: is not there yet; waiting for it")
        except OSError as error:
            self._complain(error)
        if self._file is not None and not is_new:
            self._past = os.fstat(self._file).st_size

    @property
    def identity(self) -> tuple[int, int] | None:
        """The open file, whatever its name is now."""
        if self._file is None:
            return None
        found = os.fstat(self._file)
        return found.st_dev, found.st_ino

    def poll(self, now: float) -> Iterator[Piece]:
        """Give what was appended since the last time, a bounded part of it."""
        if self._file is None:
            if not self._appears():
                return
            yield Piece(restarts=True)
        if self._was_emptied():
            self._rewind()
            yield Piece(restarts=True)
        yield from self._read()
        if self._position >= self._end() and self._was_replaced():
            self.close()
            if self._appears():
                yield Piece(restarts=True)
                yield from self._read()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> Iterator[Piece]:
        if self._skips_past and PAST_HEAD <= self._position < self._past - PAST_END:
            yield self._skip()
            return
        left = _PER_POLL
        while left > 0:
            is_past = self._position < self._past
            size = min(_CHUNK, self._past - self._position) if is_past else _CHUNK
            data = self._next(size)
            if not data:
                return
            left -= len(data)
            yield Piece(data, is_past=is_past, ends_past=is_past and self._position >= self._past)

    def _skip(self) -> Piece:
        count = 0
        end = min(self._past - PAST_END, self._position + _SKIPPED_PER_POLL)
        while self._position < end:
            data = self._next(min(_PER_POLL, end - self._position))
            if not data:
                break
            count += data.count(b"\n")
        return Piece(is_past=True, skipped_lines=count)

    def _next(self, size: int) -> bytes:
        assert self._file is not None
        try:
            data = os.read(self._file, size)
        except OSError as error:
            self._complain(error)
            return b""
        self._position += len(data)
        self._tail = (self._tail + data)[-_TAIL:]
        return data

    def _end(self) -> int:
        assert self._file is not None
        return os.fstat(self._file).st_size

    def _was_emptied(self) -> bool:
        assert self._file is not None
        size = self._end()
        if size < self._position:
            return True
        # It may have grown past the old place since: then other bytes stand before it.
        return (
            size > self._position
            and bool(self._tail)
            and os.pread(self._file, len(self._tail), self._position - len(self._tail))
            != self._tail
        )

    def _rewind(self) -> None:
        assert self._file is not None
        try:
            # A writer that goes on at its old place leaves a hole before it.
            self._position = os.lseek(self._file, 0, os.SEEK_DATA)
        except OSError:
            self._position = os.lseek(self._file, 0, os.SEEK_SET)
        self._past, self._tail = 0, b""

    def _was_replaced(self) -> bool:
        """Tell it when it was seen twice: the writer may still end what it had begun."""
        try:
            found = self.path.stat()
        except OSError:
            # Renamed away, and nothing new yet.
            self.is_gone = True
            return False
        self.is_gone = False
        if (found.st_dev, found.st_ino) == self.identity:
            self._is_replaced = False
            return False
        was, self._is_replaced = self._is_replaced, True
        return was

    def _appears(self) -> bool:
        try:
            self._open()
        except FileNotFoundError:
            return False
        except OSError as error:
            self._complain(error)
            return False
        return True

    def _open(self) -> None:
        # A FIFO that nobody writes to must not hold up the others.
        file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            message = f"{self.name}: is no regular file; pipe it into vllm-triage filter"
            raise SourceError(message)
        self._file = file
        self._position = self._past = 0
        self._tail = b""
        self._is_replaced = self.is_gone = False
        self._problem = None

    def _complain(self, error: OSError) -> None:
        text = _COULD_NOT.format(error.strerror or error)
        if text != self._problem:
            self._problem = text
            self._say(f"{self.name}: {text}")


class Files:
    """The files that names, folders and globs stand for, also those that appear later.

    A compressed file and a followed one under its new name after rotation are left alone.
    """

    def __init__(self, names: Sequence[str], say: Say, *, skips_past: bool = True) -> None:
        self._say = say
        self._skips_past = skips_past
        self._patterns = [name for name in names if not _is_plain(name)]
        self._plain = {Path(name) for name in names if _is_plain(name)}
        self._known: set[tuple[int, int]] = set()
        self._gone: set[Path] = set()
        self._scanned: float | None = None
        self._is_full = False
        self.followers: list[Follower] = []
        for path in dict.fromkeys(Path(name) for name in names):
            if path in self._plain and path.suffix in _COMPRESSED:
                say(
                    f"{shown(path)}: is compressed and not followed; vllm-triage {shown(path)} triages it"
                )
            elif path in self._plain:
                self._add(path, is_new=False)
        if not (self.followers or self._patterns):
            message = f"{shown(names[0])}: nothing else to follow; name the log that is written"
            raise SourceError(message)

    def scan(self, now: float) -> None:
        """Look for new files, every two seconds at most."""
        if not self._patterns or (self._scanned is not None and now - self._scanned < _RESCAN_S):
            return
        is_first, self._scanned = self._scanned is None, now
        gone = {one.path for one in self.followers if one.is_gone} - self._plain
        for follower in self.followers:
            # Gone twice in a row: not just between a rename and the new file.
            follower.is_over = follower.path in gone & self._gone
        self._gone = gone
        self.followers = [one for one in self.followers if not one.is_over]
        self._known |= {one.identity for one in self.followers if one.identity is not None}
        names = {one.path for one in self.followers}
        seen = set()
        for path in (path for pattern in self._patterns for path in _matches(pattern)):
            try:
                found = path.stat()
            except OSError:
                continue
            identity = found.st_dev, found.st_ino
            seen.add(identity)
            if path in names or identity in self._known or not stat.S_ISREG(found.st_mode):
                continue
            if path.suffix in _COMPRESSED:
                continue
            self._known.add(identity)
            self._add(path, is_new=not is_first)
        self._known &= seen | {one.identity for one in self.followers if one.identity}
        if is_first and not self.followers:
            self._say(f"{', '.join(self._patterns)}: no file yet; waiting for one")

    def _add(self, path: Path, *, is_new: bool) -> None:
        if len(self.followers) >= MAX_FILES:
            if not self._is_full:
                self._is_full = True
                self._say(
                    f"more than {MAX_FILES} files; {shown(path)} and others are not followed"
                )
            return
        self.followers.append(
            Follower(path, self._say, is_new=is_new, skips_past=self._skips_past)
        )


def _is_plain(name: str) -> bool:
    return not Path(name).is_dir() and (Path(name).exists() or not has_magic(name))


def _matches(pattern: str) -> list[Path]:
    if Path(pattern).is_dir():
        return [path for path in expand([pattern]).paths if path is not None]
    return matched(pattern)
