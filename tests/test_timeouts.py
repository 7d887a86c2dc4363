"""A user's regex that takes too long is said so once and skipped; all else is found."""

import logging
from pathlib import Path

import pytest

from vllm_triage import Scanner, learning, matches

ERROR = "ERROR 12-01 10:00:00 [core.py:1] RuntimeError: frobnicator lost 0123456789012345678901234567890"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free."
WINDOW = "INFO 12-01 10:00:{:02} [loggers.py:127] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 9{:02}.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%"
RULE = """
[[pattern]]
name       = "{name}"
{asked}
regex      = '''(?:[^\\n]|[^\\n])*(?P<running>[0-9])[!~]'''
printed_by = "acme"
hits       = ["x"]
misses     = ["y"]
"""
LOG = 'keywords = ["frobnicator"]'
STATISTICS = 'keywords = ["Avg generation"]\norigin = "statistics"\nlevel = "info"\nat_least = { running = 1 }'


@pytest.fixture
def scanner(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Scanner:
    for module in (matches, learning):
        monkeypatch.setattr(module, "TIMEOUT_S", 0.02)
    path = tmp_path / "performance" / "slow_decode.toml"
    path.parent.mkdir()
    path.write_text(RULE.format(name="for-ever", asked=request.param), "utf-8")
    return Scanner("x.log", rules=[tmp_path])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


@pytest.mark.parametrize("scanner", [LOG], indirect=True)
def test_in_a_record_it_is_skipped_from_then_on(
    scanner: Scanner, caplog: pytest.LogCaptureFixture
) -> None:
    for line in (ERROR, ERROR.replace("lost", "gone"), OOM):
        list(scanner.feed(line))
    list(scanner.close())

    assert len(warnings(caplog)) == 1
    assert "performance.slow_decode:for-ever" in warnings(caplog)[0]
    assert "oom.load" in [incident.kind for incident in scanner.report().incidents]


@pytest.mark.parametrize("scanner", [STATISTICS], indirect=True)
def test_in_statistics_it_ends_nothing(scanner: Scanner, caplog: pytest.LogCaptureFixture) -> None:
    rows = [WINDOW.format(number % 60, number) for number in range(40)]
    list(scanner.feed_lines("\n".join([*rows, OOM]).encode()))
    list(scanner.close())

    assert len(warnings(caplog)) == 1
    assert "oom" in {incident.kind.partition(".")[0] for incident in scanner.report().incidents}
