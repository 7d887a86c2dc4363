"""The filter's memory does not grow with the stream: its structures are counted, not timed."""

import gc
import json
from collections.abc import Iterable, Sized

import pytest

from tests.bench_logs import healthy, pods, processes, restarts
from vllm_triage import Scanner
from vllm_triage.assembler import MAX_HELD, Assembler
from vllm_triage.processes import full
from vllm_triage.stream import Filter, Protocol

SHARED = Scanner()


def sizes(root: object) -> dict[str, int]:
    """How many items the containers below an object hold, by the attribute that holds them.

    What scanners share, the rules, is left out.
    """
    skipped = {id(SHARED.catalogue), id(SHARED._matcher._candidates._gates)}
    seen: set[int] = set()
    found: dict[str, int] = {}
    todo: list[tuple[str, object]] = [("", root)]
    while todo:
        path, one = todo.pop()
        if id(one) in seen or id(one) in skipped or isinstance(one, type | str | bytes):
            continue
        seen.add(id(one))
        if isinstance(one, Sized):
            found[path] = found.get(path, 0) + len(one)
        if isinstance(one, dict):
            todo += [(path + "[]", value) for value in one.values()]
        elif isinstance(one, list | tuple | set) or hasattr(one, "popleft"):
            todo += [(path + "[]", value) for value in list(one)]  # type: ignore[call-overload]
        elif type(one).__module__.startswith("vllm_triage"):
            names = [*getattr(one, "__dict__", ()), *getattr(type(one), "__slots__", ())]
            todo += [(f"{path}.{name}", getattr(one, name, None)) for name in names]
    return found


def grown(rows: Iterable[bytes], protocol: Protocol, first: int) -> dict[str, tuple[int, int]]:
    """What holds over twice as much after all rows as after the first of them."""
    stream = Filter(protocol, scanner=Scanner(like=SHARED, max_runs=64), idle_s=2.0)
    early: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        stream.feed(row, number / 1000)
        if number % 500 == 0:
            stream.tick(number / 1000)
        if number == first:
            early = sizes(stream)
    late = sizes(stream)
    gc.collect()
    return {
        path: (early.get(path, 0), size)
        for path, size in late.items()
        if size > 1_500 and size > 2 * early.get(path, 0)
    }


@pytest.mark.parametrize(
    ("rows", "protocol", "first"),
    [
        (healthy(8_000), Protocol.LINES, 2_000),
        (processes(24_000, 3_000), Protocol.LINES, 6_000),
        (restarts(20_000), Protocol.LINES, 500),
        (pods(8_000, 400), Protocol.JSON, 2_000),
    ],
    ids=["healthy", "processes", "restarts", "pods"],
)
def test_four_times_the_lines_hold_no_more(
    rows: Iterable[bytes], protocol: Protocol, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_triage.stream.MAX_SOURCES", 64)
    monkeypatch.setattr("vllm_triage.stream._MAX_GONE", 100)
    monkeypatch.setattr("vllm_triage.assembler.MAX_PROCESSES", 128)
    monkeypatch.setattr("vllm_triage.collector._MAX_CHAINS", 128)
    monkeypatch.setattr("vllm_triage.collector._MAX_FAILED", 100)
    monkeypatch.setattr("vllm_triage.candidates._MAX_SAID", 32)
    monkeypatch.setattr("vllm_triage.express._MAX_LANES", 16)

    assert grown(rows, protocol, first) == {}


def test_statistics_of_many_processes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_triage.matches._MAX_STREAKS", 100)
    rows = [
        f"(EngineCore_{number} pid={number}) INFO 01-01 00:00:00 [loggers.py:1] Engine 000: Avg prompt "
        "throughput: 0.0 tokens/s, Avg generation throughput: 0.5 tokens/s, Running: 9 reqs, "
        "Waiting: 90 reqs, GPU KV cache usage: 99.9%, Prefix cache hit rate: 0.0%"
        for number in range(2_000)
    ]
    scanner = Scanner(like=SHARED)
    for row in rows:
        list(scanner.feed(row))

    assert 0 < len(scanner._matcher._streaks) <= 100


def test_a_chain_of_exceptions_without_end_is_cut() -> None:
    scanner = Scanner(like=SHARED)
    for number in range(3_000):
        for row in (
            "Traceback (most recent call last):",
            f'  File "/vllm/a.py", line {number}, in f',
            "    f()",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
        ):
            list(scanner.feed(row))

    assert max(map(len, scanner._collector._chains.values()), default=0) <= 256


def test_long_lines_of_many_processes_are_let_go() -> None:
    scanner = Scanner(like=SHARED)
    for number in range(60):
        list(
            scanner.feed(f"(Worker pid={number}) INFO 01-01 00:00:00 [a.py:1] " + "x" * 1_000_000)
        )

    assert scanner.held <= MAX_HELD
    list(scanner.close())
    assert scanner.held == 0


def test_what_is_held_is_counted() -> None:
    """Every character of every open message, and no other."""
    scanner = Scanner(like=SHARED)
    for row in processes(3_000, 50):
        list(scanner.feed(row.decode()))
    assembler: Assembler = scanner._assembler

    held = sum(
        len(line.raw)
        for state in assembler._processes.values()
        for line in (*state.message, *map(full, state.source))
    )
    assert scanner.held == held > 0


def test_sources_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_triage.stream._MAX_HELD", 1_000_000)
    stream = Filter(Protocol.JSON, scanner=Scanner(like=SHARED), source_keys=["pod"])
    for number in range(100):
        record = {"pod": number, "message": "ERROR 01-01 00:00:00 [a.py:1] " + "x" * 50_000}
        stream.feed(json.dumps(record).encode() + b"\n", 0.0)

    assert stream._held <= 1_000_000
    assert stream._held == sum(source.scanner.held for source in stream._sources.values())
