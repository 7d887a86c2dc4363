"""Which cards hold a model: the guide's rows, and never too few."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage import triage
from vllm_triage.cards import Card, count_holding, holding, known_cards, sentence
from vllm_triage.catalogue import Catalogue

WEIGHTS = st.floats(1e6, 1e13)
CARDS = st.builds(Card, st.just("card"), st.integers(8, 200), st.integers(1, 64))


@pytest.mark.parametrize(
    ("gigabytes", "named"),
    [
        # The guide: 70B in 16 bits, 70B as AWQ, 7B, 13B, 30B.
        (140, ["4x A100 40 GB", "2x A100 80 GB"]),
        (35, ["1x A100 40 GB"]),
        (14, ["1x A10 24 GB"]),
        (26, ["1x A100 40 GB"]),
        (60, ["2x A100 40 GB", "1x A100 80 GB"]),
        # 40B in 16 bits fill two of 40 GB without a byte left: not enough.
        (80, ["4x A100 40 GB", "2x A100 80 GB"]),
        (810, ["16x A100 80 GB"]),
        (2000, []),
    ],
)
def test_the_guides_rows_come_out(gigabytes: float, named: list[str]) -> None:
    assert [
        f"{count}x {card.name}" for count, card in holding(gigabytes * 1e9, known_cards())
    ] == named


@given(WEIGHTS, CARDS)
def test_cards_always_hold_the_weights(weights: float, card: Card) -> None:
    count = count_holding(weights, card)

    if count is None:
        # The next power of two after the most.
        assert weights > 0.9 * card.gigabytes * 1e9
    else:
        assert count <= card.most
        assert count & (count - 1) == 0
        assert count * card.gigabytes * 1e9 > weights


@given(WEIGHTS, WEIGHTS, CARDS)
def test_more_weights_never_need_fewer_cards(first: float, second: float, card: Card) -> None:
    less, more = sorted((first, second))
    small, large = count_holding(less, card), count_holding(more, card)

    assert large is None or (small is not None and small <= large)


@given(WEIGHTS, st.sampled_from([None, 4.0, 2.0, 1.0, 0.5, 0.25]))
def test_the_sentence_is_one_and_whole(weights: float, width: float | None) -> None:
    said = sentence(weights, width)

    assert said is not None
    assert said.endswith(".")
    assert ("as AWQ or GPTQ" in said) == (width is not None and width > 0.5)


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert sentence(None, 2.0) is None
    assert sentence(0, None) is None
    assert sentence(-1, None) is None
    # A card count that no list holds is said so.
    assert (
        sentence(2e12, None) == "The weights alone need about 2000 GB: more than 16x A100 80 GB."
    )


@pytest.mark.parametrize(
    ("model", "more", "expected"),
    [
        ("meta-llama/Llama-3-70B", "", "The weights alone need about 140 GB in 16 bits: 4x A100 40 GB or 2x A100 80 GB; as AWQ or GPTQ about 35 GB: 1x A100 40 GB."),
        ("TheBloke/Llama-2-70B-AWQ", ", 'quantization': 'awq'", "The weights alone need about 35 GB in 4 bits: 1x A100 40 GB."),
        ("/models/mine", "", None),
    ],
)  # fmt: skip
def test_the_name_tells_where_the_log_does_not(
    model: str, more: str, expected: str | None
) -> None:
    found = triage(iter([
        "INFO 05-06 09:10:02 [api_server.py:1] vLLM API server version 0.10.2",
        f"INFO 05-06 09:10:03 [utils.py:1] non-default args: {{'model': '{model}'{more}}}",
        "ERROR 05-06 09:10:30 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.",
    ])).root  # fmt: skip

    assert found is not None
    assert found.kind in ("oom.load", "oom.quantized")
    assert found.cards == expected


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ("'tensor_parallel_size': 2, 'pipeline_parallel_size': 2", "The weights alone need about 43 GB:"),
        ("'tensor_parallel_size': 1", "The weights alone need about 11 GB:"),
        ("'tensor_parallel_size': 2, 'cpu_offload_gb': 20", None),
    ],
)  # fmt: skip
def test_measured_weights_count_for_all_gpus_that_share_them(
    arguments: str, start: str | None
) -> None:
    found = triage(iter([
        "INFO 05-06 09:10:02 [api_server.py:1] vLLM API server version 0.10.2",
        f"INFO 05-06 09:10:03 [utils.py:1] non-default args: {{'model': '/models/mine', {arguments}}}",
        "INFO 05-06 09:11:20 [gpu_model_runner.py:1] Model loading took 10.0 GiB memory and 1.0 seconds",
        "ERROR 05-06 09:10:30 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.",
    ])).root  # fmt: skip

    assert found is not None
    assert (found.cards is None) == (start is None)
    assert found.cards is None or (start is not None and found.cards.startswith(start))


def test_the_cards_are_those_of_the_guides_page(catalogue: Catalogue) -> None:
    rows = " ".join(cell for row in catalogue.topics["memory-budget"].rows for cell in row)

    assert all(card.name in rows for card in known_cards())
    assert [card.gigabytes for card in known_cards()] == sorted(
        card.gigabytes for card in known_cards()
    )
