"""Each kind ends with how to see that the remedy worked, as its release shows it."""

import pytest
import regex

from tests.releases import VERSIONS
from vllm_triage import triage
from vllm_triage.catalogue import Catalogue
from vllm_triage.fixes import render_verify
from vllm_triage.kinds import Kind
from vllm_triage.rules import Verify
from vllm_triage.run import Run
from vllm_triage.values import values_of
from vllm_triage.versions import holds

MAX_LENGTH = 200
# A line of the log in quotes, or a command or metric as code.
_CHECKABLE = regex.compile(
    r'"[^"]{5,}"|`(?:curl|dmesg|df|id|kubectl|lm_eval|lsof|nvidia-smi|pgrep|python|ray|vllm)[ :][^`]+`'
)


def checks(catalogue: Catalogue, kind: Kind) -> list[str]:
    rule = catalogue.rules[kind]
    return [render_verify(rule, {}, version) or "" for version in VERSIONS]


@pytest.mark.parametrize("kind", Kind)
def test_every_release_gets_something_to_check(kind: Kind, catalogue: Catalogue) -> None:
    unknown = render_verify(catalogue.rules[kind], {}, None) or ""
    assert len(unknown) <= MAX_LENGTH + 50, unknown
    for text in checks(catalogue, kind):
        assert _CHECKABLE.search(text), text
        assert len(text) <= MAX_LENGTH
        assert "{" not in text
        # A server with an API key answers 401 there; /health and /metrics need none.
        assert "/v1" not in text or "the server logs" in text.lower()


@pytest.mark.parametrize("kind", Kind)
def test_forms_by_release_leave_no_gap_and_do_not_overlap(
    kind: Kind, catalogue: Catalogue
) -> None:
    verify = catalogue.rules[kind].verify
    forms: tuple[Verify, ...] = verify if isinstance(verify, tuple) else ()
    for version in VERSIONS if forms else ():
        assert sum(holds(version, form.since, form.until) for form in forms) == 1


@pytest.mark.parametrize(
    ("kind", "version", "words"),
    [
        ("oom.kv_cache", "0.6.2", "# GPU blocks:"),
        ("oom.kv_cache", "0.10.2", "Maximum concurrency for"),
        ("performance.kv_cache_pressure", "0.3.3", "Pending: 0 reqs"),
        ("performance.kv_cache_pressure", "0.8.5", "`vllm:gpu_cache_usage_perc`"),
        ("performance.kv_cache_pressure", "0.9.2", "`vllm:kv_cache_usage_perc`"),
        ("performance.slow_decode", "0.6.3", "`vllm:time_per_output_token_seconds`"),
        ("performance.slow_decode", "0.33", "`vllm:inter_token_latency_seconds`"),
        ("distributed.init_failed", "0.8.3", "is assigned as DP rank"),
        ("performance.low_throughput", "0.7.4", "vllm bench serve"),
    ],
)  # fmt: skip
def test_the_release_decides_what_to_look_at(
    kind: str, version: str, words: str, catalogue: Catalogue
) -> None:
    assert words in (render_verify(catalogue.rules[Kind(kind)], {}, version) or "")


def test_an_unknown_release_gets_the_newest_check_and_the_one_before(catalogue: Catalogue) -> None:
    text = render_verify(catalogue.rules[Kind("performance.slow_decode")], {}, None) or ""

    assert text.startswith("On `/metrics` the mean of `vllm:inter_token_latency_seconds`")
    assert "vLLM 0.3.3 - 0.10.1: On `/metrics` the mean of `vllm:time_per_output_token" in text


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        ({}, "http://localhost:8000"),
        ({"host": "0.0.0.0", "port": 8001}, "http://localhost:8001"),
        ({"host": "10.0.0.7", "port": 8001}, "http://10.0.0.7:8001"),
        ({"port": 8443, "ssl_certfile": "/c.pem"}, "https://localhost:8443"),
    ],
)
def test_the_check_asks_where_this_server_answers(
    arguments: dict[str, str | int], url: str, catalogue: Catalogue
) -> None:
    run = Run("log", 1)
    run.arguments.update(arguments)

    text = render_verify(catalogue.rules[Kind("oom.load")], values_of(None, run), "0.10.2") or ""

    assert f"`curl -i {url}/health`" in text


def test_a_log_cannot_put_a_command_into_the_check(catalogue: Catalogue) -> None:
    values = {"server_url": "http://x;reboot", "model": "'); import os; os.system('reboot') #"}
    for kind in Kind:
        assert "reboot" not in (render_verify(catalogue.rules[kind], values, "0.10.2") or "")


def test_a_report_carries_the_check_of_its_release() -> None:
    log = [
        "INFO 03-01 10:00:00 api_server.py:712] vLLM API server version 0.6.3",
        "INFO 03-01 10:00:01 api_server.py:713] args: Namespace(model='a/b', host='10.0.0.7', port=8123)",
        "ERROR 03-01 10:00:09 engine.py:1] ValueError: No available memory for the cache blocks. "
        "Try increasing `gpu_memory_utilization` when initializing the engine.",
    ]
    report = triage(iter(log))

    assert report.root is not None
    assert report.root.kind is Kind("oom.kv_cache")
    assert report.root.verify == (
        'The log prints "Maximum concurrency for" the context and at least "1.00x", '
        'then "Application startup complete."'
    )
