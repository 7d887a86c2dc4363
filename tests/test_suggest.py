"""Suggested values: within limits, never the failing one."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_triage import suggest

SHARE = st.floats(0.05, 1.0)
SIZE = st.integers(1, 10_000_000)


@given(SHARE)
def test_a_lower_share_is_lower_and_a_higher_one_higher(share: float) -> None:
    lower, higher = suggest.lower_utilization(share), suggest.higher_utilization(share)

    assert lower is None or 0 < float(lower) < share
    assert higher is None or share < float(higher) <= 0.95


@given(SHARE, st.floats(0, 200), st.floats(1, 200))
def test_a_share_fits_what_is_free(share: float, free: float, total: float) -> None:
    found = suggest.lower_utilization(share, free, total)

    assert found is None or (float(found) * total <= free and float(found) < share)


@given(SIZE, SIZE)
def test_a_context_is_shorter_and_fits(estimated: int, current: int) -> None:
    found = suggest.fitting_max_model_len(estimated, None, None, current)

    assert found is None or int(found) < current
    if estimated >= 16 and estimated < current:
        assert found is not None
        assert int(found) <= estimated


@given(st.integers(1, 128), st.integers(1, 64), st.integers(1, 64))
def test_a_parallel_size_divides_the_heads_and_fits(heads: int, gpus: int, current: int) -> None:
    found = suggest.fitting_tensor_parallel_size(heads, gpus, current)

    assert found is None or (
        heads % int(found) == 0 and int(found) <= gpus and int(found) != current
    )


@given(SIZE)
def test_batch_limits_change_in_the_right_direction(current: int) -> None:
    lower, higher = suggest.lower_max_num_seqs(current), suggest.higher_max_num_seqs(current)

    assert lower is None or int(lower) < current
    assert higher is None or int(higher) > current
