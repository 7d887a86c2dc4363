"""Elastic Common Schema documents, one incident a line.

Field names and categories are those of ECS 8.11; all others stand under `vllm_triage`.
https://www.elastic.co/docs/reference/ecs/ecs-field-reference
"""

import json
from datetime import UTC, datetime

from vllm_triage.contract import validated
from vllm_triage.kinds import Severity
from vllm_triage.model import Incident, Report, Update
from vllm_triage.reports import records
from vllm_triage.reports.clean import escaped
from vllm_triage.reports.records import Context
from vllm_triage.versions import __version__

ECS_VERSION = "8.11.0"
# The higher, the graver, as ECS leaves it to the source.
_SEVERITY = {Severity.FATAL: 4, Severity.DEGRADED: 3, Severity.NOTICE: 2}


def line(incident: Incident, context: Context) -> str:
    """One incident, without line end."""
    now = context.now_ns()
    first = incident.evidence[0]
    found = records.exception(incident)
    is_withdrawn = records.is_withdrawn(incident)
    is_end = incident.severity is Severity.FATAL and not is_withdrawn
    revision = records.revision(incident)
    document = {
        "@timestamp": _time(records.seen_ns(incident) or now),
        "ecs": {"version": ECS_VERSION},
        "message": incident.title,
        "event": {
            "kind": "alert",
            "category": ["process"],
            "type": ["end" if is_end else "info"],
            "module": "vllm_triage",
            "dataset": "vllm_triage.incidents",
            "provider": "vllm-triage",
            "id": incident.id,
            "code": incident.kind.value,
            "sequence": revision,
            "severity": 1 if is_withdrawn else _SEVERITY[incident.severity],
            "reason": incident.cause,
            "original": first.text,
            "start": _time(records.unix_nano(incident.first_seen)),
            "end": _time(records.unix_nano(incident.last_seen)),
            "created": _time(now),
        },
        "rule": {
            "id": incident.kind.value,
            "name": incident.patterns[0] if incident.patterns else None,
            "category": incident.area,
            "description": incident.summary,
            "reference": incident.docs[0] if incident.docs else None,
            "ruleset": "vllm-triage",
            "version": __version__,
        },
        "service": {"type": "vllm"},
        "log": {
            "level": records.level(incident),
            "file": {"path": context.file(first.source)},
        },
        "error": {"type": found[0], "message": found[1]} if found else None,
        "vllm_triage": _own(incident, revision),
    }
    text = json.dumps(_without_nothing(document), ensure_ascii=False, separators=(",", ":"))
    return escaped(text)


def render(report: Report, context: Context | None = None) -> str:
    """An empty text when there is no incident."""
    context = context or Context()
    return "".join(line(incident, context) + "\n" for incident in report.incidents)


def _own(incident: Incident, revision: int) -> dict[str, object]:
    content = validated(incident).model_dump(
        mode="json",
        include={
            "kind", "severity", "role", "confidence", "facts", "suggested_command", "evidence",
            "count", "processes", "caused_by", "patterns",
        },
    )  # fmt: skip
    # One object an area: a field has one type in an index, whatever the kinds put there.
    facts = {name: value for name, value in content.pop("facts").items() if name != "family"}
    return {
        **content,
        "revision": revision,
        "withdrawn": records.is_withdrawn(incident),
        "root_cause": incident.root_cause if isinstance(incident, Update) else None,
        "fix_steps": records.steps(incident),
        "facts": {incident.area: facts},
        "table": records.rows(incident),
    }


def _without_nothing(value: object) -> object:
    """Leave out what is not known: an index needs no empty fields."""
    if not isinstance(value, dict):
        return value
    kept = {name: _without_nothing(one) for name, one in value.items()}
    return {name: one for name, one in kept.items() if one is not None and one not in ([], {})}


def _time(nano: int | None) -> str | None:
    """To the millisecond, as Elasticsearch's `date` keeps it."""
    if nano is None:
        return None
    try:
        moment = datetime.fromtimestamp(nano // 10**9, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nano // 10**6 % 1000:03d}Z"
