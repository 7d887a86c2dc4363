"""GitHub workflow annotations."""

from vllm_triage.kinds import Severity
from vllm_triage.model import Incident, Report

_LEVEL = {Severity.FATAL: "error", Severity.DEGRADED: "warning", Severity.NOTICE: "notice"}


def render(report: Report) -> str:
    """One `::error`, `::warning` or `::notice` command an incident, the root cause first."""
    return "".join(_annotation(incident) for incident in report.incidents)


def _annotation(incident: Incident) -> str:
    first = incident.evidence[0]
    body = [incident.summary, f"{first.source}:{first.line}: {first.text}", incident.cause]
    body += [
        f"{step.number}. {step.do}" + (f"  {step.command}" if step.command else "")
        for step in incident.fix_steps
    ]
    properties = ",".join(
        f"{name}={_property(value)}"
        for name, value in (
            ("file", first.source),
            ("line", str(first.line)),
            ("title", f"{incident.title} ({incident.kind.value})"),
        )
    )
    return f"::{_LEVEL[incident.severity]} {properties}::{_data(chr(10).join(body))}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
