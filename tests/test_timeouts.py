"""A user's regex that takes too long is said so once and skipped; all else is found."""

import logging
from pathlib import Path

import pytest

from tests.test_cli import run
from tests.traffic import traffic
from vllm_triage import Kind, Scanner, learning, matches, split
from vllm_triage.model import Update
from vllm_triage.pipeline import triage_paths
from vllm_triage.watch import Watch

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
    return Scanner("x.log", rules=[_folder(tmp_path, request.param)])


def _folder(tmp_path: Path, asked: str) -> Path:
    path = tmp_path / "rules" / "performance" / "slow_decode.toml"
    path.parent.mkdir(parents=True)
    path.write_text(RULE.format(name="for-ever", asked=asked), "utf-8")
    return tmp_path / "rules"


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


def test_it_is_said_once_however_many_processes_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("_CHUNK", 9_000), ("_LEARNING", 27_000), ("LARGE_BYTES", 2)):
        monkeypatch.setattr(split, name, value)
    monkeypatch.setattr("vllm_triage.paths.LARGE_BYTES", 1)
    monkeypatch.setattr(matches, "TIMEOUT_S", 0.02)
    log = tmp_path / "x.log"
    rows = b"".join(traffic(1, 600))
    log.write_bytes(b"\n".join([rows, ERROR.encode(), rows, ERROR.encode() + b"4", OOM.encode()]))
    report = triage_paths([log], rules=[_folder(tmp_path, LOG)], jobs=3)

    assert len(warnings(caplog)) == 1
    assert "oom" in {incident.kind.partition(".")[0] for incident in report.incidents}


@pytest.mark.parametrize("args", [(), ("filter",)], ids=["triage", "filter"])
def test_the_command_says_it_once_and_tells_the_rest(
    args: tuple[str, ...], tmp_path: Path
) -> None:
    rules = _folder(tmp_path, LOG)
    log = "\n".join([ERROR, ERROR.replace("lost", "gone"), OOM, ""]).encode()
    done = run(*args, "--rules", rules, stdin=log)
    said = done.stdout + done.stderr

    assert done.returncode == (0 if args else 1)
    assert said.count("skipped from now on") == 1
    assert "check-rules" in said
    assert "oom.load" in said


def test_several_watched_logs_say_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(matches, "TIMEOUT_S", 0.02)
    told: list[Update] = []
    watch = Watch(
        Scanner(rules=[_folder(tmp_path, LOG)]), told.append, lambda text: None, from_start=True
    )
    names = [str(tmp_path / "a.log"), str(tmp_path / "b.log")]
    for name in names:
        Path(name).write_text(f"{ERROR}\n{OOM}\n", "utf-8")
    watch.add_files(names)
    while watch.step(0.0):
        pass
    watch.close()

    assert len(warnings(caplog)) == 1
    assert {one.evidence[0].source for one in told if one.kind is Kind.OOM_LOAD} == {*names}
