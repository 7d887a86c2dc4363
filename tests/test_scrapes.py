"""Scrapes of `/metrics`: what is read of them, and from where on it counts as a fault."""

from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import FIXTURES
from tests.test_cli import run
from vllm_triage import TriageError, triage
from vllm_triage.artefacts import exposition, prometheus
from vllm_triage.artefacts.formats import format_of
from vllm_triage.artefacts.histograms import Histogram
from vllm_triage.artefacts.observations import Observation, line
from vllm_triage.artefacts.scrape_series import series
from vllm_triage.catalogue import load
from vllm_triage.kinds import Kind
from vllm_triage.thresholds import thresholds

HIGH_TTFT = FIXTURES / "artefacts" / "scrape-high-ttft-0.10.2" / "metrics.txt"
BUSY = FIXTURES / "artefacts" / "scrape-busy-0.6.3" / "metrics.txt"

# What tells of requests, queues and latencies, from the release on that brought or dropped a name.
NAMES = {
    "0.2.7": "num_requests_running num_requests_waiting num_requests_swapped gpu_cache_usage_perc",
    "0.3.3": "num_requests_running num_requests_waiting num_requests_swapped gpu_cache_usage_perc prompt_tokens_total generation_tokens_total time_to_first_token_seconds time_per_output_token_seconds e2e_request_latency_seconds",
    "0.4.3": "num_requests_running num_requests_waiting num_requests_swapped gpu_cache_usage_perc num_preemptions_total prompt_tokens_total generation_tokens_total request_success_total time_to_first_token_seconds time_per_output_token_seconds e2e_request_latency_seconds",
    "0.6.4": "num_requests_running num_requests_waiting num_requests_swapped gpu_cache_usage_perc num_preemptions_total prompt_tokens_total generation_tokens_total request_success_total time_to_first_token_seconds time_per_output_token_seconds e2e_request_latency_seconds time_in_queue_requests",
    "0.7.3": "num_requests_running num_requests_waiting gpu_cache_usage_perc num_preemptions_total prompt_tokens_total generation_tokens_total request_success_total time_to_first_token_seconds time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds gpu_prefix_cache_queries_total gpu_prefix_cache_hits_total",
    "0.10.2": "num_requests_running num_requests_waiting gpu_cache_usage_perc kv_cache_usage_perc num_preemptions_total prompt_tokens_total generation_tokens_total request_success_total time_to_first_token_seconds time_per_output_token_seconds inter_token_latency_seconds e2e_request_latency_seconds request_queue_time_seconds gpu_prefix_cache_queries_total gpu_prefix_cache_hits_total prefix_cache_queries_total prefix_cache_hits_total",
    "0.12.0": "num_requests_running num_requests_waiting kv_cache_usage_perc num_preemptions_total prompt_tokens_total generation_tokens_total request_success_total time_to_first_token_seconds time_per_output_token_seconds inter_token_latency_seconds request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds prefix_cache_queries_total prefix_cache_hits_total",
    "0.15.1": "num_requests_running num_requests_waiting kv_cache_usage_perc num_preemptions_total prompt_tokens_total generation_tokens_total request_success_total time_to_first_token_seconds inter_token_latency_seconds request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds prefix_cache_queries_total prefix_cache_hits_total",
}


def observed(text: str, source: str = "metrics.txt") -> list[Observation]:
    lines = [line(source, number, row) for number, row in enumerate(text.split("\n"), 1)]
    return list(prometheus.read(lines).observations)


def values(text: str) -> dict[str, str | float]:
    (one,) = [one for one in observed(text) if one.subject == "metrics"]
    return one.values


def histogram(name: str, seen: int, mean: float, labels: str = "") -> str:
    shown = f"{{{labels}}}" if labels else ""
    return f"vllm:{name}_count{shown} {seen}.0\nvllm:{name}_sum{shown} {seen * mean}\n"


def judged(tmp_path: Path, *texts: str, **thresholds: float) -> list[Kind]:
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text(text)
    found = triage(
        files, thresholds={name.replace("_", "-"): one for name, one in thresholds.items()}
    )
    return [one.kind for one in found.incidents]


