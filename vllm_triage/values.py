"""Values: the texts that placeholders take from an incident's facts and its run."""

from collections.abc import Iterable, Mapping
from math import gcd

from vllm_triage import platforms, suggest, templates
from vllm_triage.arguments import Value, number
from vllm_triage.derived import derived, visible_gpus
from vllm_triage.expressions import expression
from vllm_triage.facts import AnyFacts, stated
from vllm_triage.lines import Line
from vllm_triage.run import Run
from vllm_triage.weights import model_weights_bytes

_NO_WORD = expression(r"[^\w.:/-]+")


def values_of(
    facts: AnyFacts | None,
    run: Run | None,
    processes: Iterable[str] = (),
    lines: Iterable[Line] = (),
) -> dict[str, str]:
    """The texts that placeholders may take from an incident's facts, its run, its processes and its lines.

    An empty text is a suggestion for which no value fits.
    """
    out: dict[str, str] = {}
    arguments: Mapping[str, Value] = run.arguments if run else {}
    if run is not None:
        _put(out, "vllm_version", run.version)
        _put(out, "model", run.model)
        for name in ("host", "port", "max_model_len", "tensor_parallel_size", "max_num_seqs",
                     "gpu_memory_utilization", "quantization", "dtype", "pipeline_parallel_size",
                     "tokenizer", "max_num_batched_tokens", "cpu_offload_gb"):  # fmt: skip
            value = arguments.get(name)
            _put(out, name, value if isinstance(value, str | int | float) else None)
        if "max_model_len" not in out:
            _put(out, "max_model_len", run.config.get("max_seq_len"))
        if "tensor_parallel_size" not in out:
            _put(out, "tensor_parallel_size", run.config.get("tensor_parallel_size"))
    known = stated(facts) if facts is not None else {}
    for name, fact in known.items():
        if not (name == "model" and "model" in out):
            _put(out, name, human(name, fact))
    words = _search_words(known.get("detail"))
    if words:
        out["search_words"] = words
    out["server_url"] = _server_url(arguments, out.get("port"))
    out.update(derived(known, run))
    echo = run.echo if run is not None else None
    out.update(
        platforms.values(run.platform if run else None, lines, echo.words[0] if echo else None)
    )
    out.update(_suggestions(known, run, processes))
    return out


def _server_url(arguments: Mapping[str, Value], port: str | None) -> str:
    """Where the server answers on its own machine: all interfaces are also the loopback's."""
    host = str(arguments.get("host") or "")
    if host in ("", "0.0.0.0", "::", "127.0.0.1", "None"):
        host = "localhost"
    scheme = "https" if arguments.get("ssl_certfile") or arguments.get("ssl_keyfile") else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port or 8000}"


def _search_words(detail: object) -> str | None:
    """An exception's words as a search takes them and a shell cannot misread them."""
    if not isinstance(detail, str):
        return None
    return " ".join(_NO_WORD.sub(" ", detail).split()[:10])[:120] or None


def _put(out: dict[str, str], name: str, value: object) -> None:
    if value is not None and value != "" and not isinstance(value, bool | list):
        out[name] = str(value)


