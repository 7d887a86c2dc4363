"""Incidents as OpenTelemetry log records and Elastic Common Schema documents."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import FIXTURES
from vllm_triage import Report, Scanner, triage
from vllm_triage.model import Update
from vllm_triage.reports import LINES, ecs, otel
from vllm_triage.reports.records import Context, unix_nano

LOG = FIXTURES / "oom" / "kv-cache-too-small.log"
# 2026-03-01T12:00:00.5Z
NOW = 1_772_366_400_500_000_000
CONTEXT = Context(now_ns=lambda: NOW)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free."


@pytest.fixture(scope="module")
def report() -> Report:
    return triage(LOG)


def update(time: str | None = None, **changes: Any) -> Update:
    prefix = f"{time} " if time else ""
    scanner = Scanner("/var/log/vllm.log")
    told = [*scanner.feed(f"{prefix}{OOM}"), *scanner.close()]
    return told[-1].model_copy(update=changes)


def plain(value: dict[str, Any]) -> Any:
    """A decoder of AnyValue as the protocol states it: a 64-bit number is a text."""
    ((name, content),) = value.items()
    if name == "intValue":
        assert isinstance(content, str)
        return int(content)
    if name == "arrayValue":
        return [plain(one) for one in content["values"]]
    if name == "kvlistValue":
        return {one["key"]: plain(one["value"]) for one in content["values"]}
    assert name in ("stringValue", "boolValue", "doubleValue")
    return content


def decoded(line: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The one record of a line, and its attributes."""
    data = json.loads(line)
    assert list(data) == ["resourceLogs"]
    (resource,) = data["resourceLogs"]
    (scope,) = resource["scopeLogs"]
    (record,) = scope["logRecords"]
    return record, {one["key"]: plain(one["value"]) for one in record["attributes"]}


@pytest.mark.parametrize(
    ("printed", "nano"),
    [
        ("2026-03-01T12:00:00Z", 1_772_366_400_000_000_000),
        ("2026-03-01T13:00:00.123456789+01:00", 1_772_366_400_123_456_789),
        ("2026-03-01 12:00:00,250+0000", 1_772_366_400_250_000_000),
        ("1772366400250000", 1_772_366_400_250_000_000),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
        # Without a year or a zone nobody knows when it was.
        ("03-01 12:00:00", None),
        ("2026-03-01 12:00:00,250", None),
        ("Mar  1 12:00:00", None),
        ("2026-13-01T12:00:00Z", None),
        ("1772", None),
        (None, None),
    ],
)
def test_a_time_counts_only_when_it_is_complete(printed: str | None, nano: int | None) -> None:
    assert unix_nano(printed) == nano


def test_a_line_is_a_whole_otlp_message_with_the_names_of_the_conventions() -> None:
    record, attributes = decoded(otel.line(update("2026-03-01T11:59:00Z"), CONTEXT))

    assert record["timeUnixNano"] == "1772366340000000000"
    assert record["observedTimeUnixNano"] == str(NOW)
    assert (record["severityNumber"], record["severityText"]) == (21, "FATAL")
    assert record["eventName"] == "vllm_triage.incident"
    assert attributes["exception.type"] == "torch.OutOfMemoryError"
    assert attributes["exception.message"].startswith("CUDA out of memory. Tried")
    assert attributes["log.file.path"] == "/var/log/vllm.log"
    assert attributes["vllm_triage.line"] == 1
    assert attributes["vllm_triage.withdrawn"] is False
    assert attributes["vllm_triage.facts.requested_bytes"] == 2 * 1024**3
    assert attributes["vllm_triage.fix_steps"][0].startswith("1. ")
    own = [name for name in attributes if not name.startswith(("log.", "exception."))]
    assert all(name.startswith("vllm_triage.") for name in own)


def test_an_incomplete_time_is_left_out() -> None:
    record, attributes = decoded(otel.line(update("ERROR 03-01 11:59:00 [core.py:7]"), CONTEXT))

    assert "timeUnixNano" not in record
    assert attributes["vllm_triage.first_seen"] == "03-01 11:59:00"
    assert record["observedTimeUnixNano"] == str(NOW)


