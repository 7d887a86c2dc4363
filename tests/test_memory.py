"""The GPU's memory as the log gives it: every wording, one worker's numbers, nothing where nothing is known."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import FIXTURES
from vllm_triage import Incident, MemoryBudget, triage
from vllm_triage.facts import OomFacts, size
from vllm_triage.memory import Memory, budget, measured
from vllm_triage.reports import markdown, text
from vllm_triage.reports.budget import MAX_ROWS, heading, rows

GIB = 1024**3
BANNER = "INFO 05-06 09:10:02 [api_server.py:1043] vLLM API server version 0.10.2"
TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB "
    "of which 1.00 GiB is free."
)


def gib(**sizes: float) -> dict[str, float]:
    return {name: value if name == "utilization" else round(value * GIB) for name, value in sizes.items()}  # fmt: skip


def root(lines: Sequence[str]) -> Incident:
    found = triage(iter(lines)).root
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Loading model weights took 7.1694 GB", gib(weights=7.1694)),
        ("Model loading took 6.0160 GB and 533.851791 seconds", gib(weights=6.016)),
        ("Model loading took 14.9889 GiB and 3.652170 seconds", gib(weights=14.9889)),
        ("Model loading took 12.66 GiB memory and 31.657031 seconds", gib(weights=12.66)),
        (
            "Memory profiling results: total_gpu_memory=139.80GiB initial_memory_usage=2.71GiB peak_torch_memory=2.38GiB"
            " memory_usage_post_profile=2.81GiB non_torch_memory=0.73GiB kv_cache_size=122.71GiB gpu_memory_utilization=0.90",
            gib(total=139.8, initial=2.71, peak=2.38, non_torch=0.73, kv_cache=122.71, utilization=0.9),
        ),
        (
            "the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.99) = 23.35GiB",
            gib(total=23.58, utilization=0.99, desired=23.35),
        ),
        (
            "model weights take 21.21GiB; non_torch_memory takes 0.20GiB; PyTorch activation peak memory takes 0.37GiB;"
            " the rest of the memory reserved for KV Cache is 1.57GiB.",
            gib(weights=21.21, non_torch=0.2, activations=0.37, kv_cache=1.57),
        ),
        (
            "model weights take 21.21GiB; non_torch_memory takes 0.20GiB; PyTorch activation peak memory takes 9.37GiB;"
            " the rest of the memory reserved for KV Cache is -7.43GiB.",
            gib(weights=21.21, non_torch=0.2, activations=9.37, kv_cache=-7.43),
        ),
        ("Available KV cache memory: 61.2 GiB", gib(kv_cache=61.2)),
        ("Available KV cache memory: -3.09 GiB", gib(kv_cache=-3.09)),
        ("Estimated CUDA graph memory: 0.36 GiB total", gib(cuda_graphs=0.36)),
        (
            "CUDA graph pool memory: 0.24 GiB (actual), 0.58 GiB (estimated), difference: 0.34 GiB (142.2%).",
            gib(cuda_graphs=0.24),
        ),
        ("Graph capturing finished in 8 secs, took 0.60 GiB", gib(cuda_graphs=0.6)),
        (
            "Free memory on device (15.89/16.0 GiB) on startup. Desired GPU memory utilization is (0.95, 15.2 GiB). Actual"
            " usage is 0.88 GiB for weight, 0.26 GiB for peak activation, 0.16 GiB for non-torch memory, and 0.24 GiB for"
            " CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=14514713805` (13.52 GiB) to"
            " fit into requested memory, or `--kv-cache-memory=15258363904` (14.21 GiB) to fully utilize gpu memory."
            " Current kv cache memory in use is 13.33 GiB.",
            gib(initial_free=15.89, total=16, utilization=0.95, desired=15.2, weights=0.88, activations=0.26,
                non_torch=0.16, cuda_graphs=0.24, kv_cache=13.33),
        ),
        (
            "Free memory on device cuda:1 (17.06/22.04 GiB) on startup. Desired GPU memory utilization is (0.62, 13.66 GiB)."
            " Actual usage is 10.29 GiB for consumed memory (weights + non-torch), 0.27 GiB for peak activation, and 0.78"
            " GiB for CUDAGraph memory.",
            gib(initial_free=17.06, total=22.04, utilization=0.62, desired=13.66, consumed=10.29, activations=0.27,
                cuda_graphs=0.78),
        ),
        (
            "Initial free memory: 78.6 GiB; Requested memory: 0.9 (util), 71.24 GiB",
            gib(initial_free=78.6, utilization=0.9, desired=71.24),
        ),
        (
            "Initial free memory: 78.60 GiB, free memory: 60.10 GiB, requested GPU memory: 71.24 GiB",
            gib(initial_free=78.6, desired=71.24),
        ),
        (
            "Initial free memory 94.43 GiB, reserved 5.0 GiB memory for KV Cache as specified by kv_cache_memory_bytes config",
            gib(initial_free=94.43, kv_cache=5),
        ),
        # Innocent, hostile or no measurement.
        ("Memory profiling takes 1.73 seconds", {}),
        ("Graph capturing finished in 8 secs.", {}),
        ("a user said: Available KV cache memory: 61.2 GiB", {}),
        ("Model loading took 1e309 GiB memory and 1 seconds", {}),
        ("Model loading took -5.0 GiB memory and 1 seconds", {}),
        (f"Model loading took {'9' * 30} GiB memory and 1 seconds", {}),
        ("Model loading took 9999999 GiB memory and 1 seconds", {}),
        ("Available KV cache memory: nan GiB", {}),
        ("the current vLLM instance can use total_gpu_memory (80GiB) x gpu_memory_utilization (7.0) = 1GiB", gib(total=80, desired=1)),
    ],
)  # fmt: skip
def test_each_release_is_read(message: str, expected: dict[str, float]) -> None:
    assert measured(message) == expected


@given(st.text(), st.sampled_from(["Model loading took ", "Available KV cache memory: ", ""]))
def test_no_message_breaks_the_reading(rest: str, start: str) -> None:
    for value in measured(start + rest).values():
        assert abs(value) <= 1024**5


def test_the_budget_of_the_old_engine_is_whole() -> None:
    found = triage(FIXTURES / "oom" / "budget-0_8_5-another-process.log").root
    assert found is not None
    memory = found.memory
    assert memory is not None

    known = {name: value for name, value in memory.model_dump().items() if value is not None}
    assert known == {
        "gpu_index": 0,
        "gpu_memory_utilization": 0.95,
        "total_bytes": round(79.15 * GIB),
        "desired_bytes": round(75.19 * GIB),
        # The driver's own numbers, not those of the other worker.
        "weights_bytes": round(65.92 * GIB),
        "activations_bytes": round(1.78 * GIB),
        "non_torch_bytes": round(2.08 * GIB),
        "kv_cache_bytes": round(5.41 * GIB),
        "process_bytes": round(75.63 * GIB),
        # 79.15 - 147.12 MiB - 75.63
        "other_processes_bytes": round(79.15 * GIB) - round(147.12 * 1024**2) - round(75.63 * GIB),
        "allocated_bytes": round(73.81 * GIB),
        "reserved_bytes": round(121.43 * 1024**2),
        "requested_bytes": 2 * GIB,
        "free_bytes": round(147.12 * 1024**2),
    }


def test_what_does_not_fit_is_seen_at_a_glance() -> None:
    report = triage(FIXTURES / "oom" / "budget-0_8_5-another-process.log")
    shown = text.render(report).split("\n")
    start = next(index for index, row in enumerate(shown) if row.startswith("Memory of"))

    assert shown[start : start + 9] == [
        "Memory of GPU 0: asked 2.00 GiB, free 0.14 GiB",
        "  total             79.15 GiB",
        "  vLLM's share      75.19 GiB   95%",
        "  weights           65.92 GiB   83%",
        "  activations        1.78 GiB    2%",
        "  KV cache           5.41 GiB    7%",
        "  other processes    3.38 GiB    4%",
        "The weights alone need about 142 GB in 16 bits: 4x A100 40 GB or 2x A100 80 GB;",
        "as AWQ or GPTQ about 35 GB: 1x A100 40 GB.",
    ]
    ticket = markdown.render(report)
    assert "**Memory of GPU 0**: asked 2.00 GiB, free 0.14 GiB" in ticket
    assert "| weights | 65.92 GiB | 83% |" in ticket


def test_a_new_engines_kv_cache_is_told_with_its_need() -> None:
    report = triage(FIXTURES / "oom" / "budget-0_27-kv-cache-short.log")
    found = report.root
    assert found is not None
    assert found.memory is not None

    assert heading(found.memory) == (
        "Memory of one GPU (Worker_TP0)",
        "KV cache needs 5.00 GiB, has 3.87 GiB",
    )
    assert rows(found.memory) == [("weights", "30.72 GiB", ""), ("CUDA graphs", "0.36 GiB", "")]
    # Twice 30.72 GiB
    assert found.cards is not None
    assert found.cards.startswith(
        "The weights alone need about 66 GB in 16 bits: 2x A100 40 GB or 1x A100 80 GB;"
    )


@pytest.mark.parametrize(
    ("failing", "weights"), [("Worker_TP1 pid=8", 11.0), ("EngineCore pid=1", 12.0)]
)
def test_the_failing_workers_numbers_count_else_those_of_the_largest(
    failing: str, weights: float
) -> None:
    lines = [BANNER]
    for index, took in enumerate((10.0, 11.0, 12.0)):
        lines.append(
            f"(Worker_TP{index} pid={index + 7}) INFO 05-06 09:11:20 [gpu_model_runner.py:1] Model loading took {took} GiB memory and 1.0 seconds"
        )
    found = root([*lines, f"({failing}) ERROR 05-06 09:12:00 [core.py:1] {TORCH}"])

    assert found.memory is not None
    assert found.memory.weights_bytes == weights * GIB


def test_workers_without_number_do_not_grow_the_memory() -> None:
    memory = Memory()
    for pid in range(1000):
        memory.feed(("Worker", pid), f"Model loading took {pid}.0 GiB memory and 1.0 seconds")

    assert memory.of(("Worker", 999))[1] == {"weights": 31 * GIB}
    assert memory.of(("Worker", 5))[1] == {"weights": 5 * GIB}


def test_a_short_start_names_what_others_hold() -> None:
    found = root([
        "(EngineCore pid=1) ERROR 05-06 09:12:00 [core.py:1] ValueError: Free memory on device cuda:0 (7.34/139.72 GiB) on startup"
        " is less than desired GPU memory utilization (0.9, 125.75 GiB). Decrease GPU memory utilization or reduce GPU memory"
        " used by other processes."
    ])  # fmt: skip

    assert found.memory is not None
    assert heading(found.memory) == (
        "Memory of one GPU (EngineCore)",
        "vLLM wants 125.75 GiB, free 7.34 GiB",
    )
    assert rows(found.memory) == [
        ("total", "139.72 GiB", ""),
        ("other processes", "132.38 GiB", "95%"),
    ]


def test_another_process_that_torch_names_first_is_not_this_one() -> None:
    other = "Process 11 has 9.00 GiB memory in use. Including non-PyTorch memory, this process has 70.00 GiB memory in use. Of the allocated memory 68.00 GiB is allocated by PyTorch"
    found = root([f"{TORCH} {other}"]).memory
    only_other = root(
        [
            f"{TORCH} {other.replace('Including non-PyTorch memory, this process has 70.00 GiB memory in use. ', '')}"
        ]
    ).memory

    assert found is not None
    assert only_other is not None
    assert (found.process_bytes, found.other_processes_bytes) == (70 * GIB, 9 * GIB)
    # Less than PyTorch itself has allocated: not its own.
    assert (only_other.process_bytes, only_other.other_processes_bytes) == (None, None)


def test_unused_reserves_are_shown_where_they_would_have_held_what_was_asked() -> None:
    held = MemoryBudget(
        total_bytes=80 * GIB, requested_bytes=2 * GIB, free_bytes=GIB, reserved_bytes=3 * GIB
    )
    short = held.model_copy(update={"reserved_bytes": GIB})

    assert ("reserved, unused", "3.00 GiB", "4%") in rows(held)
    assert [label for label, _, _ in rows(short)] == ["total"]


def test_a_share_that_is_used_up_is_named() -> None:
    found = MemoryBudget(weights_bytes=75 * GIB, kv_cache_bytes=-3 * GIB)

    assert heading(found) == ("Memory of one GPU", "3.00 GiB too little")


@given(st.dictionaries(
    st.sampled_from([name for name in MemoryBudget.model_fields if name.endswith("_bytes")]),
    st.integers(0, 1024**5),
))  # fmt: skip
def test_a_block_is_never_longer_than_a_glance(sizes: dict[str, Any]) -> None:
    shown = rows(MemoryBudget(**sizes))

    assert len(shown) <= MAX_ROWS
    assert all(len(label) <= 16 for label, _, _ in shown)


def test_other_kinds_and_hosts_have_no_budget() -> None:
    lines = [BANNER, "INFO 05-06 09:11:20 [gpu_model_runner.py:1] Model loading took 10.0 GiB memory and 1.0 seconds",
             "INFO 05-06 09:11:21 [gpu_worker.py:1] Available KV cache memory: 3.0 GiB"]  # fmt: skip
    port = root(
        [
            *lines,
            "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        ]
    )
    node = root(
        [
            "ValueError: Available memory on node 0 (149.11/692.65 GiB) on kv cache allocation is less than requested memory for kv (206.54/207.8 GiB). Reduce CPU memory used by other processes."
        ]
    )
    processor = triage(FIXTURES / "oom" / "kv-cache-too-small.log").root

    assert port.kind == "network.port_in_use"
    assert (port.memory, port.cards) == (None, None)
    assert node.kind == "oom.kv_cache"
    assert (node.memory, node.cards) == (None, None)
    assert processor is not None
    assert (processor.memory, processor.cards) == (None, None)


def test_one_size_is_no_budget() -> None:
    memory = Memory()
    memory.feed((None, None), "Available KV cache memory: 3.0 GiB")

    assert budget(OomFacts(), memory, (None, None)) is None


@pytest.mark.parametrize(
    "number", ["1e309", "-2.00", "9" * 30, "9" * 400, "0." + "9" * 400, "inf", "nan", "1,,,2"]
)
def test_hostile_sizes_leave_the_incident_standing(number: str) -> None:
    found = root([
        BANNER,
        f"INFO 05-06 09:11:20 [gpu_model_runner.py:1] Model loading took {number} GiB memory and 1.0 seconds",
        f"INFO 05-06 09:11:21 [worker.py:1] the current vLLM instance can use total_gpu_memory ({number}GiB) x gpu_memory_utilization ({number}) = {number}GiB",
        TORCH.replace("80.00", number).replace("1.00", number),
    ])  # fmt: skip

    assert found.kind == "oom.load"
    sizes = found.memory.model_dump() if found.memory else {}
    assert all(
        0 <= value <= 1024**5
        for name, value in sizes.items()
        if name.endswith("_bytes") and value is not None
    )


def test_a_size_that_no_machine_has_is_none() -> None:
    assert size("9" * 400 + " GiB") is None
    assert size("2.00 GiB") == 2 * GIB


def test_pressure_shows_what_the_start_left_for_the_cache() -> None:
    busy = "INFO 05-06 09:2{}:00 [loggers.py:1] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 10.0 tokens/s, Running: 90 reqs, Waiting: 200 reqs, GPU KV cache usage: 99.8%, Prefix cache hit rate: 0.0%"
    found = root([
        BANNER,
        "INFO 05-06 09:11:20 [gpu_model_runner.py:1] Model loading took 14.99 GiB memory and 1.0 seconds",
        "INFO 05-06 09:11:21 [gpu_worker.py:1] Available KV cache memory: 3.00 GiB",
        "INFO:     Application startup complete.",
        *(busy.format(minute) for minute in range(10)),
    ])  # fmt: skip

    assert found.kind == "performance.kv_cache_pressure"
    assert found.memory is not None
    assert rows(found.memory) == [("weights", "14.99 GiB", ""), ("KV cache", "3.00 GiB", "")]
    assert found.cards is None