@pytest.mark.parametrize("release", NAMES)
@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm_"])
def test_the_names_of_every_release_are_read(release: str, prefix: str) -> None:
    rows = ["# HELP of_a_release its metrics"]
    for name in NAMES[release].split():
        if "seconds" in name or name == "time_in_queue_requests":
            rows += [
                f'{prefix}{name}_sum{{model_name="m"}} 60',
                f'{prefix}{name}_count{{model_name="m"}} 120',
            ]
        else:
            rows.append(f'{prefix}{name}{{model_name="m"}} {0.5 if "perc" in name else 8}')
    text = "\n".join(rows)

    found = values(text)

    assert format_of(text) is not None
    assert (found["running"], found["waiting"], found["kv_cache_usage_pct"]) == (8, 8, 50)
    if release != "0.2.7":
        assert (found["mean_ttft_ms"], found["mean_tpot_ms"], found["mean_e2e_ms"]) == (
            500,
            500,
            500,
        )
    if "queue" in NAMES[release]:
        assert found["mean_queue_ms"] == 500
    if "preemptions" in NAMES[release]:
        assert (found["preemptions"], found["successful_requests"]) == (8, 8)
    if "cache_hits" in NAMES[release]:
        assert found["prefix_cache_hit_pct"] == 100


def test_a_quantile_is_interpolated_as_prometheus_does() -> None:
    one = Histogram(100, 70.0, ((0.5, 20.0), (1.0, 60.0), (2.0, 90.0), (inf, 100.0)))

    assert one.mean == 0.7
    assert one.quantile(0.1) == 0.25  # half of the first bucket, which begins at 0
    assert one.quantile(0.5) == 0.875  # 30 of the 40 that lie between 0.5 and 1
    assert one.quantile(0.9) == 2.0
    assert one.quantile(0.99) == 2.0  # of the infinite bucket the lower bound is known
    assert Histogram(0, 0.0, ((0.5, 0.0), (inf, 0.0))).quantile(0.5) is None
    assert Histogram(5, 1.0, ((0.5, 5.0),)).quantile(0.5) is None
    assert Histogram(5, 1.0).quantile(0.5) is None


def test_quantiles_of_a_real_scrape() -> None:
    found = values(BUSY.read_text())

    # 4249.5 of 8499 lie in the bucket from 0.5 s (3566) to 0.75 s (6812).
    assert found["median_ttft_ms"] == round(500 + 250 * (4249.5 - 3566) / (6812 - 3566), 3)
    assert found["mean_ttft_ms"] == round(5686.670262336731 / 8499 * 1000, 3)
    assert found["aborted_requests"] == 28
    assert found["successful_requests"] == 6198
    assert "prefix_cache_hit_pct" not in found  # -1 says that there is none


@pytest.mark.parametrize(("mean", "kinds"), [(0.999, []), (1.0, [Kind.PERFORMANCE_HIGH_TTFT])])
def test_time_to_first_token(tmp_path: Path, mean: float, kinds: list[Kind]) -> None:
    assert judged(tmp_path, histogram("time_to_first_token_seconds", 500, mean)) == kinds


@pytest.mark.parametrize(("seen", "kinds"), [(19, []), (20, [Kind.PERFORMANCE_HIGH_TTFT])])
def test_a_few_requests_tell_nothing_that_lasts(
    tmp_path: Path, seen: int, kinds: list[Kind]
) -> None:
    assert judged(tmp_path, histogram("time_to_first_token_seconds", seen, 4.0)) == kinds


@pytest.mark.parametrize(("mean", "kinds"), [(0.099, []), (0.1, [Kind.PERFORMANCE_SLOW_DECODE])])
def test_time_per_output_token(tmp_path: Path, mean: float, kinds: list[Kind]) -> None:
    text = histogram("time_to_first_token_seconds", 500, 0.2)
    text += histogram("request_time_per_output_token_seconds", 500, mean)

    assert judged(tmp_path, text) == kinds


def test_steps_that_give_several_tokens_are_no_slow_tokens(tmp_path: Path) -> None:
    text = histogram("time_to_first_token_seconds", 500, 0.2)
    text += histogram("inter_token_latency_seconds", 50_000, 0.16)

    assert judged(tmp_path, text) == [Kind.PERFORMANCE_SLOW_DECODE]
    assert judged(tmp_path, text + "vllm:spec_decode_num_accepted_tokens_total 150000.0\n") == []


