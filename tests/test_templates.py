"""Counts and durations as people read them."""

import pytest

from vllm_triage import templates, triage
from vllm_triage.reports import markdown, text


@pytest.mark.parametrize(
    ("milliseconds", "wanted"),
    [
        (0.4, "0.4 ms"), (85.31, "85.3 ms"), (999.4, "999 ms"), (999.6, "1 s"), (3179.32, "3.18 s"),
        (62865.79, "62.9 s"), (999_600, "1000 s"), (3_200_123, "3200 s"), (0, "0 ms"),
    ],
)  # fmt: skip
def test_a_duration_has_three_digits_and_one_unit(milliseconds: float, wanted: str) -> None:
    assert templates.duration(milliseconds) == wanted


@pytest.mark.parametrize(
    ("count", "wanted"), [(0, "0 lines"), (1, "1 line"), (1204, "1,204 lines")]
)
def test_one_is_singular(count: int, wanted: str) -> None:
    assert templates.counted(count, "line") == wanted


def test_one_line_is_no_lines() -> None:
    report = triage(iter(["INFO 12-01 10:00:00 [x.py:1] fine"]))

    assert "in 1 line of" in text.render(report)
    assert "in 1 line." in markdown.render(report)
