"""One incident a line, the root cause first."""

from vllm_triage.model import Incident, Report
from vllm_triage.reports.clean import escaped


def line(incident: Incident) -> str:
    """One incident, without line end."""
    # Most streams are healthy: they never need pydantic.
    from vllm_triage.contract import validated

    return escaped(validated(incident).model_dump_json())


def render(report: Report) -> str:
    """An empty text when there is no incident."""
    return "".join(line(incident) + "\n" for incident in report.incidents)
