"""A log that a log store gave back, as CSV or as one JSON text, stays the same log."""

import csv
import io
import json
from collections.abc import Callable, Iterable

import pytest

from tests.conftest import FIXTURES
from vllm_triage import Report, triage

LOGS = [
    "oom/kv-cache-too-small.log",
    "engine/exception-that-no-rule-knows.log",
    "loading/report-load-071.log",
    "loading/report-load-024.log",
    "engine/0_32_0-worker-sigill.log",
    "healthy/prompt-quotes-a-cuda-traceback.log",
    "healthy/0_32_0-healthy-serve.log",
]
TIME = "2026-05-01T10:00:{:02d}.000Z"


def table(names: list[str], rows: Iterable[list[str]], *, quoted: bool) -> str:
    out = io.StringIO()
    dialect = csv.unix_dialect if quoted else csv.excel
    csv.writer(out, dialect, lineterminator="\n").writerows([names, *rows])
    return out.getvalue()


def times(rows: list[str]) -> list[tuple[str, str]]:
    return [(TIME.format(number % 60), row) for number, row in enumerate(rows)]


def loki(rows: list[str]) -> dict[str, object]:
    values = [[str(1_777_000_000_000_000_000 + number), row] for number, row in enumerate(rows)]
    return {
        "status": "success",
        "data": {"resultType": "streams", "result": [{"stream": {"a": "b"}, "values": values}]},
    }


def google(rows: list[str]) -> list[dict[str, str]]:
    return [{"insertId": "x", "textPayload": row, "timestamp": time} for time, row in times(rows)]


def elastic(rows: list[str]) -> dict[str, object]:
    hits = [{"_id": "x", "_source": {"@timestamp": t, "message": row}} for t, row in times(rows)]
    return {"took": 1, "hits": {"total": {"value": len(rows)}, "hits": hits}}


def lines(rows: list[str], record: Callable[[str, str], object]) -> str:
    return "\n".join(json.dumps(record(time, row)) for time, row in times(rows))


EXPORTS: dict[str, Callable[[list[str]], str]] = {
    "CloudWatch CSV": lambda rows: table(
        ["timestamp", "message"], ([t, row] for t, row in times(rows)), quoted=False
    ),
    "Logs Insights CSV": lambda rows: table(
        ["@timestamp", "@message", "@logStream"], ([t, row, "a/b"] for t, row in times(rows)), quoted=False
    ),
    "Datadog CSV": lambda rows: table(
        ["Date", "Host", "Service", "Message"], ([t, "a", "b", row] for t, row in times(rows)), quoted=True
    ),
    "Azure CSV": lambda rows: table(
        ["TimeGenerated [UTC]", "LogEntry"], ([t, row] for t, row in times(rows)), quoted=True
    ),
    "Loki": lambda rows: json.dumps(loki(rows)),
    "Loki, written out": lambda rows: json.dumps(loki(rows), indent=2),
    "Grafana": lambda rows: json.dumps(
        [{"line": row, "date": time, "fields": {"a": "b"}} for time, row in times(rows)]
    ),
    "aws logs": lambda rows: json.dumps(
        {"events": [{"timestamp": 1, "message": row, "ingestionTime": 1} for row in rows]}
    ),
    "Logs Insights": lambda rows: json.dumps(
        {"results": [[{"field": "@timestamp", "value": t}, {"field": "@message", "value": row}] for t, row in times(rows)]}
    ),
    "gcloud": lambda rows: json.dumps(google(rows)),
    "gcloud, written out": lambda rows: json.dumps(google(rows), indent=2),
    "gcloud, YAML": lambda rows: "\n".join(
        f"---\ninsertId: x\nseverity: ERROR\ntextPayload: {json.dumps(row)}\ntimestamp: '{time}'"
        for time, row in times(rows)
    ),
    "Elasticsearch": lambda rows: json.dumps(elastic(rows)),
    "Ansible": lambda rows: json.dumps({"rc": 1, "stderr_lines": rows, "stdout_lines": []}, indent=4),
    "a command's output": lambda rows: json.dumps({"rc": 1, "stderr": "\n".join(rows)}, indent=2),
    "Datadog": lambda rows: lines(
        rows, lambda time, row: {"id": "x", "content": {"timestamp": time, "message": row}}
    ),
    "Splunk": lambda rows: lines(
        rows, lambda time, row: {"preview": False, "result": {"_raw": row, "_time": time}}
    ),
    "OTLP": lambda rows: lines(
        rows, lambda _, row: {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": row}, "timeUnixNano": "1"}]}]}]}
    ),
}  # fmt: skip


def seen(report: Report) -> tuple[str | None, str | None]:
    root = report.root
    return (root.kind.value, root.facts.model_dump().get("exception")) if root else (None, None)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("store", EXPORTS)
def test_what_a_log_store_gives_back_tells_the_same(store: str, name: str) -> None:
    rows = (FIXTURES / name).read_text("utf-8").splitlines()

    assert seen(triage(iter(EXPORTS[store](rows).split("\n")))) == seen(triage(iter(rows)))


def test_a_message_of_several_lines_in_a_table_keeps_their_numbers() -> None:
    rows = [
        "timestamp,message",
        '1,"Traceback (most recent call last):',
        '  File ""a.py"", line 1, in f',
        'ValueError: No available memory for the cache blocks, ""a"", b."',
        "2,done",
    ]

    root = triage(iter(rows)).root

    assert root is not None
    assert (root.kind.value, root.evidence[0].line) == ("oom.kv_cache", 4)
    assert root.evidence[0].text == 'ValueError: No available memory for the cache blocks, "a", b.'


def test_a_row_that_never_ends_is_read_all_the_same() -> None:
    rows = ["timestamp,message", '1,"a', "ValueError: No available memory for the cache blocks."]

    root = triage(iter(rows)).root

    assert root is not None
    assert (root.kind.value, root.evidence[0].line) == ("oom.kv_cache", 3)


@pytest.mark.parametrize(
    "row",
    [
        {"role": "user", "message": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."},
        {"data": [{"text": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."}]},
        {"choices": [{"text": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."}]},
    ],
)  # fmt: skip
def test_what_users_wrote_is_no_record(row: object) -> None:
    assert triage(iter([json.dumps(row)])).root is None
    assert triage(iter([json.dumps([row, row])])).root is None


def test_a_logger_that_names_a_role_is_read() -> None:
    said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free."
    root = triage(iter([json.dumps({"role": "system", "level": "ERROR", "message": said})])).root

    assert root is not None
    assert root.kind.value.startswith("oom.")
