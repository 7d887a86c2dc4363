"""Checkpoints: which facts of a model's files belong to an incident."""

from collections.abc import Mapping

from vllm_triage.kinds import Kind

# By the fact's name, what the run keeps of the files. Only kinds to whose remedy it matters.
_LENGTH = {"derived_max_model_len": "model_derived_max_model_len", "rope_type": "model_rope_type"}
_CLASS = {"architecture": "model_architecture"}
_HEADS = {"num_heads": "model_num_heads", "num_kv_heads": "model_num_kv_heads"}
_METHOD = {"quant_method": "model_method"}
_QUANTIZED = {"quantization": "model_method"}
_FACTS: Mapping[Kind, Mapping[str, str]] = {
    Kind.DISTRIBUTED_PARALLEL_CONFIG: _HEADS,
    Kind.LOADING_CONTEXT_LENGTH: _LENGTH,
    Kind.LOADING_UNSUPPORTED_ARCHITECTURE: _CLASS,
    Kind.LOADING_TRUST_REMOTE_CODE: _CLASS,
    Kind.LOADING_WEIGHTS_INVALID: _METHOD,
    Kind.CONFIG_CHAT_TEMPLATE: {"chat_template": "model_chat_template"},
    Kind.QUANTIZATION_HARDWARE_UNSUPPORTED: _METHOD,
    Kind.QUANTIZATION_QUALITY: _METHOD,
    Kind.OOM_LOAD: _QUANTIZED,
    Kind.OOM_INFERENCE: _QUANTIZED,
    Kind.OOM_QUANTIZED: _QUANTIZED,
    Kind.OOM_KV_CACHE: _QUANTIZED,
}
UNNAMED = "unnamed"
"""What a run keeps as the method of a quantized checkpoint that names none."""


def facts(
    kind: Kind, observed: Mapping[str, str | float], stated: Mapping[str, object]
) -> dict[str, str | float]:
    """The facts of the files of the model that a run serves, as far as they matter to an incident."""
    if kind is Kind.DISTRIBUTED_PARALLEL_CONFIG and stated.get("tensor_parallel_size") is None:
        # It is about the GPUs, not about the heads.
        return {}
    return {
        name: observed[kept]
        for name, kept in _FACTS.get(kind, {}).items()
        if kept in observed and observed[kept] != UNNAMED
    }