def test_of_two_faults_the_time_to_first_token_is_told(tmp_path: Path) -> None:
    text = histogram("time_to_first_token_seconds", 500, 3.0)
    text += histogram("inter_token_latency_seconds", 50_000, 0.3)

    assert judged(tmp_path, text) == [Kind.PERFORMANCE_HIGH_TTFT]


@pytest.mark.parametrize(
    ("preemptions", "kinds"), [(4, []), (5, [Kind.PERFORMANCE_KV_CACHE_PRESSURE])]
)
def test_preemptions(tmp_path: Path, preemptions: int, kinds: list[Kind]) -> None:
    text = f'vllm:num_preemptions_total {preemptions}.0\nvllm:request_success_total{{finished_reason="stop"}} 500.0\n'

    assert judged(tmp_path, text) == kinds


def gauges(running: float, waiting: float, cache: float, more: str = "") -> str:
    return f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\nvllm:kv_cache_usage_perc {cache}\n{more}"


@pytest.mark.parametrize(
    ("first", "later", "kinds"),
    [
        (gauges(40, 3, 0.95), gauges(41, 1, 0.96), [Kind.PERFORMANCE_KV_CACHE_PRESSURE]),
        (gauges(40, 3, 0.949), gauges(41, 1, 0.96), []),
        (gauges(40, 3, 0.99), gauges(41, 0, 0.99), []),
        (gauges(40, 3, 0.99), "vllm:num_requests_running 41\n", []),
    ],
)
def test_what_two_scrapes_show_lasts(
    tmp_path: Path, first: str, later: str, kinds: list[Kind]
) -> None:
    assert judged(tmp_path, first) == []
    assert judged(tmp_path, first, later) == kinds
    assert judged(tmp_path, first + later) == kinds


def test_a_scrape_given_twice_is_one(tmp_path: Path) -> None:
    assert judged(tmp_path, gauges(40, 3, 0.99), gauges(40, 3, 0.99)) == []


def test_a_preempting_server_is_late_for_that_reason(tmp_path: Path) -> None:
    text = histogram("time_to_first_token_seconds", 500, 3.0) + "vllm:num_preemptions_total 90\n"

    found = judged(tmp_path, text)

    assert found == [Kind.PERFORMANCE_KV_CACHE_PRESSURE, Kind.PERFORMANCE_HIGH_TTFT]


def ended(at: str, requests: int, waiting: int = 9) -> str:
    return (
        f"# {at}\n{gauges(16, waiting, 0.3)}"
        + histogram("time_to_first_token_seconds", requests, 0.3)
        + histogram("inter_token_latency_seconds", requests * 100, 0.02)
        + histogram("e2e_request_latency_seconds", requests, 2.0)
    )


@pytest.mark.parametrize(
    ("requests", "waiting", "kinds"),
    [
        (3000, 9, [Kind.PERFORMANCE_LOW_THROUGHPUT]),
        (3001, 9, []),
        (300, 1, []),
        (300, 2, [Kind.PERFORMANCE_LOW_THROUGHPUT]),
    ],
)
def test_requests_a_second(tmp_path: Path, requests: int, waiting: int, kinds: list[Kind]) -> None:
    first, later = ended("1796105796", 100), ended("1796105856.0", 100 + requests, waiting)

    assert judged(tmp_path, first, later) == kinds
    assert judged(tmp_path, later, first) == kinds


@pytest.mark.parametrize(
    "at",
    [
        ("# 2026-12-02T10:00:00Z", "# 2026-12-02T11:01:00+01:00"),
        ("# scraped at 1796205600", "# scraped at 1796205660"),
        ("HTTP/1.1 200 OK\ndate: Wed, 02 Dec 2026 10:00:00 GMT\n", "HTTP/1.1 200 OK\ndate: Wed, 02 Dec 2026 10:01:00 GMT\n"),
    ],
)  # fmt: skip
def test_the_time_between_scrapes(at: tuple[str, str]) -> None:
    text = "".join(
        f"{one}\n" + histogram("e2e_request_latency_seconds", seen, 1.0)
        for one, seen in zip(at, (40, 100), strict=True)
    )

    (one,) = series(observed(text))

    assert (one.values["duration_s"], one.values["requests_per_s"]) == (60, 1)


