"""Incidents: matches folded, repeats counted, consequences under their cause."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Sequence

from vllm_triage import templates
from vllm_triage.catalogue import Catalogue
from vllm_triage.causes import MAX_PROCESSES, Group, choose, clock, is_warning, label, order
from vllm_triage.commands import suggested_command
from vllm_triage.envelopes import without_escapes
from vllm_triage.events import Event
from vllm_triage.facts import AnyFacts, build
from vllm_triage.fixes import human, render_steps, values_of
from vllm_triage.kinds import Confidence, Kind, Phase, Role, Severity
from vllm_triage.lines import Line
from vllm_triage.matches import Match, Recogniser, Unknown, satisfies
from vllm_triage.model import Evidence, Incident
from vllm_triage.phases import in_engine
from vllm_triage.rules import Rule, Variant

Redact = Callable[[str], str]

MAX_TEXT = 2000
_MAX_CHAINS = 4096
_MAX_PER_KIND = 32
_MAX_GROUPS = 256
_SURVIVABLE = ("network", "loading")
# How a program ends on purpose, and what a client that went away leaves behind.
_ORDERLY = frozenset(
    ("KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit", "StopIteration",
     "StopAsyncIteration", "BrokenPipeError", "ClientDisconnect", "Error", "Exit", "Interrupt",
     "ExceptionGroup", "BaseExceptionGroup")
)  # fmt: skip


class Collector:
    """Folds matches as they come; its memory does not grow with the log."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._groups: dict[tuple[Kind, str, int], Group] = {}
        self._last: dict[tuple[Kind, str], Group] = {}
        self._counts: Counter[Kind] = Counter()
        self._chains: OrderedDict[tuple[object, ...], list[Match | Unknown]] = OrderedDict()
        self._failed: set[int] = set()
        self._seen: set[tuple[Kind, str]] = set()

    @property
    def variety(self) -> int:
        """How many different things were said; it grows when there may be a new incident."""
        return len(self._seen)

    def add(self, item: Match | Unknown) -> None:
        """Take a match, or an exception that no rule knows."""
        chain = item.event.chain
        said = item.event.first.phase or item.run.phase
        if said is Phase.SHUTDOWN and item.run.index not in self._failed:
            return
        if isinstance(item, Match) and item.recogniser.severity is Severity.FATAL:
            self._failed.add(item.run.index)
        if len(self._seen) < _MAX_GROUPS:
            self._seen.add(_topic(item))
        if not chain:
            self._fold(item)
            return
        self._chains.setdefault((chain, *item.event.first.key), []).append(item)
        if len(self._chains) > _MAX_CHAINS:
            _, oldest = self._chains.popitem(last=False)
            self._settle(oldest)

    def groups(self) -> list[Group]:
        """What was said so far, one group a kind and run; the caller may change them."""
        view = self._copy()
        for chain in self._chains.values():
            view._settle(chain)
        groups = list(view._groups.values())
        died: dict[int, list[Group]] = {}
        for group in groups:
            if group.kind in (Kind.ENGINE_DEAD, Kind.ENGINE_CRASHED):
                died.setdefault(group.run.index, []).append(group)
        groups = [group for group in groups if not _was_survived(group)]
        for group in groups:
            dead = died.get(group.run.index, [])
            if (
                dead
                and group.kind is Kind.ENGINE_UNRECOGNISED
                and in_engine(group.event.frames, group.line.place)
            ):
                group.severity = Severity.FATAL
            _lower(group, dead)
        return groups

    def _copy(self) -> "Collector":
        view = Collector(self._catalogue)
        copies = {id(group): group.copy() for group in self._groups.values()}
        view._groups = {key: copies[id(group)] for key, group in self._groups.items()}
        view._last = {key: copies[id(group)] for key, group in self._last.items()}
        view._counts = self._counts.copy()
        return view

    def _group(
        self, kind: Kind, name: str, run: int
    ) -> tuple[Group | None, tuple[Kind, str, int]]:
        """The group to count something in, and the key for a new one.

        A log that shows one kind in very many runs, or very many unknown exceptions, has the
        rest counted with the last of them.
        """
        key = (kind, name, run)
        group = self._groups.get(key)
        if group is None and self._counts[kind] >= _MAX_PER_KIND:
            group = self._last.get((kind, name)) or self._last[kind, ""]
        return group, key

    def _keep(self, key: tuple[Kind, str, int], group: Group) -> Group:
        kind, name, _ = key
        self._groups[key] = self._last[kind, name] = self._last[kind, ""] = group
        self._counts[kind] += 1
        return group

    def _settle(self, chain: list[Match | Unknown]) -> None:
        chosen = choose(chain)
        if chosen is None:
            return
        # What is printed under "the engine died" is what it died of.
        is_deadly = any(
            isinstance(item, Match) and item.kind is Kind.ENGINE_DEAD for item in chain
        )
        self._fold(chosen, is_deadly=is_deadly)
        for item in chain:
            if item is chosen or isinstance(item, Unknown):
                continue
            is_same = isinstance(chosen, Match) and item.kind is chosen.kind
            if is_same or item.recogniser.role is Role.CONSEQUENCE:
                self._fold(item)

    def _fold(self, item: Match | Unknown, *, is_deadly: bool = False) -> None:
        if isinstance(item, Unknown):
            self._fold_unknown(item, is_deadly=is_deadly)
            return
        recogniser = item.recogniser
        rank = (
            -int(recogniser.role is not Role.CAUSE),
            -list(Confidence).index(recogniser.pattern.confidence),
            -int(item.event.restored),
        )
        group, key = self._group(item.kind, "", item.run.index)
        if group is None:
            group = self._keep(key, _group(item, item.line, recogniser, rank))
        elif rank > group.rank:
            _promote(group, item, recogniser, rank)
        if recogniser.id not in group.patterns:
            group.patterns.append(recogniser.id)
        for name, value in item.fields.items():
            if value is not None:
                group.fields.setdefault(name, value)
        _count(group, item, item.line)

    def _fold_unknown(self, item: Unknown, *, is_deadly: bool) -> None:
        name = _short_name(item.event)
        rule = self._catalogue.rules.get(Kind.ENGINE_UNRECOGNISED)
        if name in _ORDERLY or name.endswith("Warning") or is_warning(item.event) or rule is None:
            return
        group, key = self._group(Kind.ENGINE_UNRECOGNISED, name, item.run.index)
        if group is None:
            group = self._keep(key, _unrecognised(item, rule))
        if is_deadly:
            group.severity = Severity.FATAL
        _count(group, item, item.event.first)


