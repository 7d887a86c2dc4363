"""The JSON contract: one object."""

from vllm_triage.contract import validated
from vllm_triage.model import Report
from vllm_triage.reports.clean import escaped


def render(report: Report) -> str:
    """The whole report, indented."""
    return escaped(validated(report).model_dump_json(indent=2)) + "\n"
