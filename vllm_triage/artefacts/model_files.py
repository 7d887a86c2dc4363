"""Model files: `config.json` and the small files beside a model's weights, one observation each."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeGuard, cast

from vllm_triage.artefacts.json_text import around, line_of, shown_at, top_keys, value_at
from vllm_triage.artefacts.model_size import BYTES_LOADED, parameters
from vllm_triage.artefacts.observations import Observation, Reading, Value
from vllm_triage.lines import Line

_MAX_CHARS = 64_000_000
_MAX_NUMBER = 1e18
_MAX_TEXT = 200

Path = tuple[str, ...]

# Where a composite model's config keeps what its language model is made of.
TEXT_PARTS: tuple[Path, ...] = (
    ("text_config",),
    ("llm_config",),
    ("language_config",),
    ("thinker_config", "text_config"),
)
_ROPE_KEYS = ("rope_scaling", "rope_parameters")
# Of which vLLM takes the least.
LENGTH_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
    "max_target_positions", "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip


class Sort(NamedTuple):
    """A file that a model's folder holds."""

    name: str
    """As the hub calls it."""
    is_needed: bool
    """Whether a server does not start where it is broken."""
    told_by: Callable[[frozenset[str]], bool]
    """Whether a file with these top-level keys is one."""


_OF_CONFIG = frozenset(
    ("architectures", "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads",
     "vocab_size", "intermediate_size", "max_position_embeddings", "text_config", "torch_dtype",
     "quantization_config", "transformers_version", "rms_norm_eps", "num_key_value_heads")
)  # fmt: skip

SORTS = (
    Sort("config.json", True, lambda keys: len(keys & _OF_CONFIG) > 2 or "architectures" in keys),
    Sort("model.safetensors.index.json", True, lambda keys: "weight_map" in keys),
    Sort("hf_quant_config.json", True, lambda keys: {"producer", "quantization"} <= keys),
    Sort("quantize_config.json", False, lambda keys: bool(
        keys & {"bits", "w_bit"} and keys & {"group_size", "q_group_size"}
    )),
    Sort("tokenizer_config.json", True, lambda keys: bool(
        keys & {"tokenizer_class", "added_tokens_decoder"}
    ) and "version" not in keys),
    Sort("params.json", True, lambda keys: {"n_layers", "n_heads", "dim"} <= keys),
    Sort("generation_config.json", False, lambda keys: "_from_model_config" in keys or (
        {"transformers_version", "eos_token_id"} <= keys
    )),
)  # fmt: skip


def sort_of(head: str) -> Sort | None:
    """Which model file begins so; None for all else."""
    keys = top_keys(head)
    return next((one for one in SORTS if one.told_by(keys)), None) if keys else None


def read(lines: Sequence[Line]) -> Reading:
    """Read one model file; of a broken one, where it breaks."""
    texts = [one.text for one in lines]
    # The format was told by the beginning, without the blank that may stand before it.
    sort = sort_of("\n".join(texts)[:65_536].lstrip("\ufeff \t\r\n"))
    if sort is None:
        return Reading((), "is no model file that is known here")
    whole = "\n".join(texts)
    if len(whole) > _MAX_CHARS:
        return Reading((), "is too large for a model file")
    try:
        data = json.loads(whole.lstrip("\ufeff"))
    except json.JSONDecodeError as error:
        return _broken(sort, lines, error.msg, error.lineno, error.colno)
    except (RecursionError, ValueError):
        return _broken(sort, lines, "a value is nested too deep or too long", 1)
    if not isinstance(data, dict):
        return Reading((), "holds no object")
    values: dict[str, Value] = {"file": sort.name}
    shown: dict[str, Line] = {"file": around(lines[0], 0)}
    for name, value, path in _READERS[sort.name](data):
        kept = _plain(value)
        if kept is not None and name not in values:
            values[name] = kept
            shown[name] = shown_at(lines[line_of(texts, path)], path)
    return Reading((Observation("model", values, shown),))


def _broken(
    sort: Sort, lines: Sequence[Line], message: str, number: int, column: int = 1
) -> Reading:
    # JSON that is cut off breaks after its end, where nothing may stand.
    whole = next((one for one in lines[number - 1 :: -1] if one.text.strip()), lines[0])
    at = around(whole, column - 1)
    values: dict[str, Value] = {"file": sort.name, "broken_file": sort.name, "path": at.source}
    values |= {"broken_line": number, "error": message[:_MAX_TEXT]}
    if not sort.is_needed:
        values = {"file": sort.name}
    broken = Observation("model", values, {"file": at})
    place = f"line {number}" if at is whole else f"line {number}, column {column}"
    return Reading((broken,), f"is not valid JSON: {message} in {place}")