def _topic(item: Match | Unknown) -> tuple[Kind, str]:
    if isinstance(item, Match):
        return item.kind, ""
    return Kind.ENGINE_UNRECOGNISED, _short_name(item.event)


def _short_name(event: Event) -> str:
    return (event.exception or "").rpartition(".")[2]


def _group(item: Match, line: Line, recogniser: Recogniser, rank: tuple[int, int, int]) -> Group:
    group = Group(
        kind=item.kind,
        run=item.run,
        severity=recogniser.severity,
        role=recogniser.role,
        confidence=recogniser.pattern.confidence,
        explained_by=recogniser.rule.explained_by,
        event=item.event,
        line=line,
        phase=item.phase,
        position=item.position,
        rank=rank,
        quantization=item.quantization,
        fields=dict(item.fields),
    )
    if item.event.exception and "exception" not in group.fields:
        group.fields["exception"] = item.event.exception
    if line.rank is not None:
        group.fields.setdefault("rank", str(line.rank))
    group.add_lines([line, *_continuation(item.event, line)])
    return group


def _promote(
    group: Group, item: Match, recogniser: Recogniser, rank: tuple[int, int, int]
) -> None:
    group.rank = rank
    group.role = recogniser.role
    group.severity = recogniser.severity
    group.confidence = recogniser.pattern.confidence
    group.event, group.line = item.event, item.line
    group.phase = item.phase or group.phase
    group.fields = {**group.fields, **item.fields}
    kept, group.lines = group.lines, []
    group.add_lines([item.line, *_continuation(item.event, item.line), *kept])


def _continuation(event: Event, line: Line) -> Sequence[Line]:
    after = [other for other in event.lines if other.number >= line.number and other is not line]
    return after[:3] if event.exception or len(event.lines) < 8 else after[:2]


def _unrecognised(item: Unknown, rule: Rule) -> Group:
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
    is_fatal = item.phase is not Phase.SERVING
    return Group(
        kind=Kind.ENGINE_UNRECOGNISED,
        run=item.run,
        severity=Severity.FATAL if is_fatal else Severity.DEGRADED,
        role=Role.SYMPTOM,
        confidence=Confidence.CERTAIN if event.frames else Confidence.POSSIBLE,
        explained_by=rule.explained_by,
        event=event,
        line=event.first,
        phase=item.phase,
        position=item.position,
        rank=(0, 0, 0),
        fields=fields,
        lines=[event.first],
    )


def _count(group: Group, item: Match | Unknown, line: Line) -> None:
    group.last_line = (
        max(group.last_line, line.number) if line.source == group.line.source else group.last_line
    )
    name = label(line)
    # A process prints one exception twice: through its logger and as the interpreter's traceback.
    who = (item.run.index, *_topic(item), name, line.pid)
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


def _was_survived(group: Group) -> bool:
    """A start that went on to its end made good what was said of the hub or a package on the way."""
    return (
        group.kind.area in _SURVIVABLE
        and group.run.source == group.line.source
        and group.run.last_ready > group.last_line
        and (is_warning(group.event) or not group.event.frames)
    )


def _is_before(time: str, other: str) -> bool:
    first, second = clock(time), clock(other)
    return first is not None and second is not None and first < second


def _lower(group: Group, died: Sequence[Group]) -> None:
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


