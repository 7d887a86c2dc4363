"""Reports: incidents rendered, one file a format; each is imported when it is asked for."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_triage.model import Incident, Report
    from vllm_triage.reports.records import Context


def _format(name: str) -> Any:
    return import_module(f"{__name__}.{name}")


def _render(name: str) -> "Callable[[Report], str]":
    return lambda report: _format(name).render(report)


FORMATS: "dict[str, Callable[[Report], str]]" = {
    name: _render(name) for name in ("text", "json", "ndjson", "markdown", "github", "otel", "ecs")
}

# How a stream's incidents are written, one a line.
LINES: "dict[str, Callable[[Incident, Context], str]]" = {
    "ndjson": lambda incident, _: _format("ndjson").line(incident),
    "otel": lambda incident, context: _format("otel").line(incident, context),
    "ecs": lambda incident, context: _format("ecs").line(incident, context),
}
