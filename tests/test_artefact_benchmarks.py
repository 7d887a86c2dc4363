"""Results of `vllm bench`: every form read, the documented bounds from both sides."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_triage.artefacts.benchmarks import read
from vllm_triage.artefacts.formats import format_of
from vllm_triage.artefacts.observations import Observation, Reading, line
from vllm_triage.model import Report
from vllm_triage.pipeline import triage_paths

RESULT: dict[str, Any] = {
    "backend": "vllm", "model_id": "org/name", "num_prompts": 100, "request_rate": "inf",
    "max_concurrency": None, "duration": 10.0, "completed": 100, "total_output_tokens": 12800,
    "request_throughput": 10.0, "output_throughput": 1280.0, "mean_ttft_ms": 300.0, "mean_tpot_ms": 20.0,
}  # fmt: skip
TABLE = """
============ Serving Benchmark Result ============
Successful requests:                     100
Benchmark duration (s):                  10.00
Total generated tokens:                  12800
Request throughput (req/s):              10.00
Output token throughput (tok/s):         1,280.00
---------------Time to First Token----------------
Mean TTFT (ms):                          300.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          20.00
==================================================
"""


def of(text: str) -> Reading:
    return read([line("x", number, one) for number, one in enumerate(text.split("\n"), 1)])


def values(text: str) -> dict[str, Any]:
    return benchmarks(of(text))[0].values


def benchmarks(reading: Reading) -> list[Observation]:
    return [one for one in reading.observations if one.subject == "benchmark"]


def judged(tmp_path: Path, *files: str) -> Report:
    paths = [tmp_path / f"file-{number}.txt" for number, _ in enumerate(files)]
    for path, text in zip(paths, files, strict=True):
        path.write_text(text, "utf-8")
    return triage_paths(paths)


def kinds(tmp_path: Path, **changed: object) -> list[str]:
    report = judged(tmp_path, json.dumps(RESULT | changed))
    return [one.kind.value for one in report.incidents]


def test_a_table_and_the_same_result_as_json_say_the_same() -> None:
    printed, saved = values(TABLE), values(json.dumps(RESULT))

    for name in (
        "successful_requests", "duration_s", "requests_per_s", "output_tokens_per_s",
        "mean_ttft_ms", "mean_tpot_ms", "load",
    ):  # fmt: skip
        assert printed[name] == saved[name], name


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({}, None),
        ({"mean_ttft_ms": 1000.0}, "performance.high_ttft"),
        ({"mean_ttft_ms": 999.9}, None),
        ({"mean_tpot_ms": 100.0}, "performance.slow_decode"),
        ({"mean_tpot_ms": 99.9}, None),
        # Time to first token goes before time per output token.
        ({"mean_ttft_ms": 1200.0, "mean_tpot_ms": 140.0}, "performance.high_ttft"),
        ({"request_throughput": 1.0, "output_throughput": 200.0}, "performance.low_throughput"),
        ({"request_throughput": 1.01, "output_throughput": 200.0}, None),
        ({"request_throughput": 1.0, "output_throughput": 200.1}, None),
        # What the client does not ask for cannot be served.
        ({"request_throughput": 0.5, "output_throughput": 64.0, "max_concurrency": 19}, None),
        ({"request_throughput": 0.5, "output_throughput": 64.0, "max_concurrency": 20}, "performance.low_throughput"),
        ({"request_throughput": 0.5, "output_throughput": 64.0, "completed": 19, "num_prompts": 19}, None),
        ({"request_throughput": 0.5, "output_throughput": 64.0, "request_rate": 0.5}, None),
    ],
)  # fmt: skip
def test_a_result_is_judged_by_the_documented_bounds(
    tmp_path: Path, changed: dict[str, object], kind: str | None
) -> None:
    assert kinds(tmp_path, **changed) == ([kind] if kind else [])


def test_half_of_what_was_offered_is_low_throughput(tmp_path: Path) -> None:
    offered = {
        "num_prompts": 2000, "completed": 2000, "request_rate": 100.0, "duration": 40.0,
        "total_output_tokens": 256_000, "output_throughput": 6400.0, "mean_ttft_ms": 900.0,
    }  # fmt: skip

    assert kinds(tmp_path, **offered, request_throughput=50.0) == ["performance.low_throughput"]
    assert kinds(tmp_path, **offered, request_throughput=50.1) == []
    assert kinds(tmp_path, **offered | {"request_rate": 99.0}, request_throughput=50.0) == []


def test_the_last_answers_of_a_short_benchmark_do_not_count_as_slow() -> None:
    # 20 requests offered in 0.2 s, each of which takes 5 s.
    short = RESULT | {"completed": 20, "num_prompts": 20, "total_output_tokens": 20 * 235,
                      "request_rate": 100.0, "duration": 5.2, "request_throughput": 3.8}  # fmt: skip

    assert values(json.dumps(short))["served_share_pct"] == pytest.approx(100 * (0.2 + 5.0) / 5.2)


def test_idle_gpus_beside_a_benchmark_are_low_throughput(tmp_path: Path) -> None:
    result = json.dumps(
        {"elapsed_time": 20.0, "num_requests": 1000, "total_num_tokens": 400_000,
         "requests_per_second": 50.0, "tokens_per_second": 20_000.0}
    )  # fmt: skip

    def samples(*shares: int) -> str:
        rows = [f"    0    120     45      -     {share}     10" for share in shares]
        return "\n".join(["# gpu    pwr  gtemp  mtemp     sm    mem", *rows])

    assert judged(tmp_path, result).root is None
    assert judged(tmp_path, result, samples(40, 40)).root is None
    assert judged(tmp_path, result, samples(80, 80, 80)).root is None
    assert judged(tmp_path, result.replace("50.0", "50.1"), samples(40, 40, 40)).root is None
    root = judged(tmp_path, result, samples(0, 79, 80, 79, 0, 0)).root
    assert root is not None
    assert root.kind.value == "performance.low_throughput"
    assert getattr(root.facts, "gpu_samples", None) == 3


def test_each_result_of_a_file_is_judged_with_its_own_line(tmp_path: Path) -> None:
    good, slow = RESULT, RESULT | {"mean_tpot_ms": 150.0}
    for text, number in (
        (json.dumps(good) + "\n" + json.dumps(slow) + "\n", 2),
        (json.dumps([good, slow], indent=2), 28),
        (TABLE + TABLE.replace("20.00", "150.0"), 23),
    ):
        report = judged(tmp_path, text)
        assert [one.kind.value for one in report.incidents] == ["performance.slow_decode"]
        evidence = report.incidents[0].evidence[0]
        assert (evidence.line, "150.0" in evidence.text) == (number, True)


def test_what_was_printed_before_the_table_came_is_read() -> None:
    printed = values(
        "Total time: 50.00 s\nThroughput: 2.00 requests/s\nAverage latency: 9.00 s\n"
        "Average latency per output token: 0.12 s"
    )

    assert (printed["duration_s"], printed["requests_per_s"]) == (50.0, 2.0)
    assert printed["mean_tpot_ms"] == pytest.approx(120)


def test_throughput_is_read_in_all_its_forms() -> None:
    old = values("Throughput: 0.50 requests/s, 300.00 tokens/s")
    new = values(
        "Throughput: 0.50 requests/s, 300.00 total tokens/s, 100.00 output tokens/s\n"
        "Total num prompt tokens:  40000\nTotal num output tokens:  20000"
    )

    assert (old["requests_per_s"], old["total_tokens_per_s"]) == (0.5, 300.0)
    assert (new["output_tokens_per_s"], new["total_tokens_per_s"]) == (100.0, 300.0)
    # 20,000 tokens at 100 a second are 200 s, at 0.5 requests a second 100 requests.
    assert new["successful_requests"] == 100


def test_a_result_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    whole = json.dumps(RESULT | {"generated_texts": ['"mean_tpot_ms": 5000.0', "x" * 1000]})
    reading = of(whole[:-300])

    assert reading.problem is not None
    assert "cut off" in reading.problem
    # What a model answered is no value of the result.
    assert benchmarks(reading)[0].values["mean_tpot_ms"] == 20.0


def test_what_failed_is_told_by_its_words() -> None:
    failed = RESULT | {"completed": 0, "failed": 2, "mean_ttft_ms": 0.0, "mean_tpot_ms": 0.0}
    refused = ["Traceback ...\naiohttp.ClientConnectorError: Cannot connect to host a:8000"] * 2

    assert values(json.dumps(failed | {"errors": refused}))["failure"] == "refused"
    assert values(json.dumps(failed | {"errors": ["Bad Request", "Bad Request"]}))["failure"] == "rejected"  # fmt: skip
    assert values(json.dumps(failed))["failure"] == "not said"
    assert "failure" not in values(json.dumps(RESULT | {"failed": 0, "errors": [""]}))
    assert "mean_ttft_ms" not in values(json.dumps(failed))


@pytest.mark.parametrize(
    "log",
    [
        "INFO 12-01 10:00:00 [x.py:1] begun\n" + TABLE,
        TABLE.lstrip() + "INFO 12-01 10:00:00 [x.py:1] Application shutdown complete.\n",
        "Throughput: 0.50 requests/s, 300.00 tokens/s\n[rank0]: Traceback (most recent call last):\n",
        '{"log":"{\\"request_throughput\\": 1.0, \\"duration\\": 2.0}\\n","stream":"stdout"}\n',
        '{"level": "info", "message": "done"}\n',
    ],
)
def test_a_log_that_holds_a_result_stays_a_log(log: str) -> None:
    assert format_of(log) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([*RESULT, "errors", "failed", "avg_latency", "elapsed_time"]), JSON))  # fmt: skip
def test_no_value_raises_anything(changed: dict[str, Any]) -> None:
    for one in of(json.dumps(RESULT | changed)).observations:
        for value in one.values.values():
            assert isinstance(value, str) or 0 <= value < float("inf")


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from(sorted(set(TABLE + '{}[]":,\\e9\x00\u0663'))), max_size=300), st.integers(0, len(TABLE)))  # fmt: skip
def test_no_text_raises_anything(text: str, cut: int) -> None:
    for whole in (text, TABLE[:cut] + text, "{" + text, json.dumps(RESULT)[:cut] + text):
        of(whole)


def test_json_that_is_very_deep_is_a_problem_and_nothing_more() -> None:
    assert of('{"request_throughput": ' + "[" * 100_000).problem is not None
