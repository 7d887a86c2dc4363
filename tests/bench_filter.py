"""What the filter costs: `python -m tests.bench_filter` prints a table; nothing here is a test."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

FILTER = (sys.executable, "-m", "vllm_triage", "filter", "--incidents", os.devnull)
CAT = ("cat",)
PROMPT = "Tell me, in three words, why a raven is like a writing desk. "


def healthy(lines: int, seed: int = 1) -> Iterator[bytes]:
    """A server that answers: access lines, statistics, requests, some harmless warnings."""
    chance = random.Random(seed)
    yield b"(APIServer pid=1) INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.10.2\n"
    yield b"(APIServer pid=1) INFO:     Application startup complete.\n"
    for number in range(lines):
        stamp = f"01-01 {number // 36000 % 24:02}:{number // 600 % 60:02}:{number // 10 % 60:02}"
        what = chance.random()
        if what < 0.86:
            row = f'(APIServer pid=1) INFO:     10.0.0.{chance.randrange(250)}:{chance.randrange(60000)} - "POST /v1/completions HTTP/1.1" 200 OK'
        elif what < 0.92:
            row = (
                f"(APIServer pid=1) INFO {stamp} [loggers.py:123] Engine 000: Avg prompt throughput: 52.1 tokens/s, "
                f"Avg generation throughput: {chance.randrange(9000) / 10} tokens/s, Running: 7 reqs, Waiting: 0 reqs, "
                "GPU KV cache usage: 3.1%, Prefix cache hit rate: 51.2%"
            )
        elif what < 0.99:
            row = f"(APIServer pid=1) INFO {stamp} [logger.py:40] Received request cmpl-{number}: prompt: '{PROMPT * chance.randrange(1, 9)}', params: SamplingParams(n=1)"
        else:
            row = f"(APIServer pid=1) WARNING {stamp} [protocol.py:80] The following fields were present in the request but ignored: {{'a{number % 7}'}}"
        yield row.encode() + b"\n"


def processes(lines: int, count: int = 10_000, seed: int = 1) -> Iterator[bytes]:
    """Ten thousand processes that interleave; now and then one dies of a known or an unknown fault."""
    chance = random.Random(seed)
    for number in range(lines):
        pid = chance.randrange(count)
        head = f"(Worker_TP{pid % 8} pid={pid + 2}) "
        stamp = f"01-01 {number // 36000 % 24:02}:{number // 600 % 60:02}:{number // 10 % 60:02}"
        what = chance.random()
        if what < 0.001:
            row = f"ERROR {stamp} [core.py:700] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        elif what < 0.002:
            row = f"ERROR {stamp} [core.py:700] Odd{number}Error: nobody knows this one"
        elif what < 0.05:
            row = f'ERROR {stamp} [core.py:700]   File "/vllm/v1/core.py", line {number % 900}, in step'
        else:
            row = (
                f"INFO {stamp} [core.py:{number % 900}] step {number} took {chance.random():.3f} s"
            )
        yield (head + row + "\n").encode()


def pods(lines: int, count: int = 10_000, seed: int = 1) -> Iterator[bytes]:
    """The same from ten thousand pods, as records."""
    chance = random.Random(seed)
    for row in processes(lines, 8, seed):
        pod = f"pod-{chance.randrange(count)}"
        record = {
            "message": row.decode()[:-1],
            "kubernetes": {"pod_name": pod, "namespace_name": "n"},
        }
        yield json.dumps(record).encode() + b"\n"


def restarts(lines: int, seed: int = 1) -> Iterator[bytes]:
    """A server that crashes and is started again, ten lines a life."""
    del seed
    for number in range(lines // 10):
        stamp = f"01-01 {number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
        api, core = f"(APIServer pid={number * 2 + 1})", f"(EngineCore pid={number * 2 + 2})"
        yield (
            f"{api} INFO {stamp} [api_server.py:1] vLLM API server version 0.10.2\n"
            f"{api} INFO {stamp} [utils.py:1] non-default args: {{'model': 'm/m', 'port': {number % 60000}}}\n"
            f"{core} INFO {stamp} [core.py:1] Initializing a V1 LLM engine (v0.10.2) with config: model='m/m', dtype=torch.bfloat16\n"
            f"{core} ERROR {stamp} [core.py:700] EngineCore failed to start.\n"
            f"{core} ERROR {stamp} [core.py:700] Traceback (most recent call last):\n"
            f'{core} ERROR {stamp} [core.py:700]   File "/vllm/v1/engine/core.py", line 1, in run\n'
            f"{core} ERROR {stamp} [core.py:700] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
            f"{api} ERROR {stamp} [async_llm.py:480] RuntimeError: Engine core initialization failed. See root cause above.\n"
            f"{api} INFO {stamp} [x.py:1] gone\n"
            "\n"
        ).encode()


class Measured:
    """A filter with a reader, fed by us."""

    def __init__(self, command: tuple[str, ...], *, is_read: bool = True) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.target = self.process.stdin.fileno()
        self.source = self.process.stdout.fileno()
        self.passed = 0
        self._thread = threading.Thread(target=self._drain, daemon=True)
        if is_read:
            self._thread.start()

    def _drain(self) -> None:
        while data := os.read(self.source, 1_048_576):
            self.passed += len(data)

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.target, data) :]

    def rss(self) -> int:
        """Resident memory in bytes."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        if self._thread.is_alive():
            self._thread.join()
        self.process.wait()
        self.process.stdout.close()


