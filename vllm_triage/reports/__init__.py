"""Reports: incidents rendered, one file a format."""

from collections.abc import Callable

from vllm_triage.model import Incident, Report
from vllm_triage.reports import ecs, github, json, markdown, ndjson, otel, text
from vllm_triage.reports.explain import explain
from vllm_triage.reports.kinds import kinds, kinds_page
from vllm_triage.reports.records import Context

Render = Callable[[Report], str]

FORMATS: dict[str, Render] = {
    "text": text.render,
    "json": json.render,
    "ndjson": ndjson.render,
    "markdown": markdown.render,
    "github": github.render,
    "otel": otel.render,
    "ecs": ecs.render,
}

# How a stream's incidents are written, one a line.
LINES: dict[str, Callable[[Incident, Context], str]] = {
    "ndjson": lambda incident, _: ndjson.line(incident),
    "otel": otel.line,
    "ecs": ecs.line,
}

__all__ = ["FORMATS", "LINES", "Context", "explain", "kinds", "kinds_page", "text"]
