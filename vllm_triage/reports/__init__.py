"""Reports: incidents rendered, one file a format."""

from collections.abc import Callable

from vllm_triage.model import Report
from vllm_triage.reports import github, json, markdown, ndjson, text
from vllm_triage.reports.explain import explain
from vllm_triage.reports.kinds import kinds, kinds_page

Render = Callable[[Report], str]

FORMATS: dict[str, Render] = {
    "text": text.render,
    "json": json.render,
    "ndjson": ndjson.render,
    "markdown": markdown.render,
    "github": github.render,
}

__all__ = ["FORMATS", "explain", "kinds", "kinds_page", "text"]
