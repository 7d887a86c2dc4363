"""Exports: the records in what search interfaces and command lines of log stores answer as one JSON text."""

from collections.abc import Iterator, Mapping

from vllm_triage.expressions import expression

Record = Mapping[str, object]

_LISTS = ("events", "entries", "hits", "logs", "data", "result", "results", "streams", "resourceLogs", "scopeLogs", "logRecords")  # fmt: skip
# Where a record has the one that a shipper or a store was given.
_INNER = ("content", "attributes", "result", "event", "fields")
_INNER_MESSAGES = ("message", "log", "msg", "_raw")
_TIMES = (
    "timestamp",
    "@timestamp",
    "time",
    "_time",
    "date",
    "ts",
    "timeUnixNano",
    "ingestionTime",
)
_MAX_DEPTH = 5
STRING = expression(r"""\s{1,40}("(?:[^"\\]|\\.)*+"),?\s*$""")
LIST_BEGINS = expression(r"""\s{1,40}(?:"1\d{18}",|"std(?:out|err)_lines": \[)\s*$""")
"""Before each line of Loki its time, before Ansible's lists of what a command printed their name."""


def records(value: object, depth: int = 0) -> Iterator[Record]:
    """The records of an answer, each with a text under `message`; nothing of what is none."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for one in value:
            if isinstance(one, list):
                found = _field_list(one)
                if found is not None:
                    yield found
            elif isinstance(one, dict):
                yield from _of_record(one, depth + 1)
    elif isinstance(value, dict):
        yield from _of_record(value, depth)


def _of_record(record: Record, depth: int) -> Iterator[Record]:
    values = record.get("values")
    if isinstance(values, list) and isinstance(record.get("stream"), dict):
        for pair in values:
            if isinstance(pair, list) and len(pair) > 1 and isinstance(pair[1], str):
                yield {"message": pair[1], "timestamp": pair[0], "labels": record["stream"]}
        return
    found = _single(record) if depth else inner_of(record)
    if found is not None:
        yield found
        return
    for key in _LISTS:
        inner = record.get(key)
        if isinstance(inner, list | dict):
            yield from records(inner, depth + 1)
    for key in ("stdout_lines", "stderr_lines"):
        lines = record.get(key)
        if isinstance(lines, list) and lines and all(isinstance(one, str) for one in lines):
            yield {"message": "\n".join(lines)}


def _single(record: Record) -> Record | None:
    """A record of a list: it has a time, and its text or another record that has it."""
    inner = record.get("_source")
    record = inner if isinstance(inner, dict) else record
    found = inner_of(record)
    if found is not None:
        return found
    if not any(key in record for key in _TIMES):
        return None
    for key in ("textPayload", "line", *_INNER_MESSAGES):
        value = record.get(key)
        if isinstance(value, str):
            return {**record, "message": value}
    return None


def inner_of(record: Record) -> Record | None:
    """The record that stands in another; None where there is none."""
    body = record.get("body")
    if isinstance(body, dict) and isinstance(body.get("stringValue"), str):
        return {**record, "message": body["stringValue"]}
    for key in _INNER:
        inner = record.get(key)
        if not isinstance(inner, dict):
            continue
        for name in _INNER_MESSAGES:
            value = inner.get(name)
            if isinstance(value, str):
                return {**inner, "message": value}
    return None


def _field_list(fields: list[object]) -> Record | None:
    """A row of CloudWatch Logs Insights: `[{"field": "@message", "value": "..."}]`."""
    found = {
        str(one["field"]).lstrip("@"): one["value"]
        for one in fields
        if isinstance(one, dict) and "field" in one and "value" in one
    }
    return found if isinstance(found.get("message"), str) else None
