"""Hooks: a user's command run for an incident."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import IO

from vllm_triage.errors import SourceError
from vllm_triage.kinds import Severity
from vllm_triage.model import Update
from vllm_triage.reports import ndjson
from vllm_triage.reports.clean import clean
from vllm_triage.templates import counted

_WINDOW_S = 60.0
_MAX_WAITING = 8
_MAX_KNOWN = 1024
_MAX_SHOWN = 500
_POLL_S = 0.05
_CHUNK = 65_536


class Hook:
    """Runs a command once an incident, and again when it turns fatal or is withdrawn.

    The command is split as a shell does and run without one; it gets the incident as JSON on its
    standard input. One runs at a time and at most `most` start in a minute; up to eight incidents
    wait, others are skipped and counted. A command that runs over `timeout_s` is killed with its
    children. What it prints is shown only, in part, when it fails.
    Raises SourceError when it is no command.
    """

    def __init__(
        self,
        command: str,
        warn: Callable[[str], None],
        *,
        most: int = 12,
        timeout_s: float = 30.0,
        render: Callable[[Update], str] = ndjson.line,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = _split(command)
        self._warn = warn
        self._most = most
        self._timeout_s = timeout_s
        self._render = render
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], tuple[bool, bool]] = OrderedDict()
        self._waiting: deque[Update] = deque()
        self._starts: deque[float] = deque(maxlen=most)
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._said = b""
        self._started = 0.0
        self._skipped = 0

    def __call__(self, update: Update) -> None:
        """Run it for this incident now, soon or, when it was run already, not."""
        key = update.evidence[0].source, update.id
        state = update.severity is Severity.FATAL, update.withdrawn
        before = self._known.get(key)
        self._known[key] = state
        self._known.move_to_end(key)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        if before == state or (before is not None and not any(state)):
            return
        if len(self._waiting) >= _MAX_WAITING:
            self._skipped += 1
            if self._skipped == 1:
                self._warn(f"--exec: too many incidents for {self._most} runs a minute; skipping")
            return
        self._waiting.append(update)
        self.tick()

    def tick(self) -> None:
        """Look after the running command and start the next one."""
        now = self._clock()
        if self._process is not None:
            self._drain()
            if self._process.poll() is None:
                if now - self._started < self._timeout_s:
                    return
                self._kill()
                self._failed(f"ran over {self._timeout_s:g} s and was killed")
            self._end()
        if not self._waiting:
            if self._skipped:
                self._warn(
                    f"--exec: {counted(self._skipped, 'incident')} {'was' if self._skipped == 1 else 'were'} skipped"
                )
                self._skipped = 0
            return
        is_full = len(self._starts) == self._most and now - self._starts[0] < _WINDOW_S
        if not is_full:
            self._start(self._waiting.popleft(), now)

    def close(self, *, is_hurried: bool = False) -> None:
        """Wait for the running command and, within the limits, run the waiting ones.

        Hurried, after a signal: end at once.
        """
        while self._process is not None or self._waiting:
            if is_hurried:
                break
            if self._process is None and len(self._starts) == self._most:
                break
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_POLL_S)
            self.tick()
        if self._process is not None:
            self._kill()
            self._failed("was killed, as the watch ended")
            self._end()
        self._skipped += len(self._waiting)
        self._waiting.clear()
        if self._skipped:
            self._warn(
                f"--exec: {counted(self._skipped, 'incident')} {'was' if self._skipped == 1 else 'were'} skipped"
            )
            self._skipped = 0

    def _start(self, update: Update, now: float) -> None:
        self._starts.append(now)
        self._started = now
        self._said = b""
        # Not a pipe: a command that does not read must not hold up the watch.
        with tempfile.TemporaryFile() as content:
            content.write(self._render(update).encode() + b"\n")
            content.seek(0)
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=content,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                self._warn(f"--exec: {self._command[0]} cannot be run: {error.strerror}")
                return
        self._output = self._process.stdout
        assert self._output is not None
        os.set_blocking(self._output.fileno(), False)

    def _kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _end(self) -> None:
        assert self._process is not None
        assert self._output is not None
        status = self._process.returncode
        if status > 0:
            self._failed(f"exited with {status}")
        elif status < 0 and status != -signal.SIGKILL:
            self._failed(f"was ended by signal {-status}")
        self._output.close()
        self._process = self._output = None

    def _failed(self, why: str) -> None:
        self._drain()
        said = clean(self._said.decode("utf-8", "replace")).strip()
        self._warn(f"--exec: {self._command[0]} {why}" + (f": {said}" if said else ""))

    def _drain(self) -> None:
        """Keep the beginning of what it prints and lose the rest, so that it never waits for a reader."""
        assert self._output is not None
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._output.fileno(), _CHUNK):
                self._said += data[: _MAX_SHOWN - len(self._said)]


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        message = f"--exec {command}: {str(error).lower()}; quote it as for a shell"
        raise SourceError(message) from None
    if not words or shutil.which(words[0]) is None:
        message = f"--exec {command}: no such command; give one on the PATH, or a script's path"
        raise SourceError(message)
    return words
