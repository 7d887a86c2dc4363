"""Model joins: what a model's files say together, and beside the run that serves the model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite

from vllm_triage.arguments import Value as Argument
from vllm_triage.arguments import number
from vllm_triage.artefacts.observations import Observation, Value
from vllm_triage.lines import Line
from vllm_triage.run import Run
from vllm_triage.tables import table
from vllm_triage.versions import holds

# What a run's report and its steps take from the files, by the names that the run keeps.
_TOLD = {
    "architecture": "model_architecture",
    "num_heads": "model_num_heads",
    "num_kv_heads": "model_num_kv_heads",
    "derived_max_model_len": "model_derived_max_model_len",
    "rope_type": "model_rope_type",
    "config_method": "model_method",
    "checkpoint_bytes": "checkpoint_bytes",
    "chat_template": "model_chat_template",
}
# By which line of the files what follows from them is shown.
_SHOWN_BY = {
    "heads_left_over": "num_heads",
    "kv_heads_left_over": "num_kv_heads",
    "tokens_too_many": "derived_max_model_len",
    "methods": "config_method",
    "trusts_remote_code": "remote_code",
    "weights_of_card_pct": "checkpoint_bytes",
    "estimated_of_card_pct": "estimated_bytes",
}
# With these the config in force is not the one that lies in the folder.
_OVERRIDES = ("hf_overrides", "rope_scaling", "rope_theta", "hf_config_path", "config_format")
_SHRINKS = ("cpu_offload_gb", "quantization", "offload_backend", "load_format", "dtype")
_LIFTS = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
_MAX_PARALLEL = 4096


def observed(observations: Sequence[Observation], run: Run) -> dict[str, Value]:
    """What the files of the model that a run serves tell of it."""
    own = _served(_models(observations), run)
    if own is None:
        return {}
    told = {_TOLD[name]: value for name, value in own.values.items() if name in _TOLD}
    if "estimated_bytes" in own.values:
        told.setdefault("checkpoint_bytes", own.values["estimated_bytes"])
    return told


def joined(observations: Sequence[Observation], run: Run) -> Iterator[Observation]:
    """One observation a model, that of the run with what its arguments make of it; all others as they are."""
    models = _models(observations)
    served = _served(models, run)
    for one in models:
        if one is served:
            found = dict(_compared(one, run, observations))
            lines = {name: one.lines[by] for name, by in _SHOWN_BY.items() if by in one.lines}
            yield one.with_values(found)._replace(lines={**one.lines, **lines})
        elif "broken_file" not in one.values or not _has_loaded(run):
            yield one
    for one in observations:
        if one.subject != "model":
            yield one


def _models(observations: Sequence[Observation]) -> list[Observation]:
    """The files of one folder put together; two of one name, or broken ones, are models of their own."""
    folders: dict[str, dict[str, Observation]] = {}
    out: list[Observation] = []
    for one in observations:
        if one.subject != "model":
            continue
        files = folders.setdefault(_folder(one), {})
        name = str(one.values.get("file"))
        if name in files or "broken_file" in one.values:
            out.append(one)
        else:
            files[name] = one
    return [*(_merged(files) for files in folders.values() if files), *out]


def _merged(files: Mapping[str, Observation]) -> Observation:
    """The values of all files; what `config.json` says goes before what the others do."""
    first = sorted(files, key=lambda name: (name != "config.json", name))
    values: dict[str, Value] = {}
    lines: dict[str, Line] = {}
    for name in first:
        values = {**files[name].values, **values}
        lines = {**files[name].lines, **lines}
    is_quantized = "config_method" in values
    if is_quantized:
        values.pop("estimated_bytes", None)
    elif values.get("dtype") == "float32" and isinstance(
        size := values.get("checkpoint_bytes"), int
    ):
        values["checkpoint_bytes"] = size // 2
    elif "dtype" not in values:
        # The index does not say how wide the weights are, and 32-bit ones are loaded as 16-bit ones.
        values.pop("checkpoint_bytes", None)
    if "missing_key" in values and "params.json" in files:
        # In Mistral's own format the config of transformers is not read.
        del values["missing_key"]
    return Observation("model", values, lines)


def _folder(one: Observation) -> str:
    name = next(iter(one.lines.values())).source.replace("\\", "/")
    return name.rpartition("/")[0]


def _served(models: Iterable[Observation], run: Run) -> Observation | None:
    """The model that a run serves: the one whose folder has its name, else the only one."""
    known = [one for one in models if "broken_file" not in one.values]
    if run.model is not None:
        name = run.model.rstrip("/").rpartition("/")[2]
        cached = "models--" + run.model.replace("/", "--")
        for one in known:
            parts = _folder(one).split("/")
            if name == parts[-1] or cached in parts:
                return one
    return known[0] if len(known) == 1 else None


def _compared(
    model: Observation, run: Run, observations: Sequence[Observation]
) -> Iterator[tuple[str, Value]]:
    """What does not fit; nothing where the run came further than the check that would have told it."""
    arguments = run.arguments
    if _has_loaded(run):
        return
    if any(arguments.get(name) for name in _OVERRIDES) or (run.model or "").endswith(".gguf"):
        return
    values = model.values
    parallel = number(arguments, "tensor_parallel_size") or 1
    if not 1 <= parallel <= _MAX_PARALLEL:
        return
    if not run.config:
        # The engine prints its config after these were checked.
        yield from _heads(values, parallel)
        if not _is_check_lifted(observations, run):
            yield from _context(values, arguments)
        yield from _methods(values, arguments)
        yield from _remote_code(values, run)
    yield from _kv_heads(values, parallel)
    yield from _weights(values, arguments, parallel, _card(observations, run))


def _is_check_lifted(observations: Sequence[Observation], run: Run) -> bool:
    """Tell whether the command or an environment allows a context beyond the model's."""
    words = run.echo.words if run.echo is not None else ()
    return any(_LIFTS in word for word in words) or any(
        _LIFTS in one.values for one in observations
    )


