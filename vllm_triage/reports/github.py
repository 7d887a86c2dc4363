"""GitHub workflow annotations."""

from collections.abc import Sequence

from vllm_triage.kinds import Severity
from vllm_triage.model import Incident, Report
from vllm_triage.reports.clean import clean
from vllm_triage.reports.grid import aligned

_LEVEL = {Severity.FATAL: "error", Severity.DEGRADED: "warning", Severity.NOTICE: "notice"}

_WIDTH = 120


def render(report: Report) -> str:
    """One `::error`, `::warning` or `::notice` command an incident, the root cause first."""
    return "".join(_annotation(incident) for incident in report.incidents)


def _annotation(incident: Incident) -> str:
    first = incident.evidence[0]
    body = [incident.summary, f"{first.source}:{first.line}: {first.text}", incident.cause]
    body += aligned(incident.table, _WIDTH)
    body += [
        f"{step.number}. {step.do}" + (f"  {step.command}" if step.command else "")
        for step in incident.fix_steps
    ]
    # A stream has no file that an annotation could stand in.
    is_file = not first.source.startswith("<")
    place = (("file", first.source), ("line", str(first.line))) if is_file else ()
    properties = ",".join(
        f"{name}={_property(value)}"
        for name, value in (
            *place,
            ("title", f"{incident.title} ({incident.kind.value})"),
        )
    )
    return f"::{_LEVEL[incident.severity]} {properties}::{_data(body)}\n"


def _data(lines: Sequence[str]) -> str:
    return "%0A".join(clean(line).replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return _data([text]).replace(":", "%3A").replace(",", "%2C")
