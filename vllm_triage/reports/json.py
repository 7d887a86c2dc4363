"""The JSON contract: one object."""

from vllm_triage.model import Report


def render(report: Report) -> str:
    """The whole report, indented."""
    return report.model_dump_json(indent=2) + "\n"
