"""What holds for any input."""

from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import FIXTURES, Fixture, fixtures, name_of
from vllm_triage import Report, Scanner, triage
from vllm_triage.catalogue import load

CATALOGUE = load()
TEMPLATE = regex.compile(r"\{[a-z_0-9]+:(?! )")
LOGS = [one for one in fixtures() if one.log.stat().st_size < 60_000]
HEALTHY = [
    "INFO 12-01 06:17:30 [model.py:733] Resolved architecture: LlamaForCausalLM",
    'INFO:     127.0.0.1:36318 - "GET /health HTTP/1.1" 200 OK',
    "(EngineCore pid=8715) INFO 12-01 06:17:54 [compilation.py:317] Enabled custom fusions: norm_quant",
    "Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00,  2.30it/s]",
]
PIECES = st.sampled_from(
    [
        "Traceback (most recent call last):", '  File "/x/vllm/engine.py", line 3, in run', "    raise",
        "ValueError: no", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "(EngineCore_DP0 pid=1) ", "ERROR 12-01 06:17:30 [core.py:1] ", "[rank0]: ", "\x1b[36m", "{\"log\": \"x\\n\"}",
        "The above exception was the direct cause of the following exception:", "Killed", "\x00", "\r", "\ufeff",
        "2026-12-01T06:17:30.1Z stderr P ", "============ Serving Benchmark Result ============", "{" * 300,
    ]
)  # fmt: skip


def scanned(lines: list[str]) -> Report:
    scanner = Scanner(catalogue=CATALOGUE)
    for line in lines:
        list(scanner.feed(line))
    list(scanner.close())
    return scanner.report()


@given(st.binary(max_size=3000))
@settings(max_examples=150, deadline=None)
def test_no_bytes_make_triage_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "any.log"
    path.write_bytes(b"INFO 12-01 06:17:30 [x.py:1] start\n" + data)
    try:
        report = triage(path)
    except Exception as error:
        assert type(error).__name__ == "SourceError"  # noqa: PT017 - a binary file is refused in one sentence
    else:
        assert Report.model_validate_json(report.model_dump_json()) == report


@given(st.lists(st.lists(PIECES | st.text(max_size=30), max_size=4).map("".join), max_size=40))
@settings(max_examples=200, deadline=None)
def test_no_lines_make_the_scanner_raise_and_numbers_are_true(lines: list[str]) -> None:
    lines = [line.replace("\n", " ") for line in lines]

    report = scanned(lines)

    for incident in report.incidents:
        for evidence in incident.evidence:
            assert 1 <= evidence.line <= len(lines)


@pytest.mark.parametrize("fixture", LOGS, ids=name_of)
def test_evidence_stands_on_the_line_that_it_names(fixture: Fixture) -> None:
    physical = fixture.log.read_bytes().decode("utf-8", "replace").split("\n")

    report = triage(fixture.log, redact=False)

    for incident in report.incidents:
        for evidence in incident.evidence:
            words = evidence.text.split()
            assert all(word in physical[evidence.line - 1] for word in words[:2])


@given(
    fixture=st.sampled_from(LOGS),
    before=st.lists(st.sampled_from(HEALTHY), max_size=6),
    after=st.lists(st.sampled_from(HEALTHY), max_size=6),
)
@settings(max_examples=80, deadline=None)
def test_healthy_lines_around_a_log_do_not_change_its_root_cause(
    fixture: Fixture, before: list[str], after: list[str]
) -> None:
    lines = fixture.log.read_bytes().decode("utf-8", "replace").split("\n")

    alone, padded = scanned(lines), scanned([*before, *lines, "", *after])

    assert (padded.root.kind if padded.root else None) == (alone.root.kind if alone.root else None)


@pytest.mark.parametrize("fixture", LOGS, ids=name_of)
def test_a_report_round_trips_through_json(fixture: Fixture) -> None:
    report = triage(fixture.log)

    assert Report.model_validate_json(report.model_dump_json()) == report


@pytest.mark.parametrize("fixture", LOGS, ids=name_of)
def test_nobody_ever_sees_braces_of_a_template(fixture: Fixture) -> None:
    report = triage(fixture.log)

    for incident in report.incidents:
        texts = [incident.title, incident.summary, incident.cause]
        texts += [text for step in incident.fix_steps for text in (step.do, step.why or "")]
        assert not [text for text in texts if TEMPLATE.search(text)]


def test_the_fixtures_are_the_projects_own() -> None:
    assert Path(FIXTURES).is_dir()
    assert len(LOGS) > 30