def test_records_are_duplicates_only_when_they_tell_the_same_of_the_same_moment() -> None:
    timed, untimed = update("2026-03-01T11:59:00Z"), update("03-01 11:59:00")
    later = Context(now_ns=lambda: NOW + 1)
    ids = [
        decoded(otel.line(one, context))[1]["log.record.uid"]
        for one, context in (
            (timed, CONTEXT),
            (timed.model_copy(update={"revision": 2}), CONTEXT),
            (untimed, CONTEXT),
            (untimed, later),
        )
    ]

    assert len(set(ids)) == 4
    assert decoded(otel.line(timed, later))[1]["log.record.uid"] == ids[0]


def test_a_withdrawn_incident_is_no_error() -> None:
    later = update(revision=2, withdrawn=True)

    record, attributes = decoded(otel.line(later, CONTEXT))

    assert record["severityNumber"] == 9
    assert attributes["vllm_triage.withdrawn"] is True
    assert json.loads(ecs.line(later, CONTEXT))["event"]["type"] == ["info"]


def test_a_document_has_the_fields_of_the_common_schema() -> None:
    document = json.loads(ecs.line(update("2026-03-01T11:59:00.123456Z"), CONTEXT))

    assert document["@timestamp"] == "2026-03-01T11:59:00.123Z"
    assert document["event"] | {"reason": "", "original": ""} == {
        "kind": "alert",
        "category": ["process"],
        "type": ["end"],
        "module": "vllm_triage",
        "dataset": "vllm_triage.incidents",
        "provider": "vllm-triage",
        "id": update().id,
        "code": document["rule"]["id"],
        "sequence": 1,
        "severity": 4,
        "reason": "",
        "original": "",
        "start": "2026-03-01T11:59:00.123Z",
        "end": "2026-03-01T11:59:00.123Z",
        "created": "2026-03-01T12:00:00.500Z",
    }
    assert document["error"]["type"] == "torch.OutOfMemoryError"
    assert document["log"] == {"level": "fatal", "file": {"path": "/var/log/vllm.log"}}
    assert document["vllm_triage"]["facts"]["oom"]["requested_bytes"] == 2 * 1024**3
    assert "family" not in document["vllm_triage"]["facts"]["oom"]
    assert set(document) == {
        "@timestamp", "ecs", "message", "event", "rule", "service", "log", "error", "vllm_triage",
    }  # fmt: skip


def test_a_document_without_a_complete_time_has_the_clocks() -> None:
    document = json.loads(ecs.line(update("03-01 11:59:00"), CONTEXT))

    assert document["@timestamp"] == "2026-03-01T12:00:00.500Z"
    assert "start" not in document["event"]


def test_a_source_that_is_no_file_gets_no_path() -> None:
    pods = Context(now_ns=lambda: NOW, has_files=False)

    assert "file" not in json.loads(ecs.line(update(), pods))["log"]
    assert "log.file.path" not in decoded(otel.line(update(), pods))[1]


def test_a_report_is_one_record_an_incident_the_root_cause_first(report: Report) -> None:
    documents = [json.loads(row) for row in ecs.render(report, CONTEXT).splitlines()]
    rows = otel.render(report, CONTEXT).splitlines()

    assert [one["event"]["id"] for one in documents] == [one.id for one in report.incidents]
    assert [decoded(row)[1]["vllm_triage.id"] for row in rows] == [
        one.id for one in report.incidents
    ]
    assert documents[0]["event"]["id"] == report.root_cause


@pytest.mark.parametrize("form", ["ndjson", "otel", "ecs"])
@pytest.mark.parametrize("wrap", [str, lambda line: json.dumps({"log": f"{line}\n"})])
def test_what_we_tell_is_no_log_of_a_server(form: str, wrap: Callable[[str], str]) -> None:
    """A file of incidents among the logs that are followed must not feed itself."""
    line = LINES[form](update("ERROR 03-01 11:59:00 [core.py:7]"), CONTEXT)
    scanner = Scanner()

    assert [*scanner.feed(wrap(line)), *scanner.close()] == []


def test_a_report_is_no_log_of_a_server(report: Report) -> None:
    scanner = Scanner()

    assert report.incidents
    assert [*scanner.feed(report.model_dump_json()), *scanner.close()] == []
