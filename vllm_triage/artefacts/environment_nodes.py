"""Nodes: the environments and interfaces that belong together, of the nodes that are compared."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from vllm_triage.artefacts.observations import Observation
from vllm_triage.artefacts.variables import REFERENCE
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

MAX_NODES = 1024
_WORD = expression(r"[^\W_]+")
_GENERIC = frozenset(
    ("env", "environ", "environment", "printenv", "vars", "variables", "export", "ip", "addr", "address", "ipaddr",
     "addresses", "interfaces", "ifconfig", "iface", "link", "txt", "log", "out", "json", "yaml", "yml", "inspect", "docker", "of")
)  # fmt: skip
# What tells that a node is one of several, or is to be.
_SHARED = frozenset(
    ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "NODE_RANK", "NNODES", "RAY_ADDRESS", "VLLM_HOST_IP",
     "VLLM_DP_MASTER_IP", "VLLM_DP_SIZE", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
)  # fmt: skip
_LOOPBACK = expression(r"(?i)127(?:\.\d{1,3}){3}|localhost|::1|0\.0\.0\.0|0")


class Interface(NamedTuple):
    """A network interface of a node."""

    name: str
    is_up: bool
    addresses: tuple[str, ...]
    line: Line


class _Listing(NamedTuple):
    """The interfaces of a node, in a file of their own."""

    name: str
    interfaces: tuple[Interface, ...]
    is_cut: bool


class Node(NamedTuple):
    """One node, or one process of it."""

    name: str
    host: str
    """What tells machines apart."""
    group: str
    sort: str
    is_whole: bool
    """Whether nothing was left out of its environment."""
    variables: Mapping[str, str]
    """Those that are stated; not those that come from elsewhere."""
    unstated: frozenset[str]
    """Those that are set to what the artefact does not say."""
    lines: Mapping[str, Line]
    interfaces: tuple[Interface, ...] = ()
    """Empty where no listing is known."""
    cut: str | None = None
    """The variable that its file ends in, without an end of the line; empty for none, None where nothing is cut."""
    is_listing_cut: bool = False

    @property
    def line(self) -> Line:
        """A line of its environment."""
        shared = (line for name, line in self.lines.items() if name in _SHARED)
        return next(shared, next(iter(self.lines.values())))

    @property
    def addresses(self) -> frozenset[str]:
        """All addresses of its interfaces."""
        return frozenset(one for interface in self.interfaces for one in interface.addresses)

    @property
    def is_of_several(self) -> bool:
        """Whether it states what only one of several nodes has to."""
        return not _SHARED.isdisjoint(self.variables) or not _SHARED.isdisjoint(self.unstated)


def is_loopback(value: str) -> bool:
    """Tell an address at which only the same machine answers."""
    return _LOOPBACK.fullmatch(value) is not None


def nodes(observations: Sequence[Observation]) -> list[Node]:
    """The nodes in the order of their names, each with its interfaces where a listing is there."""
    found: list[Node] = []
    listings: list[_Listing] = []
    for one in observations:
        if one.subject != "environment":
            continue
        variables = {name: str(value) for name, value in one.values.items() if name[0].isupper()}
        interfaces = tuple(_interfaces(one))
        source = next(iter(one.lines.values())).source
        name = str(one.values.get("node", "")) or stem(source)
        if not variables:
            listings.append(_Listing(name, interfaces, "listing" in one.values))
            continue
        node = Node(
            name,
            variables.get("HOSTNAME", name),
            str(one.values.get("group", "")),
            str(one.values.get("sort", "")),
            one.values.get("whole") == "yes",
            {key: value for key, value in variables.items() if value != REFERENCE},
            frozenset(key for key, value in variables.items() if value == REFERENCE),
            {key: line for key, line in one.lines.items() if key in variables},
            interfaces,
            str(one.values["cut"]) if "cut" in one.values else None,
            bool(interfaces) and "listing" in one.values,
        )
        if not any((node.name, node.variables) == (it.name, it.variables) for it in found):
            found.append(node)
    found = sorted(found[:MAX_NODES], key=lambda one: (one.name, one.line.source, one.line.number))
    found = _told_apart([_with_listing(one, listings, len(found)) for one in found])
    return [_without_cut(one, found) for one in found]


def _without_cut(node: Node, every: Sequence[Node]) -> Node:
    """A node without the value that its file ends in, where more of it may have stood there."""
    value = node.variables.get(node.cut or "")
    if value is None or node.cut is None:
        return node
    others = {one.variables[node.cut] for one in every if one is not node and node.cut in one.variables}  # fmt: skip
    longer = {*others, *(one.name for one in node.interfaces), *node.addresses}
    # A list may have gone on, and a number or an address that others have too may have been another.
    is_list = node.cut.endswith("_DEVICES")
    sizes = {*values_of("WORLD_SIZE", every), *values_of("NNODES", every)}
    is_number = node.cut.endswith("RANK") and all(len(one) == 1 or one == "10" for one in sizes)
    may_be_part = any(one.startswith(value) and one != value for one in longer)
    may_be_other = value in others and node.cut.endswith(("RANK", "HOST_IP")) and not is_number
    if value and value[0] not in "'\"" and not (may_be_part or may_be_other or is_list):
        return node
    return node._replace(
        variables={name: it for name, it in node.variables.items() if name != node.cut},
        unstated=node.unstated | {node.cut},
    )


def unfinished(found: Sequence[Node]) -> dict[str, str]:
    """Half a sentence a file of which something was not compared, as the file may be cut off."""
    return {
        one.line.source: f"its last line has no end and may be cut off; {one.cut} was not compared"
        for one in found
        if one.cut and one.cut in one.unstated
    }


def _interfaces(one: Observation) -> list[Interface]:
    out = []
    for key, value in one.values.items():
        name = key.removeprefix("interface ")
        if name != key:
            state, *addresses = str(value).split()
            out.append(Interface(name, state == "up", tuple(addresses), one.lines[key]))
    return out


def _with_listing(node: Node, listings: Sequence[_Listing], count: int) -> Node:
    if node.interfaces:
        return node
    names = {node.name.casefold(), node.host.casefold(), stem(node.line.source).casefold()}
    own = [one for one in listings if one.name.casefold() in names]
    if len(listings) == count == 1:
        own = [*listings]
    if len(own) != 1:
        return node
    return node._replace(interfaces=own[0].interfaces, is_listing_cut=own[0].is_cut)


def _told_apart(found: Sequence[Node]) -> list[Node]:
    names = [one.name for one in found]
    return [
        one if names.count(one.name) == 1 else one._replace(name=f"{one.name}#{index}")
        for index, one in enumerate(found, 1)
    ]


def stem(source: str) -> str:
    """What a file's name says of the node that it is of: `node0` of `node0-env.txt` or `node0/env.txt`."""
    path = PurePath(source.replace("\\", "/"))
    for part in (path.name, path.parent.name):
        words = [word for word in _WORD.findall(part) if word.lower() not in _GENERIC]
        if words:
            return "-".join(words)
    return path.name or source


def values_of(name: str, members: Sequence[Node]) -> dict[str, list[Node]]:
    """The values that a variable has, with the nodes that state each."""
    out: dict[str, list[Node]] = {}
    for one in members:
        value = one.variables.get(name)
        if value is not None:
            out.setdefault(value, []).append(one)
    return out
