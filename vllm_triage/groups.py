"""Groups: all that was said of one kind in one run."""

from collections.abc import Sequence
from functools import lru_cache

from vllm_triage.candidates import Recogniser
from vllm_triage.events import Event
from vllm_triage.expressions import expression
from vllm_triage.kinds import Confidence, Kind, Level, Phase, Role, Severity
from vllm_triage.lines import Line, Origin
from vllm_triage.matches import Match, Unknown
from vllm_triage.phases import ends_engine
from vllm_triage.rules import Rule

MAX_EVIDENCE = 6
MAX_PROCESSES = 256
_MAX_LINE = 4096
GRAVITY = {severity: place for place, severity in enumerate(Severity)}
"""The graver, the less."""
_CLOCK = expression(r"(?:\d{4}-)?(\d\d)-(\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)")


class Group:
    """All that was said of one kind in one run."""

    def __init__(
        self,
        item: Match | Unknown,
        kind: Kind,
        rule: Rule,
        line: Line,
        *,
        severity: Severity,
        role: Role,
        confidence: Confidence,
        rank: tuple[int, ...],
        fields: dict[str, str | float | None],
    ) -> None:
        self.kind = kind
        self.run = item.run
        self.severity = severity
        self.role = role
        self.confidence = confidence
        self.explained_by = rule.explained_by
        self.event = _without_text(item.event)
        self.line = shortened(line)
        self.phase = item.phase
        self.position = item.position
        self.rank = rank
        self.name = ""
        """Tells it from others of its kind in one run; empty for most, of which there is one."""
        self.quantization: str | None = None
        self.fields = fields
        self.told: tuple[str, ...] = ()
        """What else was said that fields come from, a few of them."""
        self.lines: list[Line] = []
        self.patterns: list[str] = []
        self.processes: dict[str, None] = {}
        self.said: set[tuple[object, ...]] = set()
        self.count = 0
        self.first_seen: str | None = None
        self.last_seen: str | None = None
        self.last_line = 0
        self.caused_by: Group | None = None

    def copy(self) -> "Group":
        """A group that can be changed without changing this one."""
        copy = object.__new__(Group)
        copy.__dict__.update(self.__dict__)
        copy.fields, copy.lines, copy.patterns = {**self.fields}, [*self.lines], [*self.patterns]
        copy.processes, copy.said = {**self.processes}, {*self.said}
        return copy

    def add_lines(self, lines: Sequence[Line]) -> None:
        """Keep a few lines as evidence, each once; a blank one only where it is the first."""
        for line in map(shortened, lines):
            if len(self.lines) >= MAX_EVIDENCE:
                return
            # A rule under a table shows nothing.
            if (line.text.strip(" =-") or not self.lines) and all(
                (line.source, line.number, line.text) != (one.source, one.number, one.text)
                for one in self.lines
            ):
                self.lines.append(line)


def shortened(line: Line) -> Line:
    """The line as it is kept: a report shows no more of it."""
    if len(line.raw) <= _MAX_LINE and len(line.text) <= _MAX_LINE:
        return line
    return line._replace(raw=line.raw[:_MAX_LINE], text=line.text[:_MAX_LINE])


def label(line: Line) -> str | None:
    """The process as an operator names it: `Worker_TP0`, else `rank 3`."""
    if line.process is not None:
        return line.process
    return f"rank {line.rank}" if line.rank is not None else None


@lru_cache(maxsize=256)
def clock(text: str | None) -> tuple[int, int, str] | None:
    """Month, day and time of day of a time stamp in any of the usual formats."""
    found = _CLOCK.search(text) if text else None
    return (int(found[1]), int(found[2]), found[3].replace(",", ".")) if found else None


def is_warning(event: Event) -> bool:
    """Tell a warning from an error."""
    return event.level in (Level.WARNING, Level.INFO, Level.DEBUG)


def _without_text(event: Event) -> Event:
    """What a group needs of an event; its text may be of many megabytes."""
    return event._replace(text="", lines=event.lines[:0], unwrapped=None)


def topic(item: Match | Unknown) -> tuple[Kind, str]:
    """What makes two things one: the kind, of unknown exceptions also the exception."""
    if isinstance(item, Match):
        return item.kind, ""
    return Kind.ENGINE_UNRECOGNISED, short_name(item.event)


