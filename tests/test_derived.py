"""What follows from a run without being printed."""

from typing import Any

import pytest

from vllm_triage.derived import derived, needed_driver
from vllm_triage.run import Run


@pytest.mark.parametrize(
    ("version", "torch", "expected"),
    [
        (
            "0.6.3",
            None,
            "CUDA 12.1 needs driver 530.30 or newer, by minor version compatibility 525.60",
        ),
        (
            "0.8.5.post1",
            None,
            "CUDA 12.4 needs driver 550.54 or newer, by minor version compatibility 525.60",
        ),
        (
            "0.10.0",
            None,
            "CUDA 12.8 needs driver 570.26 or newer, by minor version compatibility 525.60",
        ),
        (
            "0.10.0",
            "2.7.1+cu126",
            "CUDA 12.6 needs driver 560.28 or newer, by minor version compatibility 525.60",
        ),
        ("0.20.0+cu130", None, "CUDA 13.0 needs driver 580.65 or newer"),
        # Neither states it.
        ("0.33.0", None, None),
        (None, None, None),
        ("0.33.0", "2.14.0+cu999", None),
    ],
)
def test_the_driver_is_that_of_the_cuda_release_built_for(
    version: str | None, torch: str | None, expected: str | None
) -> None:
    run = Run("x.log", 1)
    run.torch_version = torch
    if version is not None:
        run.release.banner(version)

    assert needed_driver(run) == expected


@pytest.mark.parametrize(
    ("printed", "expected"),
    [(75.0, "7.5"), (7.5, "7.5"), (70.0, "7.0"), (100.0, "10.0"), (12.0, "12.0"), (None, None)],
)
def test_a_compute_capability_is_written_with_its_point(
    printed: float | None, expected: str | None
) -> None:
    assert derived({"capability": printed}, None).get("compute_capability") == expected


@pytest.mark.parametrize(
    ("asked", "allowed", "expected"),
    [
        (131072, 32768, "4.0"),
        (32768, 8192, "4.0"),
        # What is asked for must fit: up, and not to the nearest.
        (32769, 32768, "1.1"),
        (32768, 32768, None),
        (131072, None, None),
        (131072, 0, None),
    ],
)
def test_a_factor_of_rope_scaling_reaches_the_context_asked_for(
    asked: int, allowed: int | None, expected: str | None
) -> None:
    known = {"max_model_len": asked, "derived_max_model_len": allowed}

    assert derived(known, None).get("rope_factor") == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"signal": "SIGSEGV"}, "SIGSEGV"),
        ({"signal": "9"}, "SIGKILL"),
        ({"exit_code": -11}, "SIGSEGV"),
        ({"exit_code": 137}, "SIGKILL"),
        ({"exit_code": 1}, None),
        # Between those of the system and those for real time there are numbers of no signal.
        ({"exit_code": -33}, None),
        ({"exit_code": 128 + 33}, None),
        ({}, None),
    ],
)
def test_a_signal_is_named_from_what_is_printed_of_it(
    facts: dict[str, object], expected: str | None
) -> None:
    assert derived(facts, None).get("signal_name") == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "141.1 GB of 84.9 GB"),
        ({"tensor_parallel_size": 2}, None),
        # With any of these the part in memory is another than that of the checkpoint.
        ({"quantization": "fp8"}, None),
        ({"cpu_offload_gb": 80}, None),
        # No such number of cards: nothing is known of a part.
        ({"tensor_parallel_size": 10**9}, None),
        ({"tensor_parallel_size": -1}, None),
    ],
)
def test_weights_exceed_a_card_where_their_part_is_more_than_it_has(
    arguments: dict[str, Any], expected: str | None
) -> None:
    facts = {"checkpoint_bytes": 141_100_000_000, "total_bytes": 84_900_000_000}
    run = Run("x.log", 1)
    run.arguments = arguments

    assert derived(facts, run).get("weights_exceed_card") == expected


def test_a_folder_that_a_shell_would_take_apart_is_in_no_command() -> None:
    plain = derived({"model": "/models/a"}, None)
    odd = derived({"model": "/models/a; rm -rf"}, None)

    assert plain["model_files"] == "/models/a"
    assert plain["download"] == "ORG/NAME --local-dir /models/a"
    assert odd["model_folder"] == "/models/a; rm -rf"
    assert odd.get("model_files") is None
    assert odd.get("download") is None


GIB = 2**30


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # The line says what this process holds: the rest is others', over what a context takes.
        ({"total": 80, "free": 1, "process": 70, "allocated": 68}, "9.0 GiB"),
        ({"total": 80, "free": 1, "process": 78, "allocated": 76}, None),
        # torch names another process, which holds less than is allocated here.
        ({"total": 80, "free": 1, "process": 3, "allocated": 76, "reserved": 1}, None),
        # It does not: over half a card is no library's.
        ({"total": 16, "free": 0, "allocated": 1}, "15.0 GiB"),
        ({"total": 16, "free": 0, "allocated": 7, "reserved": 1}, None),
        ({"total": 16, "free": 0}, None),
        ({"free": 0, "allocated": 1}, None),
    ],
)
def test_what_others_hold_of_a_gpu_is_told_where_the_line_tells_enough(
    sizes: dict[str, int], expected: str | None
) -> None:
    facts = {f"{name}_bytes": value * GIB for name, value in sizes.items()}

    assert derived(facts, None).get("held_elsewhere") == expected


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("--max-lora-rank", "64", {"fitting_lora_rank": "64"}),
        ("--max-lora-rank", "24", {"fitting_lora_rank": "32"}),
        ("--max-lora-rank", "4096", {}),
        ("--max-lora-rank", "many", {}),
        ("--max-loras", "3", {"fitting_loras": "3"}),
        ("--max-num-seqs", "3", {}),
    ],
)
def test_what_adapters_need_is_told_of_what_was_refused(
    argument: str, value: str, expected: dict[str, str]
) -> None:
    found = derived({"argument": argument, "value": value}, None)

    assert {
        name: text for name, text in found.items() if name.startswith("fitting_lora")
    } == expected