def _variant(kind: Kind, group: Group, catalogue: Catalogue) -> Kind:
    found = [
        (name, rule.variant)
        for name, rule in catalogue.rules.items()
        if rule.variant is not None and rule.variant.of is kind
    ]
    found.sort(key=lambda pair: -len(pair[1].needs))
    for name, variant in found:
        if _holds(variant, group):
            return name
    return kind


def _holds(variant: Variant, group: Group) -> bool:
    run = group.run
    phase = group.phase or (Phase.SERVING if run.was_serving else None)
    quantization = group.quantization or run.quantization
    if variant.when is not None and phase is not variant.when:
        return False
    return satisfies(variant.needs, run, quantization)


def fold(
    collector: Collector,
    catalogue: Catalogue,
    redact: Redact,
    apply_steps: Collection[int] = (),
) -> tuple[tuple[Incident, ...], str | None]:
    """Turn what was collected into incidents, the root cause first, and name the root cause."""
    groups = collector.groups()
    for group in groups:
        kind = _variant(group.kind, group, catalogue)
        if kind is not group.kind:
            rule = catalogue.rules[kind]
            group.kind = kind
            group.explained_by = rule.explained_by
            if group.quantization or group.run.quantization:
                group.fields.setdefault(
                    "quantization", group.quantization or group.run.quantization
                )
        elif group.phase is None and any(
            rule.variant is not None and rule.variant.of is kind
            for rule in catalogue.rules.values()
        ):
            group.confidence = Confidence.LIKELY
    ranked = _merged(order(groups))
    incidents = [_incident(group, catalogue, redact, apply_steps) for group in ranked]
    ids = {id(group): incident.id for group, incident in zip(ranked, incidents, strict=True)}
    kinds = {group.kind: incident.id for group, incident in zip(ranked, incidents, strict=True)}
    linked = []
    for group, incident in zip(ranked, incidents, strict=True):
        cause = group.caused_by
        named = (ids.get(id(cause)) or kinds.get(cause.kind)) if cause is not None else None
        linked.append(
            incident.model_copy(update={"caused_by": named if named != incident.id else None})
        )
    return tuple(linked), linked[0].id if linked else None


def _merged(groups: Sequence[Group]) -> list[Group]:
    """Fold the same kind in several runs or files into the first."""
    out: dict[tuple[Kind, str], Group] = {}
    for group in groups:
        name = str(group.fields.get("exception")) if group.kind is Kind.ENGINE_UNRECOGNISED else ""
        first = out.setdefault((group.kind, name), group)
        if first is group:
            continue
        first.count += group.count
        first.processes.update(group.processes)
        first.add_lines(group.lines[:1])
        first.patterns += [one for one in group.patterns if one not in first.patterns]
        first.last_seen = group.last_seen or first.last_seen
    return list(out.values())


def _incident(
    group: Group, catalogue: Catalogue, redact: Redact, apply_steps: Collection[int]
) -> Incident:
    rule = catalogue.rules[group.kind]
    kind = group.kind
    facts = build(kind.area, {
        name: redact(value) if isinstance(value, str) else value for name, value in group.fields.items()
    })  # fmt: skip
    values = {name: redact(text) for name, text in values_of(facts, group.run).items()}
    fix_steps = render_steps(rule, values, group.run.version, group.run.arguments)
    change = next((step.change for step in fix_steps if step.change), {})
    if apply_steps:
        change = {}
        for step in fix_steps:
            if step.number in apply_steps:
                change |= step.change
    command = suggested_command(group.run, change)
    return Incident(
        id=f"{kind.value}:{group.line.source}:{group.line.number}",
        kind=kind,
        area=kind.area,
        severity=group.severity,
        role=group.role,
        title=_filled(rule.title, values),
        summary=_filled(rule.summary, values),
        cause=_filled(rule.cause, values),
        confidence=group.confidence,
        facts=facts,
        fix_steps=fix_steps,
        suggested_command=redact(command) if command else None,
        evidence=tuple(
            Evidence(
                source=line.source,
                line=line.number,
                text=redact(without_escapes(line.raw[:MAX_TEXT])),
            )
            for line in group.lines
        ),
        count=max(1, group.count),
        first_seen=group.first_seen,
        last_seen=group.last_seen,
        processes=tuple(group.processes),
        patterns=tuple(group.patterns),
        collect=rule.collect,
        verify=_filled(rule.verify, values) if rule.verify else None,
        topics=tuple(name for name, topic in catalogue.topics.items() if kind in topic.kinds),
        docs=rule.docs,
    )


def _filled(template: str, values: dict[str, str]) -> str:
    text = templates.fill(template, values)
    if text is not None:
        return text
    return (
        templates.fill(template, dict.fromkeys(templates.names(template), "?") | values)
        or template
    )


def fact_texts(facts: AnyFacts) -> dict[str, str]:
    """An incident's facts as texts for people."""
    known = facts.model_dump(exclude_none=True, exclude={"family"})
    return {name: human(name, value) for name, value in known.items()}
