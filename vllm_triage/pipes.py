"""Following what journalctl, docker and kubectl print."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence

from vllm_triage.errors import SourceError
from vllm_triage.expressions import expression
from vllm_triage.follow import Piece
from vllm_triage.reports.records import unix_nano
from vllm_triage.sources import MAX_LINE

# How much of the past is read for what it says of the run.
PAST_LINES = 100_000
_CHUNK = 65_536
_PER_POLL = 1_048_576
_QUIET_S = 2.0
_END_S = 2.0

_JOURNAL_TIME = expression(rb'"__REALTIME_TIMESTAMP"\s*:\s*"(\d{16})"')
_TIME = expression(rb"(?:\[[^\]]{1,300}\] )?(\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)) ")


class Pipe:
    """What a command prints, until it ends.

    Lines with a time before `start_ns` (nanoseconds since 1970) are the past; so is nothing any
    more after the first later one, or when the command was silent for two seconds.
    Raises SourceError when the command is not there.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        say: Callable[[str], None],
        *,
        start_ns: int,
        has_mixed_streams: bool = False,
    ) -> None:
        self.name = name
        self.is_over = False
        self.status: int | None = None
        """The command's exit status when it has ended."""
        self._command = command[0]
        self._say = say
        self._start_ns = start_ns
        self._is_past = True
        self._rest = b""
        self._last = b""
        self._read_at: float | None = None
        if shutil.which(command[0]) is None:
            message = f"{command[0]}: is not installed on this machine or not on the PATH; run it where it is, or watch a file"
            raise SourceError(message)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # docker gives a container's standard error as its own.
            stderr=subprocess.STDOUT if has_mixed_streams else None,
            # Ctrl-C is for the watch, which ends it.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._stream = self._process.stdout
        self.file = self._stream.fileno()
        """Readable when it has printed something."""
        self._has_mixed_streams = has_mixed_streams
        os.set_blocking(self.file, False)

    def poll(self, now: float) -> Iterator[Piece]:
        """Give what it has printed, a bounded part of it."""
        self._read_at = now if self._read_at is None else self._read_at
        left = _PER_POLL
        while left > 0 and not self.is_over:
            try:
                data = os.read(self.file, _CHUNK)
            except BlockingIOError:
                break
            left -= len(data)
            if not data:
                yield from self._ended()
                return
            self._read_at = now
            if self._has_mixed_streams:
                self._last = (self._last + data)[-1000:]
            yield from self._dated(data) if self._is_past else (Piece(data),)
        if self._is_past and now - self._read_at >= _QUIET_S:
            yield from self._end_past()

    def _dated(self, data: bytes) -> Iterator[Piece]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for number, line in enumerate(lines):
            moment = self._time(line)
            if moment is not None and moment >= self._start_ns:
                rest = b"\n".join([*lines[number:], self._rest])
                self._rest = b""
                yield from self._past(lines[:number])
                yield from self._end_past()
                yield Piece(rest)
                return
        yield from self._past(lines)
        if len(self._rest) > MAX_LINE:
            yield Piece(self._rest, is_past=True)
            self._rest = b""

    @staticmethod
    def _past(lines: Sequence[bytes]) -> Iterator[Piece]:
        if lines:
            yield Piece(b"\n".join(lines) + b"\n", is_past=True)

    def _end_past(self) -> Iterator[Piece]:
        self._is_past = False
        yield Piece(ends_past=True)
        if self._rest:
            yield Piece(self._rest)
            self._rest = b""

    @staticmethod
    def _time(line: bytes) -> int | None:
        found = _JOURNAL_TIME.search(line) if line[:1] == b"{" else _TIME.match(line)
        return unix_nano(found[1].decode()) if found is not None else None

    def _ended(self) -> Iterator[Piece]:
        self.is_over = True
        if self._is_past:
            yield from self._end_past()
        self.status = self._wait()
        last = self._last.decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = f": {last}" if self.status and last else ""
        self._say(f"{self.name}: {self._command} ended with status {self.status}{why}")

    def _wait(self) -> int:
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """End the command."""
        self.is_over = True
        if self.status is None:
            with contextlib.suppress(OSError):
                self._process.terminate()
            self.status = self._wait()
        self._stream.close()


def journal(unit: str, say: Callable[[str], None], start_ns: int) -> Pipe:
    """A systemd unit's records."""
    command = ["journalctl", "--follow", "--unit", unit, "--output", "json", "--no-pager",
               "--lines", str(PAST_LINES)]  # fmt: skip
    return Pipe(f"<journal {unit}>", command, say, start_ns=start_ns)


def docker(container: str, say: Callable[[str], None], start_ns: int) -> Pipe:
    """A container's lines."""
    command = ["docker", "logs", "--follow", "--timestamps", "--tail", str(PAST_LINES), container]
    return Pipe(f"<docker {container}>", command, say, start_ns=start_ns, has_mixed_streams=True)


def kube(
    pod: str, say: Callable[[str], None], start_ns: int, *, namespace: str | None = None
) -> Pipe:
    """The lines of a pod's containers."""
    command = ["kubectl", "logs", "--follow", pod, "--all-containers", "--prefix", "--timestamps",
               f"--tail={PAST_LINES}"]  # fmt: skip
    if namespace is not None:
        command.append(f"--namespace={namespace}")
    return Pipe(f"<pod {pod}>", command, say, start_ns=start_ns)
