"""Suggested values: within limits, never the failing one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage import suggest

SHARE = st.floats(0.05, 1.0)
SIZE = st.integers(1, 10_000_000)


@given(SHARE)
def test_a_lower_share_is_lower_and_a_higher_one_higher(share: float) -> None:
    lower, higher = suggest.lower_utilization(share), suggest.higher_utilization(share)

    assert not lower or 0 < float(lower) < share
    assert not higher or share < float(higher) <= 0.95


@given(SHARE, st.floats(0, 200), st.floats(1, 200))
def test_a_share_fits_what_is_free(share: float, free: float, total: float) -> None:
    found = suggest.lower_utilization(share, free, total)

    assert found is not None
    assert not found or (float(found) * total <= free and float(found) < share)


@given(SHARE, st.floats(0.1, 200), st.floats(1, 200))
def test_a_larger_share_adds_what_is_missing(share: float, missing: float, total: float) -> None:
    found = suggest.higher_utilization(share, missing, total)

    assert not found or (float(found) - share) * total >= missing - 1e-6
    assert found or (0.95 - share) * total < missing + 1e-6


@given(SIZE, SIZE)
def test_a_context_is_shorter_and_fits(estimated: int, current: int) -> None:
    found = suggest.fitting_max_model_len(estimated, None, None, current)

    assert not found or int(found) < current
    if 16 <= estimated < current:
        assert found
        assert int(found) <= estimated


@given(st.integers(16, 10_000_000), st.floats(0.0, 0.999))
def test_a_context_fits_the_memory_that_is_left(current: int, share: float) -> None:
    found = suggest.fitting_max_model_len(None, None, None, current, share)

    assert not found or int(found) < current
    if current * share >= 16:
        assert found
        assert int(found) <= current * share


def test_no_context_fits_without_memory_for_the_cache() -> None:
    assert suggest.fitting_max_model_len(None, None, None, 4096, -0.2) == suggest.NONE_FITS
    assert suggest.fitting_max_model_len(0, None, None, 4096) == suggest.NONE_FITS


@given(st.integers(1, 128), st.integers(1, 64), st.integers(1, 64))
def test_a_parallel_size_divides_the_heads_and_fits(heads: int, gpus: int, current: int) -> None:
    found = suggest.fitting_tensor_parallel_size(heads, gpus, current)

    assert found is None or (
        heads % int(found) == 0 and int(found) <= gpus and int(found) != current
    )


@given(st.none() | st.integers(1, 128), st.none() | st.integers(1, 64), st.integers(1, 64))
def test_a_higher_parallel_size_divides_the_heads_and_fits(
    heads: int | None, gpus: int | None, current: int
) -> None:
    found = suggest.higher_tensor_parallel_size(heads, gpus, current)

    assert found is not None
    if found:
        assert int(found) > current
        assert heads is None or heads % int(found) == 0
        assert gpus is None or int(found) <= gpus


@pytest.mark.parametrize(
    ("heads", "gpus", "current", "wanted"),
    [
        (None, None, None, None),
        (None, None, 8, "16"),
        (None, 8, 8, ""),
        (None, 1, None, ""),
        (None, 4, None, "2"),
        (28, 8, 4, "7"),
        (28, 6, 4, ""),
        (40, None, 4, "5"),
    ],
)
def test_the_next_parallel_size(
    heads: int | None, gpus: int | None, current: int | None, wanted: str | None
) -> None:
    assert suggest.higher_tensor_parallel_size(heads, gpus, current) == wanted


@pytest.mark.parametrize(
    ("rank", "names", "ranks"),
    [
        (3, (), 4),
        (None, ("Worker_TP0", "Worker_TP7"), 8),
        (None, ("Worker_PP1_TP5",), 8),
        (0, ("EngineCore_DP3",), None),
        (None, (), None),
    ],
)
def test_ranks_are_told_from_workers(
    rank: int | None, names: tuple[str, ...], ranks: int | None
) -> None:
    assert suggest.fewest_ranks(rank, names) == ranks


@given(SIZE)
def test_batch_limits_change_in_the_right_direction(current: int) -> None:
    lower, higher = suggest.lower_max_num_seqs(current), suggest.higher_max_num_seqs(current)

    assert not lower or 1 <= int(lower) < current
    assert not higher or current < int(higher) <= 1024


@given(SIZE, st.none() | st.integers(1, 2048))
def test_token_budgets_change_in_the_right_direction(current: int, sequences: int | None) -> None:
    lower = suggest.lower_max_num_batched_tokens(current, sequences)
    higher = suggest.higher_max_num_batched_tokens(current)

    # vLLM refuses a budget below the batch limit.
    assert not lower or (sequences or 1) <= int(lower) < current
    assert not higher or current < int(higher) <= 32768


@given(st.integers(1, 65535))
def test_a_free_port_is_another_port(current: int) -> None:
    found = suggest.free_port(current)

    assert found is not None
    assert found != str(current)
    assert 0 < int(found) <= 65535
