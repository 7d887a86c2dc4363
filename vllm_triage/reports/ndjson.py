"""One incident a line, the root cause first."""

from vllm_triage.model import Report
from vllm_triage.reports.clean import escaped


def render(report: Report) -> str:
    """An empty text when there is no incident."""
    return "".join(escaped(incident.model_dump_json()) + "\n" for incident in report.incidents)