def test_one_scrape_whose_time_is_known_tells_rates_since_the_start() -> None:
    text = "# 1796105829.5\nprocess_start_time_seconds 1796105729.5\n"

    found = values(text + histogram("e2e_request_latency_seconds", 250, 1.0))

    assert (found["duration_s"], found["requests_per_s"], found["scrapes"]) == (100, 2.5, 1)


def test_time_stamps_of_samples_tell_it_too() -> None:
    text = "vllm:e2e_request_latency_seconds_count 40 1796205600000\nvllm:e2e_request_latency_seconds_sum 40 1796205600000\n"
    later = text.replace(" 40 ", " 100 ").replace("5600000", "5660000")

    (one,) = series([*observed(text, "b"), *observed(later, "a")])

    assert (one.values["duration_s"], one.values["requests_per_s"]) == (60, 1)


def test_what_came_between_two_scrapes_is_judged_not_what_was_before(tmp_path: Path) -> None:
    slow = histogram("time_to_first_token_seconds", 100, 9.0)
    better = (
        "vllm:time_to_first_token_seconds_count 300\nvllm:time_to_first_token_seconds_sum 930\n"
    )

    assert judged(tmp_path, better) == [Kind.PERFORMANCE_HIGH_TTFT]
    assert judged(tmp_path, slow, better) == []


def test_a_restart_between_scrapes_is_no_rate() -> None:
    first = histogram("e2e_request_latency_seconds", 900, 1.0)
    started = "process_start_time_seconds 1796105729.5\n"

    in_one_file = series(observed(first + histogram("e2e_request_latency_seconds", 30, 1.0)))
    in_two = series(
        [*observed(started + first), *observed(started.replace("29", "99") + first, "b")]
    )

    assert [one.values["scrapes"] for one in in_one_file] == [1, 1]
    assert [one.values["scrapes"] for one in in_two] == [1, 1]


def test_engines_are_told_apart(tmp_path: Path) -> None:
    text = histogram("time_to_first_token_seconds", 500, 0.2, 'engine="0"')
    text += histogram("time_to_first_token_seconds", 500, 5.0, 'engine="1"').replace(
        "count", "count", 1
    )
    text += histogram("time_to_first_token_seconds", 500, 7.0, 'engine="2"')
    file = tmp_path / "metrics.txt"
    file.write_text(text)

    (found,) = triage(file).incidents

    assert found.processes == ("Engine 1", "Engine 2")
    assert found.count == 2


def test_engines_are_shown_beside_each_other() -> None:
    text = histogram("time_to_first_token_seconds", 500, 0.2, 'engine="0"')
    text += histogram("time_to_first_token_seconds", 500, 5.0, 'engine="1"')

    tables = {one.table for one in series(observed(text))}

    (table,) = tables
    assert table[0] == ("engine", "running", "waiting", "KV cache (%)", "mean TTFT", "mean TPOT", "preemptions")  # fmt: skip
    assert table[1:] == (("Engine 0", "", "", "", "200 ms", "", ""), ("Engine 1", "", "", "", "5 s", "", ""))  # fmt: skip
    assert not series(observed(histogram("time_to_first_token_seconds", 5, 1.0)))[0].table


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# HELP node_load1 1m load average.\nnode_load1 0.3",
        "vllm: error: unrecognized arguments: --foo",
        "# TYPE vllm:num_requests_running gauge\nINFO 12-01 10:00:00 [loggers.py:259] Engine 000",
        "vllm:num_requests_running 3\nTraceback (most recent call last):\n  File",
        "INFO:     Started server process [1]\nvllm:num_requests_running 3\n",
        "# vllm_runner\nexport VLLM_USE_V1=1\n",
    ],
)
def test_a_log_is_no_scrape(text: str) -> None:
    assert not exposition.fits(text)


def test_a_scrape_cut_at_any_place_is_one() -> None:
    whole = HIGH_TTFT.read_text()

    for end in range(900, len(whole), 311):
        assert format_of(whole[:end]) is not None, end


def test_a_file_without_end_is_read_in_part() -> None:
    text = "".join(f"vllm:num_requests_running {number}\n" for number in range(5000))
    lines = [line("metrics.txt", number, row) for number, row in enumerate(text.split("\n"), 1)]

    reading = prometheus.read(lines)

    assert reading.problem == "only its first 1,000 scrapes were read"
    assert len(reading.observations) == 1000
    assert [one.values["scrapes"] for one in series(reading.observations)] == [1000]


