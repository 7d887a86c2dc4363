"""Variables: what one node's environment says that matters to a server, without its secrets."""

from collections.abc import Iterable
from typing import NamedTuple

from vllm_triage.artefacts.observations import Observation, Value, line
from vllm_triage.expressions import expression
from vllm_triage.lines import Line
from vllm_triage.redact import REDACTED
from vllm_triage.secret_names import is_secret

MAX_VALUE = 200
MAX_VARIABLES = 2000
RELEVANT = expression(
    r"(?:VLLM|NCCL|RCCL|GLOO|RAY|TORCH)_\w+|TP_SOCKET_IFNAME|MASTER_(?:ADDR|PORT)|WORLD_SIZE|RANK|NODE_RANK|NNODES"
    r"|LOCAL_RANK|(?:CUDA|HIP|NVIDIA)_VISIBLE_DEVICES|HOSTNAME|HOST_IP"
)
"""What is kept of an environment; the rest is never held."""
REFERENCE = "from a reference"
"""Stands for a value that a manifest takes from elsewhere."""


class Variable(NamedTuple):
    """One variable as it is set."""

    name: str
    value: str
    number: int
    """The number of its line."""
    text: str
    """Its line."""


def node(
    source: str,
    variables: Iterable[Variable],
    *,
    name: str | None = None,
    group: str = "",
    is_whole: bool = False,
) -> Observation | None:
    """One node's environment; None where nothing in it matters.

    Its values are the variables by their names, and in lower case `node`, what the node is called
    where that is known; `group`, nodes of which are compared; `whole`, whether nothing was left out.
    """
    values: dict[str, Value] = {}
    lines: dict[str, Line] = {}
    for one in variables:
        if RELEVANT.fullmatch(one.name) is None or len(values) >= MAX_VARIABLES:
            continue
        is_hidden = is_secret(one.name)
        values[one.name] = REDACTED if is_hidden else one.value[:MAX_VALUE].strip()
        text = (
            one.text if len(one.text) <= 2 * MAX_VALUE else f"{one.name}={one.value[:MAX_VALUE]}"
        )
        lines[one.name] = line(source, one.number, f"{one.name}={REDACTED}" if is_hidden else text)
    if not values:
        return None
    found = values.get("HOSTNAME") or name
    values |= {"group": group, "whole": "yes" if is_whole else "no"}
    if found:
        values["node"] = found
    return Observation("environment", values, lines)
