"""Memory: what each worker of a run says of its GPU's memory, and the budget of one of them."""

from collections.abc import Mapping
from functools import cache

import regex

from vllm_triage.expressions import expression
from vllm_triage.facts import AnyFacts, OomFacts
from vllm_triage.model import MemoryBudget

_MAX_WORKERS = 32
# No GPU has a pebibyte: what is larger is no measurement.
_MAX_BYTES = 1024**5
# The CUDA context of this process is in use before vLLM measures; what others hold is more.
_OWN_CONTEXT_BYTES = 1024**3
_SIGNED = ("kv_cache",)

_NAME = expression(r"<(\w+)>")


@cache
def _wording(start: str, rest: str) -> regex.Pattern[str]:
    """A regex in which `<name>` stands for a number."""
    text = regex.escape(start, special_only=True) + rest
    return regex.compile(_NAME.sub(r"(?P<\1>-?\\d{1,9}(?:\\.\\d{1,9})?)", text))


# By the words with which a message begins, as vLLM 0.2.7 to 0.33 print them; numbers in GiB,
# though the oldest say GB.
_WORDINGS: tuple[tuple[str, str], ...] = (
    ("Loading model weights took ", "<weights> Gi?B"),
    ("Model loading took ", "<weights> Gi?B"),
    (
        "Memory profiling results: total_gpu_memory=",
        "<total>GiB initial_memory_usage=<initial>GiB peak_torch_memory=<peak>GiB"
        "(?: memory_usage_post_profile=[^ ]{1,20})? non_torch_memory=<non_torch>GiB"
        " kv_cache_size=<kv_cache>GiB gpu_memory_utilization=<utilization>",
    ),
    (
        "the current vLLM instance can use total_gpu_memory (",
        r"<total>GiB\) x gpu_memory_utilization \(<utilization>\) = <desired>GiB",
    ),
    (
        "model weights take ",
        "<weights>GiB; non_torch_memory takes <non_torch>GiB; PyTorch activation peak memory"
        " takes <activations>GiB; the rest of the memory reserved for KV Cache is <kv_cache>GiB",
    ),
    ("Available KV cache memory: ", "<kv_cache> GiB"),
    ("Estimated CUDA graph memory: ", "<cuda_graphs> GiB"),
    ("CUDA graph pool memory: ", r"<cuda_graphs> GiB \(actual\)"),
    ("Graph capturing finished in ", r"\d{1,9} secs, took <cuda_graphs> GiB"),
    (
        "Free memory on device ",
        r"(?:[^\s(]\S{0,40} )?\(<initial_free>/<total> GiB\) on startup\."
        r" Desired GPU memory utilization is \(<utilization>, <desired> GiB\)\."
        r"(?: Actual usage is (?:<weights> GiB for weight|<consumed> GiB for consumed memory[^,]{0,40}),"
        r" <activations> GiB for peak activation,"
        r"(?: <non_torch> GiB for non-torch memory,)? and <cuda_graphs> GiB for CUDAGraph memory"
        r"(?:[^\n]{0,400}? Current kv cache memory in use is <kv_cache> GiB)?)?",
    ),
    (
        "Initial free memory: ",
        r"<initial_free> GiB; Requested memory: <utilization> \(util\), <desired> GiB",
    ),
    (
        "Initial free memory: ",
        "<initial_free> GiB, free memory: [^ ]{1,20} GiB, requested GPU memory: <desired> GiB",
    ),
    (
        "Initial free memory ",
        "<initial_free> GiB, reserved <kv_cache> ?GiB memory for KV Cache",
    ),
)
STARTS = tuple({start for start, _ in _WORDINGS})
"""What the messages that state sizes begin with."""

Worker = tuple[str | None, int | None]
"""A process's name and id, as its lines show them."""


def measured(text: str) -> dict[str, float]:
    """The numbers that a message states: bytes, and `utilization` from 0 to 1; none for any other.

    A size that is negative, unless it is the KV cache's, or larger than a pebibyte is left out.
    """
    if not text.startswith(STARTS):
        return {}
    for start, rest in _WORDINGS:
        found = _wording(start, rest).match(text) if text.startswith(start) else None
        if found is None:
            continue
        out: dict[str, float] = {}
        for name, digits in found.groupdict().items():
            value = float(digits) if digits is not None else None
            if value is None:
                continue
            if name == "utilization":
                if 0 < value <= 1:
                    out[name] = value
            elif value * 1024**3 <= _MAX_BYTES and (value >= 0 or name in _SIGNED):
                out[name] = round(value * 1024**3)
        return out
    return {}


