"""Commands timed in pairs, and what a line or a stream takes through a command."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

_CHILD = Path(__file__).parent / "bench_child.py"


class Command(NamedTuple):
    """A command, and the exit codes with which it did its work."""

    argv: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    locale: str | None = None


class Took(NamedTuple):
    """What one run of a command took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def took(command: Command) -> Took:
    """Run a command once. Raises RuntimeError with its last words when it fails."""
    with tempfile.NamedTemporaryFile() as errors:
        done = subprocess.run(
            (sys.executable, "-I", "-S", str(_CHILD), errors.name, *command.argv),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **({"LC_ALL": command.locale} if command.locale else {})},
        )
        wall, cpu, peak, code = done.stdout.split()
        if int(code) not in command.codes:
            words = errors.read().decode("utf-8", "replace").strip()[-500:]
            message = f"{' '.join(command.argv)} ended with {code}: {words}"
            raise RuntimeError(message)
    return Took(float(wall), float(cpu), int(peak))


def in_turn(commands: Sequence[Command], rounds: int, *, warm: bool = True) -> list[list[Took]]:
    """Run commands in turn, A B A B, each once to warm up and then `rounds` times; the runs of each."""
    if warm:
        for command in commands:
            took(command)
    every = [[took(command) for command in commands] for _ in range(rounds)]
    return [list(one) for one in zip(*every, strict=True)]


class Stream:
    """A command between two pipes, with a reader, fed by us."""

    def __init__(self, command: tuple[str, ...], *, is_read: bool = True) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.target = self.process.stdin.fileno()
        self.source = self.process.stdout.fileno()
        self.written = 0
        self.passed = 0
        self._thread = threading.Thread(target=self._drain, daemon=True)
        if is_read:
            self._thread.start()

    def _drain(self) -> None:
        while data := os.read(self.source, 1_048_576):
            self.passed += len(data)

    def write(self, data: bytes) -> None:
        self.written += len(data)
        while data:
            data = data[os.write(self.target, data) :]

    def rss(self) -> int:
        """Resident memory in bytes."""
        text = Path(f"/proc/{self.process.pid}/statm").read_text("ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """Seconds of processors used."""
        after_name = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(")")[2]
        return sum(map(int, after_name.split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        if self._thread.is_alive():
            self._thread.join()
        self.process.wait()
        self.process.stdout.close()


def throughput(command: tuple[str, ...], data: bytes) -> float:
    """Bytes a second through a command that is up, in writes of 64 KiB, until the last was handed on."""
    run = Stream(command)
    first = b"INFO: up\n"
    run.write(first)
    while run.passed < len(first):
        time.sleep(0.01)
    start = time.perf_counter()
    view = memoryview(data)
    while view:
        view = view[os.write(run.target, view[:65536]) :]
    while run.passed < len(first) + len(data):
        time.sleep(0.0005)
    seconds = time.perf_counter() - start
    run.end()
    return len(data) / seconds


def latency(command: tuple[str, ...], rows: Sequence[bytes], pause_s: float) -> list[float]:
    """Seconds from writing a line to having read it, a line at a time, shortest first."""
    run = Stream(command, is_read=False)
    run.write(b"INFO: up\n")
    os.read(run.source, 64)
    found = []
    for row in rows:
        start = time.perf_counter()
        run.write(row)
        left = len(row)
        while left:
            left -= len(os.read(run.source, left))
        found.append(time.perf_counter() - start)
        time.sleep(pause_s)
    run.end()
    return sorted(found)


def growth(command: tuple[str, ...], rows: Iterable[bytes], lines: int) -> tuple[int, int]:
    """Bytes resident after a tenth of so many lines and after all."""
    run = Stream(command)
    found = []
    batch: list[bytes] = []
    for number, row in enumerate(rows, 1):
        batch.append(row)
        if len(batch) == 500 or number in (lines // 10, lines):
            run.write(b"".join(batch))
            batch = []
        if number in (lines // 10, lines):
            _settle(run)
            found.append(run.rss())
    run.end()
    return found[0], found[-1]


def _settle(run: Stream) -> None:
    """Until all was handed on and the command has nothing left to do."""
    used = -1.0
    while run.passed < run.written or run.cpu_s() > used + 0.02:
        used = run.cpu_s()
        time.sleep(0.3)
