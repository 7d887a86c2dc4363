"""Suggested values: within limits, never the failing one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage import suggest, weights

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


@given(st.none() | SIZE, st.integers(1, 4096))
def test_a_batch_limit_is_below_what_is_seen_running(current: int | None, running: int) -> None:
    lower = suggest.lower_max_num_seqs(current, running)

    assert lower is not None
    assert not lower or 1 <= int(lower) < running


@pytest.mark.parametrize(
    ("current", "running", "expected"),
    [(None, 46, "40"), (256, 48, "40"), (None, 5, "4"), (256, 1, ""), (64, 64, "32"), (None, None, None)],
)  # fmt: skip
def test_batch_limits_of_servers_that_run_less_than_their_limit(
    current: int | None, running: int | None, expected: str | None
) -> None:
    assert suggest.lower_max_num_seqs(current, running) == expected


@pytest.mark.parametrize(
    ("lower", "expected"),
    [("0.85", "0.85, 0.8, 0.75"), ("0.68", "0.68, 0.6, 0.5"), ("0.3", "0.3"), ("", ""), (None, None)],
)  # fmt: skip
def test_shares_to_try_go_down_from_the_suggested_one(
    lower: str | None, expected: str | None
) -> None:
    assert suggest.shares_to_try(lower) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (suggest.longer_timeout(600.0), None),
        (suggest.longer_timeout(1800.0), "3600"),
        (suggest.larger_swap_space(4), "16"),
        (suggest.larger_swap_space(32), "64"),
        (suggest.larger_cpu_cache(3 * 2**30), "8"),
        (suggest.larger_cpu_cache(20 * 2**30), "32"),
        (suggest.fitting_cpu_cache(19.85 * 2**30), "15"),
        (suggest.fitting_cpu_cache(2**30), ""),
    ],
)
def test_other_values_go_the_right_way_from_the_present_one(
    found: str | None, expected: str | None
) -> None:
    assert found == expected


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


@pytest.mark.parametrize(
    ("name", "quantization", "gigabytes"),
    [
        ("meta-llama/Llama-3-70B-Instruct", None, 140),
        ("TheBloke/Llama-2-70B-AWQ", None, 35),
        ("TheBloke/Llama-2-70B-AWQ", "awq_marlin", 35),
        ("meta-llama/Llama-3-70B", "fp8", 70),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", None, 30),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", None, 93.4),
        ("org/merge-4x7B", None, 56),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", None, 218),
        ("Qwen/Qwen2.5-7B-Instruct-1M", None, 14),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "gptq_marlin", 72),
        ("neuralmagic/Meta-Llama-3-8B-quantized.w4a16", "compressed-tensors", 4),
        ("unsloth/llama-3-8b-bnb-4bit", "bitsandbytes", 4),
        ("facebook/opt-125m", None, 0.25),
        (
            "/hub/models--Qwen--Qwen2.5-0.5B/snapshots/060db6499f32faf8b98477b0a26969ef7d8b9987",
            None,
            1,
        ),
        ("/data/7b/qwen-32b", None, 64),
        ("openai/gpt-oss-120b", "mxfp4", 60),
        ("nvidia/Llama-3.1-405B-Instruct-FP8", "modelopt", 405),
        ("org/Llama-3-8B-bf16", "fp8", 8),
        # Nothing is said, or not how much.
        ("Qwen/Qwen1.5-MoE-A2.7B", None, None),
        ("google/gemma-3n-E4B-it", None, None),
        ("org/Other-17B-64E", None, None),
        ("org/Big-70B-distilled-8B", None, None),
        ("bartowski/Qwen2.5-7B-Instruct-GGUF", None, None),
        ("org/Llama-3-8B", "compressed-tensors", None),
        ("microsoft/phi-3-mini-128k-instruct", None, None),
        ("./model", None, None),
        ("", None, None),
    ],
)
def test_a_models_name_states_its_weights(
    name: str, quantization: str | None, gigabytes: float | None
) -> None:
    expected = None if gigabytes is None else round(gigabytes * 1e9)

    assert weights.model_weights_bytes(name, quantization) == expected


@given(st.integers(1, 999), st.integers(1, 999))
def test_more_parameters_weigh_more(first: int, second: int) -> None:
    one, other = (weights.model_weights_bytes(f"org/Model-{size}B") for size in (first, second))

    assert one is not None
    assert other is not None
    assert (one < other) == (first < second)


@given(st.text(), st.none() | st.text())
def test_no_name_breaks_the_arithmetic(name: str, quantization: str | None) -> None:
    found = weights.model_weights_bytes(name, quantization)

    assert found is None or found > 0


@given(st.integers(1, 256), st.one_of(st.none(), st.integers(1, 64)), st.integers(1, 64))
def test_split_sizes_divide_the_heads_and_need_no_more_gpus(
    heads: int, gpus: int | None, current: int
) -> None:
    found = suggest.split_parallel_sizes(heads, gpus, current)

    if found is None:
        assert heads % min(current, gpus or current) == 0
        return
    tensor, pipeline = map(int, found)
    assert heads % tensor == 0
    assert pipeline > 1
    assert tensor * pipeline == min(current, gpus or current)


def test_twelve_heads_on_eight_gpus() -> None:
    assert suggest.split_parallel_sizes(12, None, 8) == ("4", "2")
    assert suggest.split_parallel_sizes(None, 8, 8) is None


@given(st.floats(1e9, 1e13), st.floats(1e9, 3e11))
def test_the_least_gpus_hold_the_weights_and_one_less_does_not(size: float, gpu: float) -> None:
    count = suggest.least_gpus(size, gpu)

    assert count is not None
    assert count == 1024 or 0.9 * gpu * count >= size * (1 - 1e-9)
    assert 0.9 * gpu * (count - 1) < size


def test_seventy_billion_parameters_need_four_cards_of_40_gib() -> None:
    least = suggest.least_gpus(140e9, 40 * 1024**3)

    assert least == 4
    assert suggest.higher_tensor_parallel_size(None, None, 1, least) == "4"
    assert suggest.higher_tensor_parallel_size(64, 2, 1, least) == suggest.NONE_FITS
