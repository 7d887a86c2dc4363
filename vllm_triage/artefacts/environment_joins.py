"""What the environments of nodes say together, and beside the run that the log shows."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from vllm_triage.arguments import number
from vllm_triage.artefacts.environment_checks import Fault, of_group, of_node
from vllm_triage.artefacts.environment_nodes import Node, nodes, values_of
from vllm_triage.artefacts.observations import Observation, Value
from vllm_triage.echoes import devices
from vllm_triage.expressions import expression
from vllm_triage.lines import Line
from vllm_triage.run import Run
from vllm_triage.tables import table
from vllm_triage.versions import parse

_MAX_FAULTS = 16
_MAX_SAID = 3
_MAX_COLUMNS = 6
_MAX_ROWS = 16
_COMMON = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
_UUID = expression(r"(?:GPU|MIG)-[\w/-]{1,80}")
# What Kubernetes sets for a service whose name begins with vllm.
_OF_SERVICE = expression(
    r"VLLM(?:_\w{1,60}?)?_(?:SERVICE_HOST|SERVICE_PORT(?:_\w{1,40})?|PORT(?:_\d{1,5}_(?:TCP|UDP|SCTP)(?:_(?:ADDR|PORT|PROTO))?)?)"
)
# Of packages beside vLLM, which have variables of their own.
_OF_OTHERS = expression(
    r"VLLM_(?:ASCEND|HPU|GAUDI|NEURON|SPYRE|METAL|TPU|XLA|RBLN|OMNI|DETOKENIZE)_\w{1,80}"
)
_ADDRESS = expression(r"(?:tcp|udp)://\S{1,100}")
_CLOSE = 0.88
_MAX_NAMES = 300
_MAX_NAME = 80


def tell(run: Run, observations: Sequence[Observation]) -> None:
    """Give a run the GPUs that its environment lets it see, and where the ranks meet."""
    found = nodes(observations)
    counts = {count for one in found if (count := _devices(one)) is not None}
    if len(found) == 1 and len(counts) == 1:
        run.visible_gpus = run.visible_gpus or counts.pop()
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        stated = values_of(name, found)
        if len(stated) == 1:
            run.meeting.feed(f"{name}={next(iter(stated))}")


def joined(observations: Sequence[Observation], run: Run) -> Iterator[Observation]:
    """What is wrong with the environments, an observation each."""
    found = nodes(observations)
    if not found:
        return
    groups = [[one for one in found if one.group == group] for group in sorted({one.group for one in found})]  # fmt: skip
    for members in groups:
        faults: list[Fault] = []
        if not run.was_serving:
            # A server that answered has found its nodes, whatever else the shells hold.
            several = len({one.host for one in members if one.is_of_several}) > 1
            faults = [*of_group(members)]
            for one in members:
                faults += of_node(one, is_of_several=several)
        shown = _table(members, faults)
        says = "; ".join(fault.says for fault in faults[:_MAX_SAID])
        for fault in faults[:_MAX_FAULTS]:
            values: dict[str, Value] = {
                "check": fault.check,
                "environment_variable": fault.variable,
                "environment_fault": says,
            }
            if fault.value:
                values["environment_value"] = fault.value
            if fault.node:
                values["environment_node"] = fault.node
            yield _observation(values, fault.lines, shown)
    if len(found) == 1 and not run.was_serving:
        yield from _too_few_devices(found[0], run)
    yield from _unknown(found, run)


def _observation(
    values: dict[str, Value], lines: Sequence[Line], shown: tuple[tuple[str, ...], ...] = ()
) -> Observation:
    # A pattern asks for `places` too, so that the line is shown which the first is held against.
    places = {"places": lines[0], "check": lines[-1]}
    return Observation("environment", {**values, "places": len(lines)}, places, shown)


def _table(members: Sequence[Node], faults: Sequence[Fault]) -> tuple[tuple[str, ...], ...]:
    """The nodes with the variables that do not fit, and those that all have to have."""
    wrong = [fault.variable for fault in faults]
    common = [name for name in _COMMON if values_of(name, members)]
    names = list(dict.fromkeys((*wrong, *common)))[:_MAX_COLUMNS]
    if len(members) < 2 or not wrong:
        return ()
    marked = {fault.node for fault in faults}
    rows = sorted(members, key=lambda one: one.name not in marked)[:_MAX_ROWS]
    kept = [one for one in members if one in rows]
    return (
        ("node", *names),
        *((one.name, *(_cell(one, name) for name in names)) for one in kept),
    )


def _cell(node: Node, name: str) -> str:
    if name in node.unstated:
        return "not shown"
    return node.variables.get(name, "not set") or "empty"


def _devices(node: Node) -> int | None:
    """How many GPUs the environment lets a server see; None where it says nothing of it."""
    value = node.variables.get("CUDA_VISIBLE_DEVICES")
    if value is None or value.lower() == "all":
        return None
    ids = [one.strip() for one in value.split(",")]
    if all(map(_UUID.fullmatch, ids)):
        return len(ids)
    return devices(value) if all(one.isdecimal() for one in ids) else None


def _too_few_devices(node: Node, run: Run) -> Iterator[Observation]:
    count = _devices(node)
    tensor = number(run.arguments, "tensor_parallel_size") or number(
        run.config, "tensor_parallel_size"
    )
    pipeline = number(run.arguments, "pipeline_parallel_size") or 1
    backend = run.arguments.get("distributed_executor_backend")
    if (
        count is None
        or not tensor
        or (number(run.arguments, "nnodes") or 1) > 1
        or node.is_of_several
        or backend == "ray"
        or tensor * pipeline <= count
    ):
        return
    values: dict[str, Value] = {
        "check": "too_few_devices",
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": pipeline,
        "gpu_count": count,
    }
    yield _observation(values, (node.lines["CUDA_VISIBLE_DEVICES"],))


def _unknown(found: Sequence[Node], run: Run) -> Iterator[Observation]:
    """Variables that the release does not read."""
    known: dict[str, str] = table("environment")["variables"]
    release = run.version if run.release.version_from in ("banner", "package", "image") else None
    first: dict[str, Node] = {}
    for one in found:
        for name in one.variables:
            if name.startswith("VLLM_") and len(first) < _MAX_NAMES:
                first.setdefault(name, one)
    told = 0
    for name, node in first.items():
        facts = _unfit(name, node, known, release)
        if facts is not None and told < _MAX_FAULTS:
            told += 1
            yield _observation({"argument": name, **facts}, (node.lines[name],))


def _unfit(
    name: str, node: Node, known: dict[str, str], release: str | None
) -> dict[str, Value] | None:
    value = node.variables[name]
    if name == "VLLM_PORT" and _ADDRESS.fullmatch(value):
        return {"check": "port_is_address", "variable": name, "value": value}
    if name in known:
        away = away_from(known[name], release)
        return {"check": "not_in_release", "detail": away} if away else None
    if _OF_SERVICE.fullmatch(name) or _OF_OTHERS.fullmatch(name) or len(name) > _MAX_NAME:
        return None
    near = get_close_matches(name, known, 1, _CLOSE)
    if not near or near[0] in node.variables or away_from(known[near[0]], release):
        return None
    return {"check": "misspelt", "meant": near[0]}


def away_from(span: str, release: str | None) -> str | None:
    """Where a release certainly lacks a variable: which have it; None where it may have it.

    `0.4.3 - 0.9.2` is what of the releases read has it; those between two of them may have it too.
    """
    given = parse(release)
    if given is None:
        return None
    releases: list[str] = table("environment")["releases"]
    first, _, last = span.partition(" - ")
    before = parse(releases[max(0, releases.index(first) - 1)]) if first != releases[0] else None
    after = parse(releases[releases.index(last) + 1]) if last else None
    if (before is None or given > before) and (after is None or given < after):
        return None
    return f"vLLM has it from {first} to {last}" if last else f"vLLM has it from {first} on"
