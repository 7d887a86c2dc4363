"""What log records of all standards have in common: a severity, a time, an exception, steps."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vllm_triage.expressions import expression
from vllm_triage.kinds import Severity
from vllm_triage.model import Incident, Update
from vllm_triage.reports.grid import aligned

_EXCEPTION = expression(r"(?<![\w.])([A-Za-z_][\w.]*(?:Error|Exception|Interrupt)): +(\S.*)")
_ISO = expression(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\d*(Z|[+-]\d\d:?\d\d)")
_WIDTH = 200
# Seconds, milliseconds, microseconds (journald) and nanoseconds since 1970, told by their length.
_EPOCH = {10: 10**9, 13: 10**6, 16: 10**3, 19: 1}


@dataclass(frozen=True, slots=True)
class Context:
    """What a record says that the incident does not know."""

    now_ns: Callable[[], int] = time.time_ns
    """The clock, in nanoseconds since 1970."""
    service: str = "vllm-triage"
    """The name of the service that the records stand for."""
    has_files: bool = True
    """Whether the names of sources are files."""

    def file(self, source: str) -> str | None:
        """The full path of a source that is a file."""
        if not self.has_files or source.startswith("<"):
            return None
        return str(Path(source).absolute())


def is_withdrawn(incident: Incident) -> bool:
    """Tell whether it turned out to be no incident."""
    return isinstance(incident, Update) and incident.withdrawn


def revision(incident: Incident) -> int:
    """Which telling of the incident this is, from 1."""
    return incident.revision if isinstance(incident, Update) else 1


def level(incident: Incident) -> str:
    """The logging level that the severity stands for."""
    if is_withdrawn(incident):
        return "info"
    match incident.severity:
        case Severity.FATAL:
            return "fatal"
        case Severity.DEGRADED:
            return "error"
        case Severity.NOTICE:
            return "warn"


def unix_nano(text: str | None) -> int | None:
    """A printed time in nanoseconds since 1970; None when it lacks the year or the time zone."""
    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        unit = _EPOCH.get(len(text))
        return None if unit is None else int(text) * unit
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{found[1]}T{found[2]}{found[4]}")
    except ValueError:
        return None
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return seconds * 10**9 + int((found[3] or "0").ljust(9, "0"))


def seen_ns(incident: Incident) -> int | None:
    """When it happened: the first time at first, of a later revision the last."""
    first = unix_nano(incident.first_seen)
    return unix_nano(incident.last_seen) or first if revision(incident) > 1 else first


def exception(incident: Incident) -> tuple[str, str] | None:
    """The class and the message of the exception that states it."""
    found = _EXCEPTION.search(incident.evidence[0].text)
    return (found[1], found[2].rstrip()) if found is not None else None


def steps(incident: Incident) -> list[str]:
    """The fix steps, a text each, commands behind a colon."""
    return [
        f"{step.number}. {step.do}" + (f" : {step.command}" if step.command else "")
        for step in incident.fix_steps
    ]


def rows(incident: Incident) -> list[str]:
    """The table, a text each row: an index would mix the cells of lists in a list."""
    return aligned(incident.table, _WIDTH)
