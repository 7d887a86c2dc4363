"""One incident a line, the root cause first."""

from vllm_triage.model import Report


def render(report: Report) -> str:
    """An empty text when there is no incident."""
    return "".join(incident.model_dump_json() + "\n" for incident in report.incidents)
