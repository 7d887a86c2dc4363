"""Suggested values: each a small function with its formula."""

import math

_UTILIZATIONS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3)
_MARGIN = 0.02


def lower_utilization(
    current: float | None, free_bytes: float | None = None, total_bytes: float | None = None
) -> str | None:
    """The next documented share below the current one.

    With free and total memory known: free / total minus two percent, rounded down to a
    hundredth, which is what another process leaves. None when nothing is known or fits.
    """
    if free_bytes is not None and total_bytes:
        share = math.floor((free_bytes / total_bytes - _MARGIN) * 100) / 100
        if share >= 0.05 and (current is None or share < current):
            return f"{share:g}"
        return None
    if current is None:
        return None
    return next((f"{value:g}" for value in _UTILIZATIONS if value < current - 1e-9), None)


def higher_utilization(current: float | None) -> str | None:
    """The next documented share above the current one, at most 0.95; None when there is none."""
    if current is None:
        return None
    return next(
        (f"{value:g}" for value in reversed(_UTILIZATIONS) if value > current + 1e-9), None
    )


def fitting_max_model_len(
    estimated: float | None,
    kv_cache_tokens: float | None,
    derived: float | None,
    current: float | None,
) -> str | None:
    """The longest context that fits, in tokens.

    vLLM's own estimate, else the tokens that the KV cache holds (both rounded down to a
    multiple of 16), else what the model allows, else half of the current length.
    None when nothing is known or the value would not be smaller than the current one.
    """
    for value, step in ((estimated, 16), (kv_cache_tokens, 16), (derived, 1)):
        if value and value >= step and (current is None or value < current):
            return str(int(value) // step * step)
    if current and current >= 512:
        return str(int(current) // 2)
    return None


def lower_max_num_seqs(current: float | None) -> str | None:
    """Half of the current batch limit; None when it is unknown or one."""
    return str(max(1, int(current) // 2)) if current and current >= 2 else None


def higher_max_num_seqs(current: float | None) -> str | None:
    """Twice the current batch limit, at most 1024; None when it is unknown or there."""
    return str(min(1024, int(current) * 2)) if current and 1 <= current < 1024 else None


def fitting_tensor_parallel_size(
    heads: float | None, gpus: float | None, current: float | None
) -> str | None:
    """The largest divisor of the attention heads that the GPUs can hold, other than the current size.

    Without heads: the number of GPUs where the current size is larger. None when unknown.
    """
    limit = gpus if gpus is not None else (current - 1 if current else None)
    if limit is None or limit < 1:
        return None
    for size in range(int(min(limit, 1024)), 0, -1):
        if (heads is None or int(heads) % size == 0) and size != current:
            return str(size)
    return None


def free_port(current: float | None) -> str | None:
    """The next port; None when the current one is unknown or the last."""
    return str(int(current) + 1) if current and current < 65535 else None
