"""Drivers: which NVIDIA driver the CUDA release of a run needs."""

from typing import NamedTuple

from vllm_triage.expressions import expression
from vllm_triage.run import Run
from vllm_triage.tables import table
from vllm_triage.versions import holds, parse

# torch 2.7.1+cu128, vLLM 0.8.5+cu121.
_BUILT_FOR = expression(r"\+cu(\d\d)(\d)\b")


class Need(NamedTuple):
    """What a CUDA release asks of the driver."""

    cuda: str
    whole: str
    """The driver that has all of the release."""
    least: str
    """The oldest that works by minor version compatibility."""
    is_printed: bool
    """Whether the log states the CUDA release, and it does not follow from vLLM's."""


def needed(run: Run) -> Need | None:
    """The drivers for the CUDA release that torch, else vLLM's default wheel, is built for."""
    data = table("cuda-drivers")
    built = _BUILT_FOR.search(run.torch_version or "") or _BUILT_FOR.search(run.version or "")
    cuda = f"{built[1]}.{built[2]}" if built else None
    if cuda is None and parse(run.version) is not None:
        fitting = [
            one for one in data["wheel"] if holds(run.version, one.get("since"), one["until"])
        ]
        cuda = fitting[-1]["cuda"] if fitting else None
    drivers = data["driver"].get(cuda)
    if cuda is None or drivers is None:
        return None
    whole, least = drivers
    return Need(cuda, whole, least, built is not None)