class Memory:
    """What the workers of one run said; of very many the first."""

    def __init__(self) -> None:
        self._workers: dict[Worker, dict[str, float]] = {}

    def feed(self, worker: Worker, text: str) -> None:
        """Take a message of a worker; a later number replaces an earlier one."""
        found = measured(text)
        if not found:
            return
        known = self._workers.get(worker)
        if known is None:
            if len(self._workers) >= _MAX_WORKERS:
                return
            known = self._workers.setdefault(worker, {})
        known.update(found)

    @property
    def weights_bytes(self) -> int | None:
        """What the weights take on the GPU that holds most of them, in bytes."""
        known = [said["weights"] for said in self._workers.values() if "weights" in said]
        return int(max(known)) if known else None

    def of(self, worker: Worker) -> tuple[str | None, Mapping[str, float]]:
        """A worker's name and numbers: the one asked for, else the one with the largest weights."""
        known = self._workers.get(worker)
        if known is not None:
            return worker[0], known
        if not self._workers:
            return None, {}
        (name, _), best = max(self._workers.items(), key=lambda one: one[1].get("weights", 0))
        return name, best


def budget(
    facts: AnyFacts, memory: Memory, worker: Worker, share: float | None = None
) -> MemoryBudget | None:
    """The memory of the GPU that failed: what the failing lines state, else what its worker said.

    `share` is the utilization that the arguments show, used where the lines state none.
    Activations are the torch peak less the weights, where only the peak is printed; non-torch
    memory is what was consumed less the weights; others hold what was in use at the start
    (total less free), or what the failing line leaves over (total less free less this process).
    None when fewer than two sizes are known, and for the memory of a host.
    """
    stated = facts if isinstance(facts, OomFacts) else OomFacts()
    if stated.node is not None:
        return None
    name, said = memory.of(worker)
    utilization = stated.gpu_memory_utilization or said.get("utilization") or share
    if utilization is not None and not 0 < utilization <= 1:
        utilization = None
    sizes = _sizes(stated, said, utilization)
    if len(sizes) < 2:
        return None
    return MemoryBudget(
        process=name if said else worker[0],
        gpu_index=stated.gpu_index,
        gpu_memory_utilization=utilization,
        **{f"{key}_bytes": value for key, value in sizes.items()},
    )


def _sizes(
    stated: OomFacts, said: Mapping[str, float], utilization: float | None
) -> dict[str, int]:
    """Every size that is known, by its name without `_bytes`."""
    total = stated.total_bytes or said.get("total")
    weights = stated.weights_bytes or said.get("weights")
    free = stated.free_bytes
    first_free = free if stated.desired_bytes is not None else said.get("initial_free")
    desired = stated.desired_bytes or said.get("desired")
    if desired is None and total is not None and utilization is not None:
        desired = total * utilization
    values = {
        "total": total,
        "desired": desired,
        "weights": weights,
        "activations": said.get("activations", _less(said.get("peak"), weights)),
        "non_torch": said.get("non_torch", _less(said.get("consumed"), weights)),
        "cuda_graphs": said.get("cuda_graphs"),
        "kv_cache": said.get("kv_cache") if stated.available_bytes is None else stated.available_bytes,
        "kv_cache_needed": stated.needed_bytes,
        "other_processes": _others(total, free, _own(stated), said.get("initial", _less(total, first_free))),
        "process": _own(stated),
        "allocated": stated.allocated_bytes,
        "reserved": stated.reserved_bytes,
        "requested": stated.requested_bytes,
        "free": free,
    }  # fmt: skip
    return {
        name: int(value)
        for name, value in values.items()
        if value is not None and value <= _MAX_BYTES and (value >= 0 or name in _SIGNED)
    }


def _less(whole: float | None, part: float | None) -> float | None:
    """What is left of a whole; None when it is not known or not positive."""
    return whole - part if whole is not None and part is not None and whole > part else None


def _own(stated: OomFacts) -> int | None:
    """What this process holds; torch may name another one, which then holds less than is allocated."""
    held, allocated = stated.process_bytes, stated.allocated_bytes or 0
    return held if held is not None and held >= allocated else None


def _others(
    total: float | None, free: float | None, own: float | None, before: float | None
) -> float | None:
    """What other processes hold: total less free less own, else what was in use before; over 1 GiB."""
    if total is not None and free is not None and own is not None:
        before = total - free - own
    return before if before is not None and before > _OWN_CONTEXT_BYTES else None


def held_elsewhere(known: Mapping[str, object]) -> float | None:
    """Bytes of the failing GPU that are not this process's, by what the failing line states.

    Where the line does not say what the process holds, PyTorch's part stands for it; what the
    driver and libraries hold beside that is less than half a GPU. None where it is not sure.
    """
    total, free, own, allocated, reserved = (
        _size(known.get(f"{name}_bytes"))
        for name in ("total", "free", "process", "allocated", "reserved")
    )
    if total is None or free is None or allocated is None:
        return None
    is_stated = own is not None and own >= allocated
    rest = total - free - (own if own is not None and is_stated else allocated + (reserved or 0))
    return rest if rest > (_OWN_CONTEXT_BYTES if is_stated else total / 2) else None


def _size(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
