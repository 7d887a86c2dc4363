"""Incidents: groups rendered, consequences under their cause."""

from collections.abc import Collection, Sequence
from math import prod

from vllm_triage import cards, checkpoints, platforms, templates, weights
from vllm_triage.arguments import number
from vllm_triage.catalogue import Catalogue
from vllm_triage.causes import order
from vllm_triage.commands import suggested_command
from vllm_triage.completed import completed
from vllm_triage.conditions import satisfies
from vllm_triage.escapes import without_escapes
from vllm_triage.facts import AnyFacts, build, stated
from vllm_triage.fixes import render_steps, render_verify
from vllm_triage.groups import GRAVITY, Group
from vllm_triage.kinds import Confidence, Kind, Phase
from vllm_triage.leaving import Redact, Veil
from vllm_triage.memory import budget
from vllm_triage.model import Evidence, FixStep, Incident, MemoryBudget
from vllm_triage.rules import Variant
from vllm_triage.run import Run
from vllm_triage.values import human, values_of

MAX_TEXT = 2000
_MAX_PARALLEL = 4096
_OF_CARDS = (Kind.OOM_LOAD, Kind.OOM_QUANTIZED, Kind.OOM_KV_CACHE)
_OF_MEMORY = (*_OF_CARDS, Kind.OOM_INFERENCE, Kind.PERFORMANCE_KV_CACHE_PRESSURE)


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
    groups: Sequence[Group],
    catalogue: Catalogue,
    redact: Redact,
    apply_steps: Collection[int] = (),
) -> tuple[tuple[Incident, ...], str | None]:
    """Turn groups into incidents, the root cause first, and name the root cause."""
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
    kinds: dict[Kind, str] = {}
    for group, incident in zip(ranked, incidents, strict=True):
        kinds.setdefault(group.kind, incident.id)
    linked = []
    for group, incident in zip(ranked, incidents, strict=True):
        cause = group.caused_by
        named = (ids.get(id(cause)) or kinds.get(cause.kind)) if cause is not None else None
        if named is not None and named != incident.id:
            title = catalogue.rules[group.kind].caused_title or incident.title
            linked.append(incident.model_copy(update={"caused_by": named, "title": title}))
        else:
            linked.append(incident)
    return tuple(linked), linked[0].id if linked else None


def _merged(groups: Sequence[Group]) -> list[Group]:
    """Fold the same kind in several runs or files into the first."""
    out: dict[tuple[Kind, str], Group] = {}
    for group in groups:
        name = group.name
        if group.kind is Kind.ENGINE_UNRECOGNISED:
            name = str(group.fields.get("exception"))
        first = out.setdefault((group.kind, name), group)
        if first is group:
            continue
        first.count += group.count
        first.severity = min(first.severity, group.severity, key=GRAVITY.__getitem__)
        if not first.event.table:
            first.event = first.event._replace(table=group.event.table)
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
    observed = group.run.observed
    known = {**observed, **checkpoints.facts(kind, observed, group.fields), **group.fields}
    texts = [without_escapes(line.raw[:MAX_TEXT]) for line in group.lines]
    veil = Veil(redact, (*texts, group.event.text[:MAX_TEXT], *group.told))
    facts = build(kind.area, {name: veil.of(value) for name, value in known.items()})
    values = {
        name: veil(text)
        for name, text in values_of(facts, group.run, group.processes, group.lines).items()
    }
    fix_steps = render_steps(rule, values, group.run.version, group.run.arguments)
    change = next((step.change for step in fix_steps if step.change and _is_certain(step)), {})
    if apply_steps:
        change = {}
        for step in fix_steps:
            if step.number in apply_steps:
                change |= step.change
    command = suggested_command(group.run, change)
    fix_steps = tuple(_completed(step, group.run, redact) for step in fix_steps)
    return Incident(
        id=f"{kind.value}:{redact(group.line.source)}:{group.line.number}",
        kind=kind,
        area=kind.area,
        severity=group.severity,
        role=group.role,
        title=templates.fill(rule.title, values) or kind.value,
        summary=templates.fill_sentences(rule.summary, values),
        cause=templates.fill_sentences(rule.cause, values),
        confidence=group.confidence,
        facts=facts,
        memory=_memory(group, facts),
        cards=_cards(group) if kind in _OF_CARDS else None,
        fix_steps=fix_steps,
        suggested_command=redact(command) if command else None,
        evidence=tuple(
            Evidence(source=redact(line.source), line=line.number, text=redact(text))
            for line, text in zip(group.lines, texts, strict=True)
        ),
        table=tuple(tuple(map(veil, row)) for row in group.event.table),
        count=max(1, group.count),
        first_seen=group.first_seen,
        last_seen=group.last_seen,
        processes=tuple(map(redact, group.processes)),
        patterns=tuple(group.patterns),
        collect=templates.filled(rule.collect, values),
        verify=render_verify(rule, values, group.run.version),
        topics=tuple(name for name, topic in catalogue.topics.items() if kind in topic.kinds),
        docs=rule.docs,
    )


def _completed(step: FixStep, run: Run, redact: Redact) -> FixStep:
    """A step whose command starts the server as the user did."""
    command = completed(step.command, run, step.change)
    if command is None or command == step.command:
        return step
    return step.model_copy(update={"command": redact(command)})


def _is_certain(step: FixStep) -> bool:
    """Tell whether a step is for this log as it is, not only where something else holds too."""
    return not step.do.startswith(("Where ", "Only where ", "For "))


def _memory(group: Group, facts: AnyFacts) -> MemoryBudget | None:
    run = group.run
    if group.kind not in _OF_MEMORY or _is_on_cpu(group):
        return None
    share = number(run.arguments, "gpu_memory_utilization")
    return budget(facts, run.memory, (group.line.process, group.line.pid), share)


def _cards(group: Group) -> str | None:
    """Which cards hold the weights: as its files or the log measure them, else as the name states."""
    run = group.run
    if _is_on_cpu(group):
        return None
    name, quantization = run.model or "", group.quantization or run.quantization
    named = weights.model_weights_bytes(name, quantization)
    measured = number(run.observed, "checkpoint_bytes") or _measured_weights(run)
    width = weights.bytes_per_parameter(name, quantization)
    if measured is not None and (named is None or not 0.67 < measured / named < 1.5):
        # A local folder may hold weights of any width.
        width = None
    make = platforms.values(run.platform, group.lines).get("gpu_make", cards.NVIDIA)
    return cards.sentence(measured or named, width, make)


def _measured_weights(run: Run) -> float | None:
    """One GPU's weights times the GPUs that share them; None where a GPU's part says less of the whole."""
    if run.memory.weights_bytes is None or any(
        run.arguments.get(name) for name in ("cpu_offload_gb", "enable_expert_parallel")
    ):
        return None
    sizes = [
        number(run.arguments, name) or number(run.config, name) or 1
        for name in ("tensor_parallel_size", "pipeline_parallel_size")
    ]
    return (
        run.memory.weights_bytes * prod(sizes)
        if all(1 <= one <= _MAX_PARALLEL for one in sizes)
        else None
    )


def _is_on_cpu(group: Group) -> bool:
    device = group.run.config.get("device_config")
    return device == "cpu" or (group.run.version or "").endswith("+cpu")


def fact_texts(facts: AnyFacts) -> dict[str, str]:
    """An incident's facts as texts for people."""
    return {name: human(name, value) for name, value in stated(facts).items()}
