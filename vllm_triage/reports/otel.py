"""OpenTelemetry log records, one incident a line.

A line is a whole `LogsData` message in OTLP's JSON encoding (opentelemetry-proto 1.5 and later),
as the specification's file exporter writes it: 64-bit numbers are texts, enums numbers. The names
of attributes are those of the semantic conventions (`exception.*`, `log.*`), all others stand
under `vllm_triage.`. https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/
"""

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from uuid import NAMESPACE_URL, uuid5

from vllm_triage.facts import stated
from vllm_triage.model import Incident, Report, Update
from vllm_triage.reports import records
from vllm_triage.reports.clean import escaped
from vllm_triage.reports.records import Context
from vllm_triage.versions import __version__

EVENT = "vllm_triage.incident"
_NUMBER = {"info": 9, "warn": 13, "error": 17, "fatal": 21}


def line(incident: Incident, context: Context) -> str:
    """One incident, without line end."""
    level = records.level(incident)
    record: dict[str, object] = {
        "observedTimeUnixNano": str(context.now_ns()),
        "severityNumber": _NUMBER[level],
        "severityText": level.upper(),
        "eventName": EVENT,
        "body": _value(incident.title),
        "attributes": _pairs(_attributes(incident, context)),
    }
    seen = records.seen_ns(incident)
    if seen is not None:
        record["timeUnixNano"] = str(seen)
    scope = {"name": "vllm_triage", "version": __version__}
    data = {
        "resourceLogs": [
            {
                "resource": {"attributes": _pairs({"service.name": context.service})},
                "scopeLogs": [{"scope": scope, "logRecords": [record]}],
            }
        ]
    }
    return escaped(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def render(report: Report, context: Context | None = None) -> str:
    """An empty text when there is no incident."""
    context = context or Context()
    return "".join(line(incident, context) + "\n" for incident in report.incidents)


def _attributes(incident: Incident, context: Context) -> dict[str, object]:
    first = incident.evidence[0]
    found = records.exception(incident)
    own: dict[str, object] = {
        "kind": incident.kind,
        "area": incident.area,
        "severity": incident.severity,
        "role": incident.role,
        "confidence": incident.confidence,
        "id": incident.id,
        "revision": records.revision(incident),
        "withdrawn": records.is_withdrawn(incident),
        "summary": incident.summary,
        "cause": incident.cause,
        "count": incident.count,
        # As printed: most logs of vLLM lack the year, and a time stamp cannot be made of it.
        "first_seen": incident.first_seen,
        "last_seen": incident.last_seen,
        "processes": list(incident.processes),
        "source": first.source,
        "line": first.line,
        "evidence": [one.text for one in incident.evidence],
        "table": records.rows(incident),
        "fix_steps": records.steps(incident),
        "suggested_command": incident.suggested_command,
        "caused_by": incident.caused_by,
        "root_cause": incident.root_cause if isinstance(incident, Update) else None,
    }
    for name, value in stated(incident.facts).items():
        own[f"facts.{name}"] = value
    return {
        "log.record.uid": _uid(incident, context),
        "log.record.original": first.text,
        "log.file.path": context.file(first.source),
        "exception.type": found[0] if found else None,
        "exception.message": found[1] if found else None,
        **{f"vllm_triage.{name}": value for name, value in own.items()},
    }


def _uid(incident: Incident, context: Context) -> str:
    """Unlike for each revision, host and day; alike when a log with whole times is read again."""
    moment = records.seen_ns(incident) or context.now_ns()
    first = incident.evidence[0]
    name = f"{incident.id}\n{records.revision(incident)}\n{moment}\n{first.text}"
    return str(uuid5(NAMESPACE_URL, name))


def _pairs(values: Mapping[str, object]) -> list[dict[str, object]]:
    return [
        {"key": name, "value": _value(value)}
        for name, value in values.items()
        if value is not None and value != []
    ]


def _value(value: object) -> dict[str, object]:
    """OTLP's AnyValue."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, Enum):
        return {"stringValue": str(value.value)}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _pairs({str(key): one for key, one in value.items()})}}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}
