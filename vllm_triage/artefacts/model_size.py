"""Model size: what a model's weights take, told from the shapes in its config."""

from collections.abc import Mapping

# Blocks of attention and a gated MLP without further weights of any size.
_DENSE = frozenset(("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "granite", "olmo2"))  # fmt: skip
_TIED = frozenset(("gemma", "gemma2"))
_MAX = 1e7
BYTES_LOADED = 2
"""Bytes a weight: vLLM loads 32-bit weights as 16-bit ones unless it is told not to."""


def parameters(config: Mapping[str, object]) -> int | None:
    """The parameters of a dense model; None for all others, and where a shape is missing.

    Embedding (twice where it is not tied) + layers * (attention + MLP): of Llama-2-7B 6.738e9.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _DENSE:
        return None
    hidden, heads = _shape(config, "hidden_size"), _shape(config, "num_attention_heads")
    layers, inner = _shape(config, "num_hidden_layers"), _shape(config, "intermediate_size")
    words = _shape(config, "vocab_size")
    if not (hidden and heads and layers and inner and words):
        return None
    kv_heads = _shape(config, "num_key_value_heads") or heads
    head = _shape(config, "head_dim") or hidden // heads
    attention = 2 * hidden * head * (heads + kv_heads)
    is_tied = config.get("tie_word_embeddings", kind in _TIED) is True
    return words * hidden * (1 if is_tied else 2) + layers * (attention + 3 * hidden * inner)


def _shape(config: Mapping[str, object], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and 0 < value <= _MAX else None