def human(name: str, value: object) -> str:
    """Write a fact for people: bytes as GiB or MiB, durations as s or ms, floats without a tail of digits."""
    if name.endswith("_bytes") and isinstance(value, int):
        for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
            if abs(value) >= factor:
                return f"{value / factor:.2f} {unit}"
        return templates.counted(value, "byte")
    if name.endswith("_ms") and isinstance(value, int | float):
        return templates.duration(value)
    if name.endswith("_s") and not name.endswith("_per_s") and isinstance(value, int | float):
        return f"{value:g} s"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _suggestions(
    known: Mapping[str, object], run: Run | None, processes: Iterable[str]
) -> dict[str, str]:
    arguments: Mapping[str, Value] = run.arguments if run else {}
    config: Mapping[str, Value] = run.config if run else {}

    def fact(name: str) -> float | None:
        value = known.get(name)
        return value if isinstance(value, int | float) else None

    utilization = fact("gpu_memory_utilization") or number(arguments, "gpu_memory_utilization")
    if utilization is None and run is not None and run.has_banner:
        utilization = suggest.default_utilization(run.version)
    free = fact("free_bytes") if "desired_bytes" in known else None
    length = (
        fact("max_model_len")
        or number(arguments, "max_model_len")
        or number(config, "max_seq_len")
    )
    parallel = (
        fact("tensor_parallel_size")
        or number(arguments, "tensor_parallel_size")
        or number(config, "tensor_parallel_size")
        or suggest.fewest_ranks(_rank(known), processes)
    )
    if parallel is None:
        parallel = fact("world_size") or (1 if arguments and run and run.has_banner else None)
    needed, available = fact("needed_bytes"), fact("available_bytes")
    share = available / needed if needed and available is not None else None
    batched = number(arguments, "max_num_batched_tokens")
    sequences = fact("max_num_seqs") or number(arguments, "max_num_seqs")
    port = fact("port") or number(arguments, "port")
    observed = run.observed if run else {}
    heads = fact("num_heads") or number(observed, "model_num_heads")
    if known.get("method") in (None, "tp_size") and fact("dimension"):
        # What could not be split must be split by another size too.
        heads = gcd(int(heads or 0), int(fact("dimension") or 0))
    kv_heads = fact("num_kv_heads") or number(observed, "model_num_kv_heads")
    split = suggest.split_parallel_sizes(
        heads, fact("gpu_count"), fact("tensor_parallel_size") or parallel, kv_heads
    )
    lower = suggest.lower_utilization(utilization, free, fact("total_bytes"))
    found = {
        "split_tensor_parallel_size": split[0] if split else None,
        "split_pipeline_parallel_size": split[1] if split else None,
        "lower_gpu_memory_utilization": lower,
        "shares_to_try": suggest.shares_to_try(lower),
        "higher_gpu_memory_utilization": suggest.higher_utilization(
            utilization,
            needed - available if needed and available is not None else None,
            fact("total_bytes"),
        ),
        "fitting_max_model_len": suggest.fitting_max_model_len(
            fact("estimated_max_model_len"),
            fact("kv_cache_tokens"),
            fact("derived_max_model_len"),
            length,
            share,
        ),
        "longer_max_model_len": suggest.longer_max_model_len(length),
        "lower_max_num_seqs": suggest.lower_max_num_seqs(sequences, fact("running")),
        "higher_max_num_seqs": suggest.higher_max_num_seqs(sequences),
        "lower_max_num_batched_tokens": suggest.lower_max_num_batched_tokens(batched, sequences),
        "higher_max_num_batched_tokens": suggest.higher_max_num_batched_tokens(batched),
        "higher_tensor_parallel_size": suggest.higher_tensor_parallel_size(
            heads,
            visible_gpus(known, run),
            parallel,
            _least_gpus(run, fact("total_bytes")),
            kv_heads,
        ),
        "fitting_tensor_parallel_size": suggest.fitting_tensor_parallel_size(
            heads, fact("gpu_count"), parallel, kv_heads
        ),
        "longer_timeout": suggest.longer_timeout(fact("timeout_s")),
        "larger_swap_space": suggest.larger_swap_space(number(arguments, "swap_space")),
        "larger_cpu_cache": suggest.larger_cpu_cache(needed),
        "fitting_cpu_cache": suggest.fitting_cpu_cache(available),
        "free_port": suggest.free_port(port),
    }
    return {name: value for name, value in found.items() if value is not None}


def _least_gpus(run: Run | None, gpu_bytes: float | None) -> int | None:
    if run is None:
        return None
    size = number(run.observed, "checkpoint_bytes")
    if size is None and run.model is not None:
        size = model_weights_bytes(run.model, run.quantization)
    return suggest.least_gpus(size, gpu_bytes)


def _rank(known: Mapping[str, object]) -> int | None:
    """The rank that the failing line names."""
    rank = known.get("rank")
    return rank if isinstance(rank, int) else None
