"""Survival: what becomes of an incident where the server went on, or only a client went away."""

from collections.abc import Sequence

from vllm_triage.events import Event
from vllm_triage.groups import Group, is_warning, short_name
from vllm_triage.kinds import Kind, Severity
from vllm_triage.phases import in_engine

_SURVIVABLE = ("network", "loading")


def has_left(event: Event) -> bool:
    """Tell what a server prints where a client has closed its connection."""
    return short_name(event) == "ConnectionResetError" and not (
        in_engine(event.frames, event.first.place)
        or any(
            "multiprocessing/" in file or file.startswith("torch/") for file, _, _ in event.frames
        )
    )


def was_survived(group: Group) -> bool:
    """A start that went on to its end made good what was said of the hub or a package on the way."""
    return (
        group.kind.area in _SURVIVABLE
        and group.run.source == group.line.source
        and group.run.last_ready > group.last_line
        and (is_warning(group.event) or not group.event.frames)
    )


def lower(group: Group, died: Sequence[Group]) -> None:
    """A server that went on did not die."""
    if group.severity is not Severity.FATAL or group.kind is Kind.ENGINE_DEAD:
        return
    run = group.run
    if run.source != group.line.source or any(other is not group for other in died):
        return
    if run.last_ready > group.last_line:
        group.severity = (
            Severity.NOTICE
            if is_warning(group.event) or not group.event.frames
            else Severity.DEGRADED
        )
    elif run.last_answer > group.last_line:
        group.severity = Severity.DEGRADED
