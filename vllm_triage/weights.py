"""Weights: what a model's name and its quantization tell of the memory that it takes."""

from collections.abc import Mapping

import regex

from vllm_triage.expressions import expression
from vllm_triage.tables import table

_PARAMETERS = expression(
    r"(?<![A-Za-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)(?:[bB](?![A-Za-z0-9])|(M|m)(?![A-Za-z0-9]))"
)
_EXPERTS = expression(r"(?<![a-z0-9.])(\d{1,3}b-\d{1,4}e)(?![a-z0-9])")
_BITS = expression(
    r"(?<![a-z0-9])(?:(?:int|fp|w|nvfp|mxfp)(4|8|16)(?:a\d{1,2})?|([2-8])[ _-]?bits?|bf(16))(?![a-z0-9])"
)
_METHOD_NAME = expression(
    r"(?<![a-z0-9])(awq|gptq|squeezellm|bnb|hqq|aqlm|gguf|ggml|exl2|quip)(?![a-z])"
)


def model_parameters(name: str) -> float | None:
    """The parameters that a model's name states: `Llama-3-70B` 70e9, `opt-125m` 125e6.

    Of a mixture of experts all of them: the known sum (`8x7B` 46.7e9), else experts times size,
    which is never too small. `A3B`, the active ones, and `E4B`, the effective ones, do not count.
    The last part of a path that states a size tells it. None where two parts of it differ.
    """
    mixtures: Mapping[str, float] = table("weights")["mixtures"]
    for part in reversed(regex.split(r"[/\\]|--", name[:1000])):
        experts = _EXPERTS.search(part.lower())
        if experts is not None:
            return mixtures.get(experts[1])
        billions: set[float] = set()
        millions: set[float] = set()
        for times, size, small in _PARAMETERS.findall(part):
            if small:
                millions.add(float(size) * 1e6)
            elif times:
                billions.add(mixtures.get(f"{times}x{size}") or int(times) * float(size) * 1e9)
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
    methods: Mapping[str, float] = table("weights")["bytes_per_parameter"]
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
        return methods.get(method)
    named = _METHOD_NAME.search(text)
    if named is not None:
        return methods.get(named[1])
    return 0.5 if "gpt-oss" in text else 2.0


def model_weights_bytes(name: str, quantization: str | None = None) -> int | None:
    """What a model's weights take in all, in bytes: parameters times bytes per parameter.

    `name` is a hub id or a path, `quantization` vLLM's method. None when the name states no size.
    """
    parameters, width = model_parameters(name), bytes_per_parameter(name, quantization)
    return int(parameters * width) if parameters and width else None