def _has_loaded(run: Run) -> bool:
    """Tell a run that read its model's files and loaded the weights."""
    return run.was_serving or bool(run.last_answer) or run.memory.weights_bytes is not None


def _heads(values: Mapping[str, Value], parallel: float) -> Iterator[tuple[str, Value]]:
    heads = _count(values, "num_heads")
    if heads and parallel > 1:
        yield "tensor_parallel_size", int(parallel)
        yield "heads_left_over", int(heads % parallel)


def _kv_heads(values: Mapping[str, Value], parallel: float) -> Iterator[tuple[str, Value]]:
    """Key-value heads are split, or, where there are fewer than ranks, repeated; never both."""
    heads, kv_heads = _count(values, "num_heads"), _count(values, "num_kv_heads")
    if not heads or not kv_heads or parallel < 2 or heads % parallel or "latent_rank" in values:
        return
    yield "tensor_parallel_size", int(parallel)
    more, fewer = max(kv_heads, parallel), min(kv_heads, parallel)
    yield "kv_heads_left_over", int(more % fewer)


def _context(
    values: Mapping[str, Value], arguments: Mapping[str, Argument]
) -> Iterator[tuple[str, Value]]:
    asked, allowed = number(arguments, "max_model_len"), values.get("derived_max_model_len")
    if asked is not None and isfinite(asked) and isinstance(allowed, int | float):
        yield "max_model_len", asked
        yield "tokens_too_many", asked - allowed


def _methods(
    values: Mapping[str, Value], arguments: Mapping[str, Argument]
) -> Iterator[tuple[str, Value]]:
    accepts: Mapping[str, list[str]] = table("checkpoint-methods")["accepts"]
    given, own = arguments.get("quantization"), values.get("config_method")
    if not isinstance(given, str):
        return
    if own is None and "architecture" in values:
        # These take checkpoints that were quantized before, and say so in a config.
        yield "argument_method", given
        yield (
            "methods",
            "none" if given in (*accepts["awq"][:3], *accepts["gptq"][:3]) else "agree",
        )
    elif own in accepts:
        known = {name for names in accepts.values() for name in names}
        yield "argument_method", given
        yield "methods", "differ" if given in known - set(accepts[str(own)]) else "agree"


def _remote_code(values: Mapping[str, Value], run: Run) -> Iterator[tuple[str, Value]]:
    name, known = values.get("architecture"), table("architectures")
    # Of a later release it is not said here what it knows.
    is_listed = run.version is not None and holds(run.version, None, known["until"])
    if is_listed and "remote_code" in values and run.arguments and name not in known["known"]:
        trusts = run.arguments.get("trust_remote_code")
        yield "trusts_remote_code", "yes" if trusts else "no"


def _weights(
    values: Mapping[str, Value],
    arguments: Mapping[str, Argument],
    parallel: float,
    card_bytes: float | None,
) -> Iterator[tuple[str, Value]]:
    """What one card's part of the weights takes of the card."""
    size, guess = _count(values, "checkpoint_bytes"), _count(values, "estimated_bytes")
    stages = number(arguments, "pipeline_parallel_size") or 1
    if not card_bytes or any(arguments.get(name) for name in _SHRINKS):
        return
    if not 1 <= stages <= _MAX_PARALLEL:
        return
    yield "total_bytes", int(card_bytes)
    for name, whole in (
        ("weights_of_card_pct", size),
        ("estimated_of_card_pct", None if size else guess),
    ):
        if whole:
            yield name, 100 * whole / (parallel * stages) / card_bytes


def _card(observations: Sequence[Observation], run: Run) -> float | None:
    """The memory of the largest card that the log or a listing shows, in bytes."""
    _, said = run.memory.of((None, None))
    sizes = [said.get("total", 0.0)]
    for one in observations:
        size = one.values.get("total_bytes") if one.subject == "gpu" else None
        if isinstance(size, int | float):
            sizes.append(size)
    return max(sizes) or None


def _count(values: Mapping[str, Value], name: str) -> int | None:
    value = values.get(name)
    return int(value) if isinstance(value, int | float) else None