def _plain(value: object) -> Value | None:
    """A value that an observation may hold; None for all else, and for numbers beyond reason."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value if 0 <= value <= _MAX_NUMBER else None
    if isinstance(value, str):
        return value[:_MAX_TEXT] or None
    return None


_Found = Iterator[tuple[str, object, Path]]


def text_part(data: Mapping[str, object]) -> Path:
    """Where the language model is described: the part of a composite config that names its heads."""
    if value_at(data, ("num_attention_heads",)) is None:
        for path in TEXT_PARTS:
            if value_at(data, (*path, "num_attention_heads")) is not None:
                return path
    return ()


def _config(data: Mapping[str, object]) -> _Found:
    part = text_part(data)
    names = value_at(data, ("architectures",))
    if isinstance(names, list) and names:
        yield "architecture", names[0], ("architectures",)
    yield "model_type", value_at(data, ("model_type",)), ("model_type",)
    is_new = value_at(data, (*part, "new_decoder_architecture")) is True
    if value_at(data, (*part, "multi_query")) is True and not is_new:
        yield "num_kv_heads", 1, (*part, "multi_query")
    for name, keys in (
        ("num_heads", ("num_attention_heads", "n_head")),
        ("num_kv_heads", ("n_head_kv", "num_kv_heads", "num_key_value_heads")),
        ("num_layers", ("num_hidden_layers",)),
        ("intermediate_size", ("intermediate_size",)),
        ("latent_rank", ("kv_lora_rank",)),
        ("dtype", ("torch_dtype", "dtype")),
    ):
        for key in keys:
            yield name, value_at(data, (*part, key)), (*part, key)
    for key in ("torch_dtype", "dtype"):
        yield "dtype", value_at(data, (key,)), (key,)
    yield from _length(data, part)
    yield from _method(data, part)
    size = parameters(data) if part == () else None
    if size is not None:
        yield "estimated_bytes", size * BYTES_LOADED, ("hidden_size",)
    remote = value_at(data, ("auto_map", "AutoConfig"))
    if isinstance(remote, str):
        yield "remote_code", remote, ("auto_map", "AutoConfig")
    if not names and "model_type" not in data and "auto_map" not in data:
        yield "missing_key", "model_type", ()
        yield "key", "model_type", ()


def _length(data: Mapping[str, object], part: Path) -> _Found:
    """The longest context that vLLM accepts: the least of the lengths, times the factor of RoPE scaling."""
    lengths = [
        (float(value), key)
        for key in LENGTH_KEYS
        if _is_length(value := value_at(data, (*part, key)))
    ]
    if not lengths:
        return
    least, key = min(lengths)
    scaled = _scaled(data, part, least)
    if scaled is None:
        return
    # Where the config names a model_max_length too, vLLM accepts the larger of the two.
    own = [value_at(data, (*where, "model_max_length")) for where in {(), part}]
    allowed = [scaled, *(float(one) for one in own if _is_length(one))]
    yield "derived_max_model_len", max(allowed), (*part, key)
    for name in _ROPE_KEYS:
        for word in ("rope_type", "type"):
            kind = value_at(data, (*part, name, word))
            if isinstance(kind, str) and kind != "default":
                yield "rope_type", kind, (*part, name, word)


def _is_length(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float) and 0 < cast("float", value) <= _MAX_NUMBER


def _scaled(data: Mapping[str, object], part: Path, length: float) -> float | None:
    """A length with RoPE scaling; None where releases differ in what they make of it."""
    for key in _ROPE_KEYS:
        rope = value_at(data, (*part, key))
        if not isinstance(rope, Mapping):
            continue
        kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor", 1.0)
        if any(isinstance(value, Mapping) for value in rope.values()) or (
            kind is None and "factor" in rope
        ):
            return None
        model_type = str(value_at(data, (*part, "model_type")) or data.get("model_type"))
        if (
            kind in ("su", "longrope", "llama3", "default", "mrope", None)
            or "gemma3" in model_type
        ):
            continue
        if not isinstance(factor, int | float) or not 0 < factor <= 1e6:
            return None
        original = rope.get("original_max_position_embeddings")
        if kind == "yarn" and _is_length(original):
            return max(length, original * factor)
        return length * max(factor, 1.0)
    return length


def _method(data: Mapping[str, object], part: Path) -> _Found:
    for where in ((), part):
        for key in ("quantization_config", "compression_config"):
            settings = value_at(data, (*where, key))
            if not isinstance(settings, Mapping):
                continue
            producer = value_at(settings, ("producer", "name"))
            method = "modelopt" if producer == "modelopt" else settings.get("quant_method")
            method = method if isinstance(method, str) and method else "unnamed"
            name = method.lower().replace("compressed_tensors", "compressed-tensors")
            yield "config_method", name, (*where, key, "quant_method")


def _index(data: Mapping[str, object]) -> _Found:
    yield (
        "checkpoint_bytes",
        value_at(data, ("metadata", "total_size")),
        ("metadata", "total_size"),
    )


def _modelopt(data: Mapping[str, object]) -> _Found:
    yield "config_method", "modelopt", ("producer",)


def _quantize(data: Mapping[str, object]) -> _Found:
    method = data.get("quant_method")
    if not isinstance(method, str):
        method = "awq" if "w_bit" in data or "zero_point" in data else "gptq"
    yield "config_method", method.lower(), ("bits",) if "bits" in data else ("w_bit",)


def _tokenizer(data: Mapping[str, object]) -> _Found:
    yield "tokenizer_class", data.get("tokenizer_class"), ("tokenizer_class",)
    yield (
        "chat_template",
        "a template" if data.get("chat_template") else "none",
        ("chat_template",),
    )


def _params(data: Mapping[str, object]) -> _Found:
    yield "num_heads", data.get("n_heads"), ("n_heads",)
    yield "num_kv_heads", data.get("n_kv_heads"), ("n_kv_heads",)
    yield "intermediate_size", data.get("hidden_dim"), ("hidden_dim",)


def _generation(data: Mapping[str, object]) -> _Found:
    return iter(())


_READERS: dict[str, Callable[[Mapping[str, object]], _Found]] = {
    "config.json": _config,
    "model.safetensors.index.json": _index,
    "hf_quant_config.json": _modelopt,
    "quantize_config.json": _quantize,
    "tokenizer_config.json": _tokenizer,
    "params.json": _params,
    "generation_config.json": _generation,
}