def memory(make: Callable[[int], Iterator[bytes]], lines: int, *args: str) -> list[int]:
    """Resident memory, in bytes, after a tenth of the lines and after all."""
    run = Measured((*FILTER, *args))
    found = []
    batch: list[bytes] = []
    size = 0
    for number, row in enumerate(make(lines), 1):
        batch.append(row)
        size += len(row)
        if len(batch) == 500:
            run.write(b"".join(batch))
            batch = []
        if number == lines // 10:
            time.sleep(3)
            found.append(run.rss())
    run.write(b"".join(batch))
    time.sleep(3)
    found.append(run.rss())
    run.end()
    return found


def throughput(command: tuple[str, ...], data: bytes) -> tuple[float, float]:
    """Megabytes a second through a command, in 64 KiB writes: until all was handed on, and until it ended."""
    run = Measured(command)
    run.write(b"warm\n")
    while not run.passed:
        time.sleep(0.01)
    start = time.perf_counter()
    view = memoryview(data)
    while view:
        view = view[os.write(run.target, view[:65536]) :]
    while run.passed < len(data) + len(b"warm\n"):
        time.sleep(0.0005)
    passed = time.perf_counter() - start
    run.end()
    ended = time.perf_counter() - start
    return len(data) / 1e6 / passed, len(data) / 1e6 / ended


def latency(command: tuple[str, ...], rows: list[bytes], pause_s: float) -> list[float]:
    """Seconds from writing a line to reading it, a line at a time."""
    run = Measured(command, is_read=False)
    run.write(b"warm\n")
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
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000, help="for memory")
    parser.add_argument("--megabytes", type=int, default=50, help="for throughput")
    options = parser.parse_args()
    data = b"".join(healthy(options.megabytes * 8_500))[: options.megabytes * 1_000_000]
    show("throughput, healthy", "MB/s passed", "of cat", "MB/s looked at")
    base = median(CAT, data)[0]
    show("  cat", f"{base:.0f}", "1", "")
    burst = data[:6_000_000]
    for name, args, some in (
        ("  lines", (), data),
        ("  lines, a burst of 6 MB", (), burst),
        ("  json", ("--protocol", "json"), records(burst)),
    ):
        passed, ended = median((*FILTER, *args), some)
        show(name, f"{passed:.1f}", f"{passed / base:.4f}", f"{ended:.1f}")
    rows = list(healthy(2000, seed=2))[2:]
    show("latency of a line", "median ms", "p99 ms")
    for name, command, lines in (
        ("  cat", CAT, rows),
        ("  lines", FILTER, rows),
        ("  json", (*FILTER, "--protocol", "json"), records(b"".join(rows)).splitlines(True)),
    ):
        found = sorted(latency(command, lines, 0.001))
        show(
            name,
            f"{found[len(found) // 2] * 1e3:.3f}",
            f"{found[int(len(found) * 0.99)] * 1e3:.3f}",
        )
    tenth, whole = options.lines // 10, options.lines
    show("memory", f"MB at {tenth}", f"MB at {whole}")
    for name, make, args in (
        ("  healthy", healthy, ()),
        ("  10,000 processes", processes, ()),
        ("  10,000 pods", pods, ("--protocol", "json")),
        ("  restarts", restarts, ()),
    ):
        first, last = memory(make, whole, *args)
        show(name, f"{first / 1e6:.0f}", f"{last / 1e6:.0f}")


def median(command: tuple[str, ...], data: bytes) -> tuple[float, ...]:
    """Of five runs."""
    return tuple(
        map(statistics.median, zip(*(throughput(command, data) for _ in range(5)), strict=True))
    )


def records(data: bytes) -> bytes:
    """Lines as JSON records."""
    return b"".join(
        json.dumps({"log": row.decode(), "stream": "stderr"}).encode() + b"\n"
        for row in data.splitlines()
    )


def show(*cells: str) -> None:
    print(f"{cells[0]:32}" + "".join(f"{cell:>16}" for cell in cells[1:]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
