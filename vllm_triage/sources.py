"""Sources: files, folders, globs and standard input as physical lines in bounded memory."""

import codecs
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from vllm_triage.errors import SourceError
from vllm_triage.paths import MAGIC, SNIFF, is_binary, shown

CHUNK = 262_144
MAX_LINE = 1_048_576
HEAD = 65_536
"""Of how many bytes `head` gives the text."""
_MAX_XZ = 134_217_728
"""How much memory unpacking may take; what `xz -9` packs takes half of it."""
STDIN = "<stdin>"
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_ZSTD = ("compression.zstd", "backports.zstd")
BLANK = (b"", b"\r")
"""Lines without text."""


class Splitter:
    """Cuts chunks into whole lines; of a line over `MAX_LINE` bytes the rest is lost."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_cut = False

    def blocks(self, chunk: bytes) -> Iterator[bytes]:
        """Take a chunk; give the lines that it ends, without the last LF.

        A huge line is given alone, as soon as it is known to be huge.
        """
        end = chunk.rfind(b"\n")
        if end < 0:
            if not self._is_cut:
                self._rest += chunk
                yield from self._huge()
            return
        start = 0
        if self._is_cut:
            start = chunk.index(b"\n") + 1
            self._is_cut = False
        elif self._rest:
            first = chunk.index(b"\n")
            if len(self._rest) + first > MAX_LINE:
                yield self._rest + chunk[:first]
                self._rest, start = b"", first + 1
        if start <= end:
            yield self._rest + chunk[start:end]
            self._rest = b""
        self._rest = chunk[end + 1 :]
        yield from self._huge()

    def _huge(self) -> Iterator[bytes]:
        if len(self._rest) > MAX_LINE:
            yield self._rest
            self._is_cut, self._rest = True, b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take a chunk; give the lines that it ends, one by one."""
        for block in self.blocks(chunk):
            yield from block.split(b"\n")

    def close(self) -> Iterator[bytes]:
        """Give a last line without LF."""
        if self._rest and not self._is_cut:
            yield self._rest
        self._rest = b""


def decoded(data: bytes) -> str:
    """A line's text, without NUL; bytes that are no UTF-8 are replaced."""
    text = data[:MAX_LINE].decode("utf-8", "replace")
    return text.replace("\x00", "") if "\x00" in text else text


class Taker(Protocol):
    """What takes lines."""

    def feed_block(self, first: int, data: bytes) -> None:
        """Take whole lines, without the last line end, of which the first has this number."""


class Reader:
    """The physical lines of one input, numbered from 1 as LF counts them.

    A line over 1 MiB is cut and counted. What cannot be read further ends the lines and
    sets `problem` to one sentence. Raises SourceError when nothing can be read at all.
    """

    def __init__(self, path: Path | None, *, stream: IO[bytes] | None = None) -> None:
        self.name = STDIN if path is None else shown(path)
        self.is_split_at_nul = False
        """Whether its iterator gives what NUL ends as lines of their own, as in `/proc/PID/environ`."""
        self.lines = 0
        self.bytes = 0
        self.truncated_lines = 0
        self.is_open = False
        """Whether the last line, once it was read, had no end: the file may be cut off."""
        self.problem: str | None = None
        self._is_packed = False
        self._raw = stream if stream is not None else _open(path)
        self._chunks = self._read()
        try:
            self._first = next(self._chunks, b"")
        except OSError as error:
            self._raw.close()
            message = f"{self.name}: cannot be read: {error.strerror or error}; name a text log"
            raise SourceError(message) from None
        if is_binary(self._first[:SNIFF]):
            self._raw.close()
            message = f"{self.name}: looks like a binary file, not a log; name the text log, or its .gz, .bz2, .xz or .zst"
            raise SourceError(message)

    def _read(self) -> Iterator[bytes]:
        head = self._some(self._raw)
        self._is_packed = any(head.startswith(magic) for magic, _ in MAGIC)
        try:
            stream = _decompressed(head, self._raw, self.name)
        except SourceError:
            self._raw.close()
            raise
        while True:
            try:
                chunk = self._some(stream)
            except _broken() as error:
                reason = (
                    error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                )
                self.problem = f"{self.name}: could be read only as far as line {self.lines + 1}: {reason or type(error).__name__}"
                return
            if not chunk:
                return
            self.bytes += len(chunk)
            yield chunk

    @staticmethod
    def _some(stream: IO[bytes]) -> bytes:
        read1 = getattr(stream, "read1", None)
        data = read1(CHUNK) if read1 is not None else stream.read(CHUNK)
        return data or b""

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """The lines in runs, each with the number of its first and without its last LF."""
        try:
            yield from self._split()
        finally:
            if sys.stdin is None or self._raw is not sys.stdin.buffer:
                self._raw.close()

    def deliver(self, taker: Taker, progress: Callable[[int], None] | None = None) -> None:
        """Give all lines to a taker."""
        for first, data in self.blocks():
            taker.feed_block(first, data)
            if progress is not None:
                progress(self.bytes)

    @property
    def is_plain(self) -> bool:
        """Whether the file is UTF-8 text as it lies there."""
        return not self._first.startswith(tuple(bom for bom, _ in _BOMS)) and not self._is_packed

    @property
    def head(self) -> str:
        """The text that it begins with."""
        encoding = next((name for bom, name in _BOMS if self._first.startswith(bom)), "utf-8")
        return self._first[:HEAD].decode(encoding, "replace")

    def close(self) -> None:
        """Close the file unread."""
        self._raw.close()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for first, data in self.blocks():
            for number, line in enumerate(data.split(b"\n"), first):
                for part in line.split(b"\0") if self.is_split_at_nul else (line,):
                    yield number, decoded(part)

    def _split(self) -> Iterator[tuple[int, bytes]]:
        encoding = next((name for bom, name in _BOMS if self._first.startswith(bom)), None)
        chunks = self._all()
        if encoding:
            chunks = _recoded(chunks, encoding)
        splitter = Splitter()
        for chunk in chunks:
            for block in splitter.blocks(chunk):
                yield self._block(block)
        for block in splitter.close():
            self.is_open = True
            yield self._block(block)

    def _all(self) -> Iterator[bytes]:
        if self._first:
            yield self._first.removeprefix(b"\xef\xbb\xbf")
        yield from self._chunks

    def _block(self, data: bytes) -> tuple[int, bytes]:
        first = self.lines + 1
        self.lines += data.count(b"\n") + 1
        if len(data) > MAX_LINE and b"\n" not in data:
            self.truncated_lines += 1
            data = data[:MAX_LINE]
        return first, data


