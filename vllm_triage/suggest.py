"""Suggested values: each a small function with its formula.

None means that too little is known; `NONE_FITS` that no value would help.
"""

import math
from collections.abc import Iterable

import regex

from vllm_triage.versions import holds

_UTILIZATIONS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3)
_MARGIN = 0.02
_MAX_SEQUENCES = 1024
_BATCHED_TOKENS = (2048, 4096, 8192, 16384, 32768)

# Worker_TP3, VllmWorker_3, Worker_PP0_TP1; never the engine cores of data parallelism.
_WORKER = regex.compile(r"(?:_TP|VllmWorker_|VllmWorker rank=|Worker_)(\d{1,4})\b")

NONE_FITS = ""

_PARAMETERS = regex.compile(
    r"(?<![A-Za-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)(?:[bB](?![A-Za-z0-9])|(M|m)(?![A-Za-z0-9]))"
)
# Experts share the attention layers: the whole is less than the product.
_MIXTURES = {"8x7": 46.7e9, "8x22": 140.6e9, "17b-16e": 109e9, "17b-128e": 400e9}
_EXPERTS = regex.compile(r"(?<![a-z0-9.])(\d{1,3}b-\d{1,4}e)(?![a-z0-9])")
_BITS = regex.compile(
    r"(?<![a-z0-9])(?:(?:int|fp|w|nvfp|mxfp)(4|8|16)(?:a\d{1,2})?|([2-8])[ _-]?bits?|bf(16))(?![a-z0-9])"
)
_METHODS = {
    "awq": 0.5, "gptq": 0.5, "squeezellm": 0.5, "bitsandbytes": 0.5, "bnb": 0.5, "hqq": 0.5, "qqq": 0.5,
    "marlin": 0.5, "mxfp4": 0.5, "nvfp4": 0.5, "modelopt_fp4": 0.5, "petit_nvfp4": 0.5, "auto-round": 0.5,
    "aqlm": 0.25,
    "fp8": 1.0, "fbgemm_fp8": 1.0, "ptpc_fp8": 1.0, "modelopt": 1.0, "deepspeedfp": 1.0,
    "experts_int8": 1.0, "int8": 1.0, "tpu_int8": 1.0,
}  # fmt: skip
_METHOD_NAME = regex.compile(
    r"(?<![a-z0-9])(awq|gptq|squeezellm|bnb|hqq|aqlm|gguf|ggml|exl2|quip)(?![a-z])"
)


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


def lower_max_num_seqs(current: float | None) -> str | None:
    """Half of the current batch limit, at least one."""
    if current is None:
        return None
    return str(int(current) // 2) if current >= 2 else NONE_FITS


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


def fitting_tensor_parallel_size(
    heads: float | None, gpus: float | None, current: float | None
) -> str | None:
    """The largest divisor of the attention heads that the GPUs can hold, other than the current size.

    Without the number of GPUs: one that is smaller than the current size. None when unknown.
    """
    limit = gpus if gpus is not None else (current - 1 if current else None)
    if limit is None or limit < 1:
        return None
    for size in range(int(min(limit, 1024)), 0, -1):
        if (heads is None or int(heads) % size == 0) and size != current:
            return str(size)
    return None


def higher_tensor_parallel_size(
    heads: float | None, gpus: float | None, current: float | None
) -> str | None:
    """The next divisor of the attention heads above the current size that the GPUs can hold.

    Without the heads: the next power of two, which divides those of nearly every model; and
    among few GPUs no other size.
    """
    if current is None and gpus is None:
        return None
    at_most = int(min(gpus if gpus is not None else 1024, 1024))
    for size in range(int(current or 1) + 1, at_most + 1):
        if int(heads) % size == 0 if heads else size & (size - 1) == 0:
            return str(size)
    return NONE_FITS


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


def model_parameters(name: str) -> float | None:
    """The parameters that a model's name states: `Llama-3-70B` 70e9, `opt-125m` 125e6.

    Of a mixture of experts all of them: the known sum (`8x7B` 46.7e9), else experts times size,
    which is never too small. `A3B`, the active ones, and `E4B`, the effective ones, do not count.
    The last part of a path that states a size tells it. None where two parts of it differ.
    """
    for part in reversed(regex.split(r"[/\\]|--", name[:1000])):
        experts = _EXPERTS.search(part.lower())
        if experts is not None:
            return _MIXTURES.get(experts[1])
        billions: set[float] = set()
        millions: set[float] = set()
        for times, size, small in _PARAMETERS.findall(part):
            if small:
                millions.add(float(size) * 1e6)
            elif times:
                billions.add(_MIXTURES.get(f"{times}x{size}") or int(times) * float(size) * 1e9)
            else:
                billions.add(float(size) * 1e9)
        # `7B-1M` has a context of a million tokens.
        found = billions or {one for one in millions if one >= 10e6}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def bytes_per_parameter(name: str, quantization: str | None = None) -> float | None:
    """Bytes that a parameter takes on the GPU: the bits that the name states / 8, else the method's.

    AWQ and GPTQ 0.5, FP8 and INT8 1, without quantization 2 (fp16, bf16).
    None for a method with weights of any width (GGUF, compressed-tensors) whose name states none.
    """
    text = name[:1000].lower()
    method = (
        quantization.lower().removesuffix("_marlin").removesuffix("_marlin_24")
        if quantization
        else None
    )
    bits = [int(one) for found in _BITS.findall(text) for one in found if one]
    if bits and (method is None or min(bits) < 16):
        return min(bits) / 8
    if method is not None:
        return _METHODS.get(method)
    named = _METHOD_NAME.search(text)
    if named is not None:
        return _METHODS.get(named[1])
    return 0.5 if "gpt-oss" in text else 2.0


def model_weights_bytes(name: str, quantization: str | None = None) -> int | None:
    """What a model's weights take in all, in bytes: parameters times bytes per parameter.

    `name` is a hub id or a path, `quantization` vLLM's method. None when the name states no size.
    """
    parameters, width = model_parameters(name), bytes_per_parameter(name, quantization)
    return int(parameters * width) if parameters and width else None