_NAMES = st.sampled_from(
    ["vllm:time_to_first_token_seconds", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:num_preemptions_total", "vllm:request_success_total",
     "process_start_time_seconds", "vllm:e2e_request_latency_seconds"]
)  # fmt: skip
_VALUES = st.one_of(
    st.sampled_from(["NaN", "+Inf", "-Inf", "-1", "1e999", "0x10", "", "1_0", "9" * 400, "1e308"]),
    st.floats().map(str),
)
_ROWS = st.one_of(
    st.builds(
        "{}{}{} {}".format,
        _NAMES,
        st.sampled_from(["", "_bucket", "_sum", "_count", "_created"]),
        st.sampled_from(["", "{}", '{le="1"}', '{le="NaN"}', '{le="+Inf"}', '{le="-3"}', '{engine="1",le="x"}', '{a="\\"}', '{a="}"}']),
        _VALUES,
    ),
    st.sampled_from(["# EOF", "HTTP/1.1 200 OK", "date: never", "# 2026-99-99T99:99:99", "# 9999999999", "\0"]),
    st.text(max_size=60),
)  # fmt: skip


@given(st.lists(_ROWS, max_size=60))
def test_nothing_that_a_scrape_holds_raises(rows: list[str]) -> None:
    text = "\n".join(rows)

    exposition.fits(text)
    found = series(observed(text))

    for one in found:
        for name, value in one.values.items():
            assert isinstance(value, str) or 0 <= value < inf, name


def test_thresholds_are_settable_for_scrapes(tmp_path: Path) -> None:
    text = histogram("time_to_first_token_seconds", 500, 0.6)

    assert judged(tmp_path, text) == []
    assert judged(tmp_path, text, ttft_ms=600) == [Kind.PERFORMANCE_HIGH_TTFT]
    assert judged(tmp_path, text, ttft_ms=600, min_requests=501) == []


def test_thresholds_are_settable_for_logs(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    window = "INFO 07-24 06:34:{} [loggers.py:310] Engine 000: Avg prompt throughput: 120.0 tokens/s, Avg generation throughput: 800.1 tokens/s, Running: 40 reqs, Waiting: 12 reqs, GPU KV cache usage: 93.1%, Prefix cache hit rate: 0.0%\n"
    log.write_text("".join(window.format(second) for second in range(10, 50)))

    assert triage(log).incidents == ()
    (found,) = triage(log, thresholds={"kv-cache-full-pct": 93}).incidents
    assert found.kind is Kind.PERFORMANCE_KV_CACHE_PRESSURE
    assert triage(log).incidents == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ttft=3", "threshold ttft: no such threshold; did you mean ttft-ms"),
        ("ttft-ms=soon", "threshold ttft-ms=soon: not a number from 0 on"),
        ("ttft-ms=nan", "threshold ttft-ms=nan: not a number from 0 on"),
        ("ttft-ms=-1", "threshold ttft-ms=-1: not a number from 0 on"),
        ("ttft-ms", "threshold ttft-ms: write it as NAME=VALUE"),
    ],
)
def test_a_wrong_threshold_is_told_in_a_sentence(given: str, said: str) -> None:
    done = run("--threshold", given, HIGH_TTFT)

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_takes_thresholds() -> None:
    assert run(HIGH_TTFT).returncode == 1
    assert run("--threshold", "ttft-ms=2400", HIGH_TTFT).returncode == 0
    assert (
        "usual_ttft_ms >= 2400"
        in run("explain", "performance.high_ttft", "--threshold", "ttft-ms=2400").stdout
    )


def test_a_rule_that_names_no_threshold_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "performance"
    folder.mkdir()
    (folder / "high_ttft.toml").write_text(
        '[[pattern]]\nname = "mine"\nartefact = "metrics"\nat_least = { mean_ttft_ms = "ttft" }\nprinted_by = "vllm"\nhits = ["x"]\nmisses = ["y"]\n'
    )

    with pytest.raises(TriageError, match="mine: 'ttft' is no threshold; did you mean ttft-ms"):
        load(tmp_path)


def test_every_threshold_is_named_by_a_rule() -> None:
    texts = [path.read_text("utf-8") for path in (FIXTURES.parent / "patterns").glob("*/*.toml")]

    unused = [
        one.name for one in thresholds() if not any(f'"{one.name}"' in text for text in texts)
    ]

    assert unused == []