def _open(path: Path | None) -> IO[bytes]:
    if path is None:
        if sys.stdin is None:
            message = f"{STDIN}: is closed; name a log file"
            raise SourceError(message)
        return sys.stdin.buffer
    try:
        return path.open("rb")
    except OSError as error:
        message = (
            f"{shown(path)}: cannot be read: {error.strerror or error}; check its permissions"
        )
        raise SourceError(message) from None


class _Joined(io.RawIOBase):
    """Bytes already read, then the rest of a stream that cannot seek."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        data = self._head or Reader._some(self._rest)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        self._head = data[count:]
        return count


class _Xz(io.RawIOBase):
    """The text of an xz file; one that would take much memory is refused, as a log never does."""

    def __init__(self, packed: IO[bytes]) -> None:
        import lzma

        self._packed = packed
        self._error = lzma.LZMAError
        self._new = partial(lzma.LZMADecompressor, memlimit=_MAX_XZ)
        self._unpacker = self._new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        while True:
            if self._unpacker.eof:
                # Files that were put together, which zero bytes may fill up.
                rest = self._unpacker.unused_data.lstrip(b"\0") or self._more().lstrip(b"\0")
                if not rest:
                    return 0
                self._unpacker = self._new()
            elif self._unpacker.needs_input:
                rest = self._more()
                if not rest:
                    message = "Compressed file ended before the end-of-stream marker was reached"
                    raise EOFError(message)
            else:
                rest = b""
            data = self._unpacked(rest, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)

    def _unpacked(self, packed: bytes, size: int) -> bytes:
        try:
            return self._unpacker.decompress(packed, size)
        except self._error as error:
            if "Memory usage limit" not in str(error):
                raise
            message = (
                "unpacking it takes over 128 MiB of memory; pipe it: xz -dc FILE | vllm-triage"
            )
            raise OSError(message) from None

    def _more(self) -> bytes:
        return Reader._some(self._packed)


def _broken() -> tuple[type[Exception], ...]:
    """What reading raises where a file is cut off or damaged."""
    import lzma
    import zlib

    zstd = [sys.modules[name].ZstdError for name in _ZSTD if name in sys.modules]
    return EOFError, OSError, zlib.error, lzma.LZMAError, *zstd


def _decompressed(head: bytes, rest: IO[bytes], name: str) -> IO[bytes]:
    joined = io.BufferedReader(_Joined(head, rest), CHUNK)
    kind = next((kind for magic, kind in MAGIC if head.startswith(magic)), None)
    if kind == "gzip":
        import gzip

        return gzip.GzipFile(fileobj=joined)  # type: ignore[return-value]
    if kind == "bzip2":
        import bz2

        return bz2.BZ2File(joined)
    if kind == "xz":
        return io.BufferedReader(_Xz(joined), CHUNK)
    if kind == "zstd":
        return _zstd(joined, name)
    return joined


def _zstd(stream: IO[bytes], name: str) -> IO[bytes]:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        try:
            from backports import zstd  # type: ignore[import-not-found,unused-ignore,no-redef]
        except ImportError:
            message = f'{name}: is zstd-compressed; install the reader with: pip install "vllm-triage[zst]"'
            raise SourceError(message) from None
    opened: IO[bytes] = zstd.ZstdFile(stream)
    return opened


def _recoded(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", True).encode("utf-8", "replace")
