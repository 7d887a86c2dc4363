"""Suggested values: each a small function with its formula.

None means that too little is known; `NONE_FITS` that no value would help.
"""

import math
from collections.abc import Iterable

from vllm_triage.expressions import expression
from vllm_triage.versions import holds

_UTILIZATIONS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3)
_MARGIN = 0.02
_MAX_SEQUENCES = 1024
_SHARE_FOR_WEIGHTS = 0.9
_SHARE_OF_RUNNING = 0.9
_USUAL_TIMEOUT_S = 1800
_BATCHED_TOKENS = (2048, 4096, 8192, 16384, 32768)

# Worker_TP3, VllmWorker_3, Worker_PP0_TP1; never the engine cores of data parallelism.
_WORKER = expression(r"(?:_TP|VllmWorker_|VllmWorker rank=|Worker_)(\d{1,4})\b")

NONE_FITS = ""


def default_utilization(version: str | None) -> float:
    """The share that a server takes when none is given: 0.9, and 0.92 from 0.20 on."""
    return 0.92 if version is not None and holds(version, "0.20.0", None) else 0.9


def lower_utilization(
    current: float | None, free_bytes: float | None = None, total_bytes: float | None = None
) -> str | None:
    """The next documented share below the current one.

    With free and total memory known: free / total minus two percent, rounded down to a
    hundredth, which is what another process leaves.
    """
    if free_bytes is not None and total_bytes:
        share = math.floor((free_bytes / total_bytes - _MARGIN) * 100) / 100
        return (
            f"{share:g}" if share >= 0.05 and (current is None or share < current) else NONE_FITS
        )
    if current is None:
        return None
    return next((f"{value:g}" for value in _UTILIZATIONS if value < current - 1e-9), NONE_FITS)


def higher_utilization(
    current: float | None, missing_bytes: float | None = None, total_bytes: float | None = None
) -> str | None:
    """The next documented share above the current one, at most 0.95.

    With the memory that is missing and the total known: the first documented share that adds
    as much; where 0.95 does not, none fits.
    """
    if current is None:
        return None
    least = current + (missing_bytes / total_bytes if missing_bytes and total_bytes else 1e-9)
    return next((f"{value:g}" for value in reversed(_UTILIZATIONS) if value >= least), NONE_FITS)


