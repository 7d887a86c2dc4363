"""What follows from a run without being printed."""

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
    run = Run("x.log", 1, torch_version=torch)
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
