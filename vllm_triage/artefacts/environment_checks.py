"""Checks: what is wrong with the environments of nodes that are to form one group."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_triage.artefacts.environment_nodes import Interface, Node, is_loopback, values_of
from vllm_triage.expressions import expression
from vllm_triage.lines import Line
from vllm_triage.numbers import whole

_SAME = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NNODES", "VLLM_DP_MASTER_IP", "VLLM_DP_MASTER_PORT", "VLLM_DP_SIZE")  # fmt: skip
_NEEDED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
_RANKS = {"RANK": "WORLD_SIZE", "NODE_RANK": "NNODES", "VLLM_DP_RANK": "VLLM_DP_SIZE"}
# What the ends of a connection have to agree on; those that choose a device may differ.
_TRANSPORT = ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_PROTO", "NCCL_ALGO", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE",
              "NCCL_MNNVL_ENABLE", "VLLM_USE_V1", "VLLM_ATTENTION_BACKEND", "VLLM_PP_LAYER_PARTITION")  # fmt: skip
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_ADDRESS = expression(r"[\d.]{7,15}|[\da-fA-F:]{3,45}")
_NO_NETWORK = expression(r"lo|docker\d{1,3}|virbr\d{1,3}")
_VIRTUAL = expression(
    r"lo|docker\d*|br-.*|virbr.*|veth.*|tun.*|cni.*|flannel.*|cali.*|kube.*|tailscale.*"
)
_MAX_SHOWN = 3


class Fault(NamedTuple):
    """Something that is wrong."""

    check: str
    variable: str
    says: str
    """A sentence without its full stop."""
    lines: tuple[Line, ...]
    """The first and the one to hold it against."""
    value: str | None = None
    """What to set the variable to."""
    node: str | None = None
    """Where to set it."""


def of_group(members: Sequence[Node]) -> Iterator[Fault]:
    """What is wrong between nodes that are to form one group."""
    several = [one for one in members if one.is_of_several]
    sizes = values_of("WORLD_SIZE", several) or values_of("NNODES", several)
    if len({one.host for one in several}) < 2 or (sizes and set(sizes) == {"1"}):
        return
    for name in _SAME:
        yield from _differing(name, several)
    for name, size in _RANKS.items():
        yield from _ranks(name, size, several)
    yield from _missing(several)
    yield from _host_addresses(several)
    yield from _transport(several)


def of_node(node: Node, *, is_of_several: bool) -> Iterator[Fault]:
    """What is wrong on one node, as its interfaces show."""
    for name in _INTERFACES:
        wanted = node.variables.get(name)
        if not wanted:
            continue
        line = node.lines[name]
        names = wanted.removeprefix("=").split(",")
        if is_of_several and not wanted.startswith("^") and all(map(_NO_NETWORK.fullmatch, names)):
            best = _best(node.interfaces)
            says = f"{name} is {wanted} on {node.name}, an interface that reaches no other node"
            yield Fault("interface_local", name, says, (line,), best, node.name)
            continue
        if not node.interfaces:
            continue
        fitting = selected(name, wanted, node.interfaces)
        if not fitting and node.is_listing_cut:
            continue
        if not fitting:
            there = ", ".join(one.name for one in node.interfaces[:8])
            says = f"{name} is {wanted} on {node.name}, which has {there}"
            lines = (line, node.interfaces[0].line)
            yield Fault("interface_missing", name, says, lines, _best(node.interfaces), node.name)
        elif not any(one.is_up for one in fitting):
            says = f"{name} is {wanted} on {node.name}, where {fitting[0].name} is down"
            lines = (line, fitting[0].line)
            yield Fault("interface_down", name, says, lines, _best(node.interfaces), node.name)
    own = node.variables.get("VLLM_HOST_IP", "")
    is_known = node.addresses and not node.is_listing_cut
    if _ADDRESS.fullmatch(own) and is_known and own not in node.addresses:
        best = _best(node.interfaces)
        own_one = next((one for one in node.interfaces if one.name == best), node.interfaces[0])
        says = f"VLLM_HOST_IP is {own} on {node.name}, which has no such address"
        lines = (node.lines["VLLM_HOST_IP"], own_one.line)
        value = next((one for one in own_one.addresses if "." in one), None) if best else None
        yield Fault("host_address_elsewhere", "VLLM_HOST_IP", says, lines, value, node.name)


def selected(variable: str, wanted: str, interfaces: Sequence[Interface]) -> list[Interface]:
    """The interfaces that a variable chooses.

    NCCL takes prefixes, whole names after `=`, and with `^` all others; Gloo and TensorPipe whole
    names. https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    """
    if not variable.startswith("NCCL_"):
        return [one for one in interfaces if one.name in wanted.split(",")]
    is_other = wanted.startswith("^")
    text = wanted.removeprefix("^")
    is_exact = text.startswith("=")
    # A port may follow the name.
    names = [one.partition(":")[0] for one in text.removeprefix("=").split(",") if one]
    return [
        one
        for one in interfaces
        if any(one.name == name if is_exact else one.name.startswith(name) for name in names)
        is not is_other
    ]


def _best(interfaces: Sequence[Interface]) -> str | None:
    """The interface that is most likely meant: up, with an address, and no bridge or tunnel."""
    real = [one for one in interfaces if one.is_up and not _VIRTUAL.fullmatch(one.name)]
    return next((one.name for one in real if any("." in it for it in one.addresses)), None)


def _listed(found: dict[str, list[Node]]) -> str:
    parts = [
        f"{value or 'empty'} on {', '.join(one.name for one in members[:_MAX_SHOWN])}"
        + (f" and {len(members) - _MAX_SHOWN} more" if len(members) > _MAX_SHOWN else "")
        for value, members in list(found.items())[:_MAX_SHOWN]
    ]
    return ", ".join(parts) + (", and others" if len(found) > _MAX_SHOWN else "")


def _first_rank(members: Sequence[Node]) -> Node | None:
    return next(
        (
            one
            for one in members
            if "0" in (one.variables.get("RANK"), one.variables.get("NODE_RANK"))
        ),
        None,
    )


def _differing(name: str, members: Sequence[Node]) -> Iterator[Fault]:
    found = values_of(name, members)
    is_address = name in ("MASTER_ADDR", "VLLM_DP_MASTER_IP")
    if is_address and found and all(map(is_loopback, found)):
        own = [one for held in found.values() for one in held]
        if len({one.host for one in own}) > 1:
            lines = tuple(one.lines[name] for one in own[:2])
            says = f"{name} is {_listed(found)}, so that each looks for the others on itself"
            yield Fault("master_is_local", name, says, lines)
        return
    if len(found) < 2:
        return
    master = _first_rank(members)
    most = max(found, key=lambda value: len(found[value]))
    value = (master.variables.get(name) if master else None) or most
    if is_address and is_loopback(value):
        value = next(one for one in found if not is_loopback(one))
    check = "differs_in_words" if is_address and _may_be_one(found, master) else "differs"
    wrong = next(one for one in members if one.variables.get(name, value) != value)
    lines = (wrong.lines[name], found[value][0].lines[name])
    yield Fault(check, name, f"{name} is {_listed(found)}", lines, value, wrong.name)


def _may_be_one(found: dict[str, list[Node]], master: Node | None) -> bool:
    """Whether all values may name one host: a name and its address, or itself on the first rank."""
    others = [one for one in found if not (is_loopback(one) and found[one] == [master])]
    addresses = {one for one in others if _ADDRESS.fullmatch(one)}
    names = {one.partition(".")[0].lower() for one in others if one not in addresses}
    return len(addresses) <= 1 and len(names) <= 1


def _ranks(name: str, size: str, members: Sequence[Node]) -> Iterator[Fault]:
    found = values_of(name, members)
    sizes = values_of(size, members)
    count = whole(next(iter(sizes))) if len(sizes) == 1 and next(iter(sizes)).isdecimal() else None
    used = {int(value) for value in found if value.isdecimal() and len(value) < 7}
    free = next((one for one in range(len(used) + 1) if one not in used), None)
    for value, own in found.items():
        if len({one.host for one in own}) > 1:
            lines = (own[1].lines[name], own[0].lines[name])
            says = f"{name} is {value} on {own[0].name} and on {own[1].name}"
            value_ = str(free) if free is not None and (count is None or free < count) else None
            yield Fault("rank_repeated", name, says, lines, value_, own[1].name)
            return
    for value, own in found.items():
        if count is not None and value.isdecimal() and whole(value) >= count and count > 0:
            says = f"{name} is {value} on {own[0].name}, but with {size}={count} it goes from 0 to {count - 1}"
            lines = (own[0].lines[name], own[0].lines.get(size, own[0].line))
            value_ = str(free) if free is not None and free < count else None
            yield Fault("rank_out_of_range", name, says, lines, value_, own[0].name)
            return


def _missing(members: Sequence[Node]) -> Iterator[Fault]:
    """A variable that torch's `env://` needs and one node lacks, though it has others of them."""
    for name in _NEEDED:
        having = [one for one in members if name in one.variables]
        lacking = [
            one
            for one in members
            if name not in one.variables
            and name not in one.unstated
            and one.sort != "manifest"
            and one.cut is None
            and any(other in one.variables for other in _NEEDED)
        ]
        if having and lacking:
            value = None if name == "RANK" else having[0].variables[name]
            says = f"{name} is set on {having[0].name} and not on {lacking[0].name}"
            lines = (lacking[0].line, having[0].lines[name])
            yield Fault("missing", name, says, lines, value, lacking[0].name)