def test_only_what_is_slow_is_shown_as_evidence(tmp_path: Path) -> None:
    file = tmp_path / "metrics.txt"
    text = histogram("time_to_first_token_seconds", 300, 0.4)
    text += histogram("time_per_output_token_seconds", 30_000, 0.1403)
    file.write_text(text)

    (found,) = triage(file).incidents

    assert found.kind is Kind.PERFORMANCE_SLOW_DECODE
    assert all("time_per_output_token" in one.text for one in found.evidence)
    assert "A token took 140 ms on average." in found.summary


def test_a_scrape_that_is_cut_off_lasted_with_none_before_it(tmp_path: Path) -> None:
    """The server was started again between the two, which only the counters that are cut off tell."""
    scrape = FIXTURES / "artefacts" / "scrape-restarted-0.32.0" / "scrapes.txt"
    text = scrape.read_text("utf-8")
    at = text.rindex("vllm:prefix_cache_hits_total{")
    file = tmp_path / "metrics.txt"

    for cut in (at, at + 40, text.index("\n", at) - 3):
        file.write_text(text[:cut], "utf-8")

        assert not [
            one for one in triage(file).incidents if one.kind is Kind.PERFORMANCE_KV_CACHE_PRESSURE
        ]


def test_of_a_number_that_may_be_cut_off_nothing_is_made(tmp_path: Path) -> None:
    file = tmp_path / "metrics.txt"
    whole = "vllm:time_to_first_token_seconds_sum 300\nvllm:time_to_first_token_seconds_count 3000"
    file.write_text(whole[:-1], "utf-8")

    report = triage(file)

    assert not report.incidents
    assert "has no end and was left out" in str(report.sources[0].problem)
    file.write_text(whole[:-1] + "\n", "utf-8")
    assert [one.kind for one in triage(file).incidents] == [Kind.PERFORMANCE_HIGH_TTFT]


LOG = "INFO 12-01 10:00:00 [x.py:1] fine\nINFO:     Application startup complete.\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("order", ["log first", "scrape first", "between"])
def test_a_scrape_may_stand_in_the_file_of_the_log(tmp_path: Path, order: str, end: str) -> None:
    scrape = FIXTURES / "artefacts" / "scrape-high-ttft-0.10.2" / "metrics.txt"
    text = scrape.read_text("utf-8")
    parts = {
        "log first": [LOG * 5000, text],
        "scrape first": [text, LOG],
        "between": [LOG, text, LOG],
    }
    file = tmp_path / "all.log"
    file.write_bytes("".join(parts[order]).replace("\n", end).encode())

    (found,) = triage(file).incidents

    assert found.kind is Kind.PERFORMANCE_HIGH_TTFT
    shown = file.read_text("utf-8").splitlines()[found.evidence[0].line - 1]
    assert found.evidence[0].text == shown.rstrip()


def test_what_a_log_quotes_of_metrics_is_no_scrape(tmp_path: Path) -> None:
    file = tmp_path / "all.log"
    rows = [
        "INFO 12-01 10:00:00 [x.py:1] vllm:time_to_first_token_seconds_sum 300",
        "vllm: error: no",
    ]
    file.write_text(
        "\n".join([*rows, "# TYPE of request: chat", "vllm:count of them 20", ""]), "utf-8"
    )

    assert not triage(file).incidents


def test_a_table_of_gpus_may_stand_in_the_file_of_the_log(tmp_path: Path) -> None:
    listing = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    3 |
| N/A   34C    P0             61W /  400W |   70000MiB /  81920MiB |     97%      Default |
+-----------------------------------------+------------------------+----------------------+
"""
    file = tmp_path / "all.log"
    file.write_text(LOG + listing + LOG, "utf-8")

    assert [one.kind for one in triage(file).incidents] == [Kind.GPU_HARDWARE]


@pytest.mark.parametrize("value", ["1e308", "1e-320"])
def test_a_number_beyond_all_measure_makes_nothing_infinite(value: str) -> None:
    text = f"vllm:kv_cache_usage_perc {value}\nvllm:time_to_first_token_seconds_sum 3\nvllm:time_to_first_token_seconds_count {value}\n"

    values = [one for found in series(observed(text)) for one in found.values.values()]

    assert all(isinstance(one, str) or one < inf for one in values)
