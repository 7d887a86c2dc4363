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
    listings: list[tuple[str, tuple[Interface, ...]]] = []
    for one in observations:
        if one.subject != "environment":
            continue
        variables = {name: str(value) for name, value in one.values.items() if name[0].isupper()}
        interfaces = tuple(_interfaces(one))
        source = next(iter(one.lines.values())).source
        name = str(one.values.get("node", "")) or stem(source)
        if not variables:
            listings.append((name, interfaces))
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
        )
        if not any((node.name, node.variables) == (it.name, it.variables) for it in found):
            found.append(node)
    found = sorted(found[:MAX_NODES], key=lambda one: (one.name, one.line.source, one.line.number))
    return _told_apart([_with_listing(one, listings, len(found)) for one in found])


def _interfaces(one: Observation) -> list[Interface]:
    out = []
    for key, value in one.values.items():
        name = key.removeprefix("interface ")
        if name != key:
            state, *addresses = str(value).split()
            out.append(Interface(name, state == "up", tuple(addresses), one.lines[key]))
    return out


def _with_listing(
    node: Node, listings: Sequence[tuple[str, tuple[Interface, ...]]], count: int
) -> Node:
    if node.interfaces:
        return node
    if len(listings) == count == 1:
        return node._replace(interfaces=listings[0][1])
    names = {node.name.casefold(), node.host.casefold(), stem(node.line.source).casefold()}
    own = [interfaces for name, interfaces in listings if name.casefold() in names]
    return node._replace(interfaces=own[0]) if len(own) == 1 else node


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