def fitting_max_model_len(
    estimated: float | None,
    kv_cache_tokens: float | None,
    derived: float | None,
    current: float | None,
    available_share: float | None = None,
) -> str | None:
    """The longest context that fits, in tokens.

    vLLM's own estimate, else the tokens that the KV cache holds, else the current length times
    `available_share`, the KV cache's memory over what one full request needs (all rounded down
    to a multiple of 16), else what the model allows, else half of the current length.
    No length fits where the estimate is zero or no memory is left for the cache.
    """
    if estimated == 0 or (available_share is not None and available_share <= 0):
        return NONE_FITS
    linear = current * available_share if current and available_share else None
    for value, step in ((estimated, 16), (kv_cache_tokens, 16), (linear, 16), (derived, 1)):
        if value and value >= step and (current is None or value < current):
            return str(int(value) // step * step)
    if current and current >= 512:
        return str(int(current) // 2)
    return NONE_FITS if current else None


def longer_max_model_len(current: float | None) -> str | None:
    """Twice the current context."""
    return str(int(current) * 2) if current else None


def lower_max_num_seqs(current: float | None, running: float | None = None) -> str | None:
    """Half of the current batch limit, at least one.

    With fewer requests running than the limit allows, only less than those changes anything:
    nine tenths of them, from 16 on rounded down to a multiple of eight.
    """
    if running and (current is None or running < current / 2 + 1):
        fewer = min(int(running * _SHARE_OF_RUNNING), int(running) - 1)
        return str(fewer // 8 * 8 if fewer >= 16 else fewer) if fewer >= 1 else NONE_FITS
    if current is None:
        return None
    return str(int(current) // 2) if current >= 2 else NONE_FITS


def shares_to_try(lower: str | None) -> str | None:
    """The share that is suggested and the next two documented ones below it, as `0.85, 0.8, 0.75`."""
    if not lower:
        return lower
    below = [f"{value:g}" for value in _UTILIZATIONS if value < float(lower) - 1e-9]
    return ", ".join([lower, *below[:2]])


def longer_timeout(current: float | None) -> str | None:
    """Twice a time-out of half an hour and more, in seconds; what is shorter takes the usual half hour."""
    return str(int(current) * 2) if current and current >= _USUAL_TIMEOUT_S else None


def larger_swap_space(current: float | None) -> str | None:
    """Twice the swap space that is given, in GiB, and no less than 16."""
    return str(max(16, int(current) * 2)) if current else None


def larger_cpu_cache(needed_bytes: float | None) -> str | None:
    """How many GiB of a machine's memory hold what is needed with a quarter to spare: a power of two, at least 8."""
    if not needed_bytes or not 0 < needed_bytes < 1e15:
        return None
    return str(max(8, 2 ** math.ceil(math.log2(needed_bytes * 1.25 / 2**30))))


def fitting_cpu_cache(available_bytes: float | None) -> str | None:
    """Eight tenths of the memory that a node has for the cache, in whole GiB."""
    if available_bytes is None or not 0 < available_bytes < 1e15:
        return None
    return str(int(available_bytes * 0.8 / 2**30)) if available_bytes >= 2**31 else NONE_FITS


def higher_max_num_seqs(current: float | None) -> str | None:
    """Twice the current batch limit, at most 1024."""
    if current is None:
        return None
    return (
        str(min(_MAX_SEQUENCES, int(current) * 2)) if 1 <= current < _MAX_SEQUENCES else NONE_FITS
    )


def lower_max_num_batched_tokens(current: float | None, sequences: float | None) -> str | None:
    """The next usual token budget of a step below the current one, no less than the batch limit."""
    if current is None:
        return None
    usual = [value for value in (512, 1024, *_BATCHED_TOKENS) if value < current]
    return str(usual[-1]) if usual and usual[-1] >= (sequences or 0) else NONE_FITS


def higher_max_num_batched_tokens(current: float | None) -> str | None:
    """The next usual token budget of a step above the current one, at most 32768."""
    if current is None:
        return None
    return next((str(value) for value in _BATCHED_TOKENS if value > current), NONE_FITS)


def _splits(size: int, heads: float | None, kv_heads: float | None) -> bool:
    """Tell whether so many ranks can share the heads: key-value heads are split evenly, or repeated."""
    if heads and int(heads) % size != 0:
        return False
    return not kv_heads or max(int(kv_heads), size) % min(int(kv_heads), size) == 0


def fitting_tensor_parallel_size(
    heads: float | None, gpus: float | None, current: float | None, kv_heads: float | None = None
) -> str | None:
    """The largest divisor of the attention heads that the GPUs can hold, other than the current size.

    With the key-value heads known it divides them too, or is a multiple of them.
    Without the number of GPUs: one that is smaller than the current size. None when unknown.
    """
    limit = gpus if gpus is not None else (current - 1 if current else None)
    if limit is None or limit < 1:
        return None
    for size in range(int(min(limit, 1024)), 0, -1):
        if _splits(size, heads, kv_heads) and size != current:
            return str(size)
    return None


def least_gpus(weights_bytes: float | None, gpu_bytes: float | None) -> int | None:
    """How many GPUs hold the weights, each nine tenths of its memory: ceil(weights / (0.9 * GPU))."""
    if not weights_bytes or not gpu_bytes or weights_bytes < 0 or gpu_bytes < 0:
        return None
    return math.ceil(min(weights_bytes / (_SHARE_FOR_WEIGHTS * gpu_bytes), 1024))


def higher_tensor_parallel_size(
    heads: float | None,
    gpus: float | None,
    current: float | None,
    least: int | None = None,
    kv_heads: float | None = None,
) -> str | None:
    """The next divisor of the attention heads above the current size that the GPUs can hold.

    No smaller than `least`, the GPUs that the weights need. Without the heads: the next power of
    two, which divides those of nearly every model; and among few GPUs no other size.
    """
    if current is None and gpus is None:
        return None
    at_most = int(min(gpus if gpus is not None else 1024, 1024))
    for size in range(max(int(current or 1) + 1, least or 1), at_most + 1):
        if _splits(size, heads, kv_heads) if heads else size & (size - 1) == 0:
            return str(size)
    return NONE_FITS


def split_parallel_sizes(
    heads: float | None, gpus: float | None, current: float | None, kv_heads: float | None = None
) -> tuple[str, str] | None:
    """Tensor and pipeline parallel sizes that together use as many GPUs as the current size, or as there are.

    The tensor parallel size is the greatest common divisor of that number and the attention
    heads that goes with the key-value heads too, the pipeline parallel size the rest. None when
    too little is known, or no rest is left.
    """
    if not heads or not current or current < 1:
        return None
    ranks = int(min(current, gpus if gpus else current))
    most = math.gcd(int(heads), ranks)
    sizes = (size for size in range(min(most, 1024), 0, -1) if most % size == 0)
    tensor = next((size for size in sizes if _splits(size, heads, kv_heads)), 1)
    return (str(tensor), str(ranks // tensor)) if ranks > tensor else None


def fewest_ranks(rank: int | None, processes: Iterable[str]) -> int | None:
    """The least tensor parallel size that a rank or the workers' names show, as a power of two.

    `Worker_TP3` and rank 3 show four ranks. None when there is neither.
    """
    shown = [int(found[1]) for name in processes if (found := _WORKER.search(name))]
    if rank is not None:
        shown.append(rank)
    return 1 << max(shown).bit_length() if shown and 0 < max(shown) < 1024 else None


def free_port(current: float | None) -> str | None:
    """The next port, or 8000 after the last."""
    if current is None:
        return None
    return str(int(current) + 1) if 0 < current < 65535 else "8000"