def short_name(event: Event) -> str:
    """The exception's class without its module."""
    return (event.exception or "").rpartition(".")[2]


def begin(item: Match, line: Line, recogniser: Recogniser, rank: tuple[int, ...]) -> Group:
    """Begin a group with a match."""
    group = Group(
        item,
        item.kind,
        recogniser.rule,
        line,
        severity=recogniser.severity,
        role=recogniser.role,
        confidence=recogniser.pattern.confidence,
        rank=rank,
        fields=dict(item.fields),
    )
    group.quantization = item.quantization
    if item.event.exception and "exception" not in group.fields:
        group.fields["exception"] = item.event.exception
    if line.rank is not None:
        group.fields.setdefault("rank", str(line.rank))
    group.add_lines([line, *_continuation(item.event, line)])
    return group


def promote(group: Group, item: Match, recogniser: Recogniser, rank: tuple[int, ...]) -> None:
    """Let a match that states it better speak for the group."""
    group.rank = rank
    group.role = recogniser.role
    group.severity = min(group.severity, recogniser.severity, key=GRAVITY.__getitem__)
    group.confidence = recogniser.pattern.confidence
    table = item.event.table or group.event.table
    group.event = _without_text(item.event)._replace(table=table)
    group.line = shortened(item.line)
    group.phase = item.phase or group.phase
    group.fields = {**group.fields, **item.fields}
    kept, group.lines = group.lines, []
    group.add_lines([item.line, *_continuation(item.event, item.line), *kept])


def _continuation(event: Event, line: Line) -> Sequence[Line]:
    is_listed = event.origin is Origin.ARTEFACT
    after = [
        other
        for other in event.lines
        if (is_listed or other.number >= line.number) and other is not line
    ]
    return after[:3] if event.exception or len(event.lines) < 8 else after[:2]


def unrecognised(item: Unknown, rule: Rule) -> Group:
    """Begin a group with an exception that no rule knows."""
    event = item.event
    vllm = [frame for frame in event.frames if frame.file.startswith("vllm/")]
    place = vllm[-1] if vllm else None
    fields: dict[str, str | float | None] = {
        "exception": event.exception,
        "detail": event.text.partition(": ")[2].split("\n")[0][:300] or None,
        "last_frame": f"{place.file}:{place.line} in {place.function}" if place else None,
    }
    if event.frames:
        last = event.frames[-1]
        fields["last_frame_anywhere"] = f"{last.file}:{last.line} in {last.function}"
    is_fatal = item.phase is not Phase.SERVING or ends_engine(event.frames)
    # A log without a sign of vLLM may be of any program.
    is_vllms = bool(vllm) or (
        bool(event.frames) and (event.first.place is not None or item.run.is_known)
    )
    group = Group(
        item,
        Kind.ENGINE_UNRECOGNISED,
        rule,
        event.first,
        severity=Severity.FATAL if is_fatal else Severity.DEGRADED,
        role=Role.SYMPTOM,
        confidence=Confidence.CERTAIN if is_vllms else Confidence.POSSIBLE,
        rank=(0, 0, 0),
        fields=fields,
    )
    group.lines.append(group.line)
    return group


def count(group: Group, item: Match | Unknown, line: Line) -> None:
    """Count one more time that it was said, by whom and when."""
    group.last_line = (
        max(group.last_line, line.number) if line.source == group.line.source else group.last_line
    )
    name = label(line)
    # A process prints one exception twice: through its logger and as the interpreter's traceback.
    who = (item.run.index, *topic(item), name, line.pid)
    said = (*who, line.time) if line.time else who
    if said not in group.said:
        if len(group.said) < MAX_PROCESSES:
            group.said.add(said)
            if line.time is not None:
                group.said.add(who)
        group.count += 1
        if group.count <= 3:
            group.add_lines([line])
    if name is not None and len(group.processes) < MAX_PROCESSES:
        group.processes[name] = None
    if line.time is not None:
        # Processes that interleave, and pastes, are not always in the order of their clocks.
        if group.first_seen is None or _is_before(line.time, group.first_seen):
            group.first_seen = line.time
        if group.last_seen is None or not _is_before(line.time, group.last_seen):
            group.last_seen = line.time


def _is_before(time: str, other: str) -> bool:
    first, second = clock(time), clock(other)
    return first is not None and second is not None and first < second