def _host_addresses(members: Sequence[Node]) -> Iterator[Fault]:
    name = "VLLM_HOST_IP"
    for value, own in values_of(name, members).items():
        if not value:
            continue
        if len({one.host for one in own}) > 1:
            lines = (own[0].lines[name], own[1].lines[name])
            says = f"{name} is {value} on {own[0].name} and on {own[1].name}; it is each node's own address"
            yield Fault("host_address_repeated", name, says, lines, None, own[1].name)
        elif is_loopback(value):
            says = f"{name} is {value} on {own[0].name}, where no other node can reach it"
            yield Fault("host_address_local", name, says, (own[0].lines[name],), None, own[0].name)


def _transport(members: Sequence[Node]) -> Iterator[Fault]:
    for name in _TRANSPORT:
        found = values_of(name, members)
        lacking = [
            one
            for one in members
            if name not in one.variables
            and name not in one.unstated
            and one.is_whole
            and one.cut is None
        ]
        if name.endswith("_DISABLE"):
            # Not set is 0.
            found = {value: own for value, own in found.items() if value != "0"}
            lacking += [one for one in members if one.variables.get(name) == "0"]
        if len(found) < 2 and not (found and lacking):
            continue
        first = next(iter(found.values()))[0]
        wrong = lacking[0] if lacking else list(found.values())[1][0]
        says = f"{name} is {_listed(found)}"
        if lacking:
            says += f", and {wrong.variables.get(name, 'not set')} on {wrong.name}"
        lines = (first.lines[name], wrong.lines.get(name, wrong.line))
        yield Fault("transport_differs", name, says, lines, first.variables[name], wrong.name)
