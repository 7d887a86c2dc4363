"""Typed facts: the numbers, names and paths that the log's own lines state.

One class per area. Units are in the names: `_bytes`, `_s`, `_ms`, `_pct`, `_per_s`.
A field that the log does not state is None and left out of the JSON.
"""

from collections.abc import Mapping
from typing import Any, Literal

from vllm_triage.expressions import expression
from vllm_triage.numbers import sensible
from vllm_triage.plain import Plain, fields, values

_UNITS = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "k": 1024,
    "kb": 1024,
    "kib": 1024,
    "m": 1024**2,
    "mb": 1024**2,
    "mib": 1024**2,
    "g": 1024**3,
    "gb": 1024**3,
    "gib": 1024**3,
    "t": 1024**4,
    "tb": 1024**4,
    "tib": 1024**4,
}
_MAX_SIZE = 1024.0**7
_SIZE = expression(r"\s*(-?\d[\d,]*(?:\.\d+)?)\s*+([KMGTkmgt]?i?[Bb]?(?:ytes)?)\s*$")
_FRACTION = expression(r"-?\d+\.\d+")
_NUMBER = expression(r"-?\d[\d,_]*(?:\.\d+)?")


class Facts(Plain):
    """What every area shares."""

    rank: int | None = None
    """The rank in the process group that printed the line."""
    exception: str | None = None
    """The exception's class as printed."""
    exit_code: int | None = None
    """The exit status of a process; negative for a signal."""
    signal: str | None = None
    """The name or number of a signal."""
    errno: int | None = None
    """The system's error number."""
    path: str | None = None
    """A file or folder."""
    model: str | None = None
    """The model's hub id or path as named by the failing line."""
    gpu_index: int | None = None
    """The GPU's index among the visible ones."""
    detail: str | None = None
    """The message's own words where no other field holds them."""


class OomFacts(Facts):
    """Memory: GPU, KV cache and host."""

    family: Literal["oom"] = "oom"
    requested_bytes: int | None = None
    """What the failing allocation asked for."""
    total_bytes: int | None = None
    """The capacity of the GPU, node or pool."""
    free_bytes: int | None = None
    """What was free."""
    process_bytes: int | None = None
    """What this process holds."""
    allocated_bytes: int | None = None
    """What PyTorch has allocated."""
    reserved_bytes: int | None = None
    """What PyTorch has reserved but not allocated."""
    desired_bytes: int | None = None
    """Total memory times utilization: what vLLM wants to use."""
    needed_bytes: int | None = None
    """The KV cache that one request of the full context needs."""
    available_bytes: int | None = None
    """The memory left for the KV cache."""
    weights_bytes: int | None = None
    """The model's weights."""
    checkpoint_bytes: int | None = None
    """All weights together as they are loaded, from the checkpoint's index, else from the config's shapes."""
    weights_of_card_pct: float | None = None
    """What one card's part of the checkpoint takes of the card."""
    gpu_memory_utilization: float | None = None
    """The share of the GPU that vLLM may use, 0 to 1."""
    max_model_len: int | None = None
    """The context length in force, in tokens."""
    kv_cache_tokens: int | None = None
    """The tokens that the KV cache holds."""
    estimated_max_model_len: int | None = None
    """The longest context that fits, as vLLM estimates it, in tokens."""
    max_num_seqs: int | None = None
    """Sequences a batch."""
    quantization: str | None = None
    """The quantization method at work."""
    process: str | None = None
    """The killed process's name."""
    pid: int | None = None
    """The killed process's id."""
    total_vm_bytes: int | None = None
    """The killed process's virtual memory."""
    anon_rss_bytes: int | None = None
    """The killed process's anonymous resident memory."""
    shmem_rss_bytes: int | None = None
    """The killed process's resident shared memory."""
    other_process: str | None = None
    """Another program that holds the GPU's memory, with its size."""
    shm_bytes: int | None = None
    """The size of a shared-memory segment."""
    workers_killed: int | None = None
    """Workers that Ray's memory monitor killed."""
    nccl_version: str | None = None
    """NCCL's release."""
    node: str | None = None
    """A NUMA node or a host."""


class PerformanceFacts(Facts):
    """Rates, queues and latencies."""

    family: Literal["performance"] = "performance"
    prompt_tokens_per_s: float | None = None
    """Prompt tokens processed a second."""
    generation_tokens_per_s: float | None = None
    """Tokens generated a second, all requests together."""
    generation_tokens_per_s_per_request: float | None = None
    """Tokens generated a second and running request."""
    earlier_generation_tokens_per_s: float | None = None
    """Tokens generated a second before, with no more requests running."""
    generation_of_earlier_pct: float | None = None
    """How much of that is still generated, 0 to 100."""
    running: int | None = None
    """Requests running."""
    waiting: int | None = None
    """Requests waiting."""
    swapped: int | None = None
    """Requests swapped out to host memory."""
    kv_cache_usage_pct: float | None = None
    """KV cache in use, 0 to 100."""
    prefix_cache_hit_pct: float | None = None
    """Prompt tokens found in the prefix cache, 0 to 100."""
    preemptions: int | None = None
    """Preemptions counted, so far or in the statistics line's interval."""
    preemptions_pct: float | None = None
    """Preemptions for each hundred requests."""
    mean_ttft_ms: float | None = None
    """Mean time to first token."""
    median_ttft_ms: float | None = None
    """Median time to first token."""
    p95_ttft_ms: float | None = None
    """95th percentile of the time to first token."""
    p99_ttft_ms: float | None = None
    """99th percentile of the time to first token."""
    mean_tpot_ms: float | None = None
    """Mean time per output token after the first."""
    median_tpot_ms: float | None = None
    """Median time per output token after the first."""
    p95_tpot_ms: float | None = None
    """95th percentile of the time per output token."""
    p99_tpot_ms: float | None = None
    """99th percentile of the time per output token."""
    mean_e2e_ms: float | None = None
    """Mean of the time from a request to its last token."""
    median_e2e_ms: float | None = None
    """Median of the time from a request to its last token."""
    p95_e2e_ms: float | None = None
    """95th percentile of the time from a request to its last token."""
    p99_e2e_ms: float | None = None
    """99th percentile of the time from a request to its last token."""
    mean_queue_ms: float | None = None
    """Mean of the time that a request waited to be run."""
    median_queue_ms: float | None = None
    """Median of the time that a request waited to be run."""
    p95_queue_ms: float | None = None
    """95th percentile of the time that a request waited to be run."""
    p99_queue_ms: float | None = None
    """99th percentile of the time that a request waited to be run."""
    requests_per_s: float | None = None
    """Requests completed a second."""
    configured_requests_per_s: float | None = None
    """Requests offered a second."""
    output_tokens_per_s: float | None = None
    """Output tokens a second, all requests together."""
    total_tokens_per_s: float | None = None
    """Input and output tokens a second."""
    duration_s: float | None = None
    """How long the benchmark ran, or over what time a scrape counts."""
    successful_requests: int | None = None
    """Requests that were completed."""
    failed_requests: int | None = None
    """Requests that ended with an error, or that the benchmark lost."""
    max_concurrency: int | None = None
    """Requests that the benchmark had open at once, at most."""
    mean_latency_s: float | None = None
    """Mean time that the benchmark's batch took from the prompts to the last token."""
    aborted_requests: int | None = None
    """Requests that were given up, as by a client that waited no longer."""
    windows: int | None = None
    """Statistics lines in a row that show the state."""
    gpu_utilization_pct: float | None = None
    """Share of the time in which the GPUs worked, their mean, 0 to 100."""
    gpu_samples: int | None = None
    """Samples of each GPU behind that share."""
    gpu_memory_used_pct: float | None = None
    """Memory in use on the fullest GPU, 0 to 100."""
    gpu_slowdown: str | None = None
    """Why the driver holds the GPUs' clocks down."""


class LoadingFacts(Facts):
    """Model, tokenizer, weights and the libraries that load them."""

    family: Literal["loading"] = "loading"
    status_code: int | None = None
    """The hub's HTTP status."""
    url: str | None = None
    """The address asked."""
    revision: str | None = None
    """The model's revision."""
    file: str | None = None
    """The file that is missing or broken."""
    architecture: str | None = None
    """The model class named by the config."""
    model_type: str | None = None
    """The `model_type` of the config."""
    module: str | None = None
    """The Python module or shared object."""
    symbol: str | None = None
    """The undefined symbol."""
    symbol_version: str | None = None
    """The symbol version a library lacks, such as GLIBCXX_3.4.32."""
    library: str | None = None
    """The shared library."""
    package: str | None = None
    """The package to install."""
    required_version: str | None = None
    """The version that is asked for."""
    installed_version: str | None = None
    """The version that is there."""
    class_name: str | None = None
    """A Python class."""
    attribute: str | None = None
    """The attribute it lacks."""
    tokenizer_class: str | None = None
    """The tokenizer class that is unknown."""
    weight: str | None = None
    """The weight that is missing, unexpected or misshapen."""
    expected_shape: str | None = None
    """The shape that the model has."""
    loaded_shape: str | None = None
    """The shape that the checkpoint has."""
    key: str | None = None
    """A key of a config file."""
    error: str | None = None
    """A library's short name for the error."""
    store: str | None = None
    """Where the model is fetched from, where that is not the hub: S3, Google Cloud Storage."""
    format: str | None = None
    """A file format such as gguf."""
    quant_method: str | None = None
    """The quantization method."""
    adapter: str | None = None
    """The LoRA adapter."""
    max_model_len: int | None = None
    """The context length asked for, in tokens."""
    derived_max_model_len: int | None = None
    """The context length that the model allows, in tokens."""
    rope_type: str | None = None
    """The RoPE scaling that the model's config has already."""


class NetworkFacts(Facts):
    """Sockets and HTTP."""

    family: Literal["network"] = "network"
    host: str | None = None
    """The peer's name or address."""
    port: int | None = None
    """The TCP port."""
    address: str | None = None
    """An address as printed."""
    url: str | None = None
    """The address asked."""
    status_code: int | None = None
    """The HTTP status."""
    client: str | None = None
    """The library or program that was the client."""
    timeout_s: float | None = None
    """The time allowed, in seconds."""
    proxy_status: int | None = None
    """The HTTP status with which a proxy refused."""
    error: str | None = None
    """A short name for the error."""


class QuantizationFacts(Facts):
    """Quantization methods, dtypes and what a GPU can do."""

    family: Literal["quantization"] = "quantization"
    quant_method: str | None = None
    """The quantization method."""
    feature: str | None = None
    """What the GPU does not take, where that is no quantization and no dtype."""
    config_method: str | None = None
    """The method that the checkpoint names."""
    argument_method: str | None = None
    """The method that the flag names."""
    dtype: str | None = None
    """The dtype that was refused."""
    supported_dtypes: str | None = None
    """The dtypes that are allowed."""
    min_capability: float | None = None
    """The least compute capability as printed (75 or 7.5)."""
    capability: float | None = None
    """The GPU's compute capability as printed."""
    gpu_name: str | None = None
    """The GPU's product name."""
    architecture: str | None = None
    """The model class."""
    weight_bits: str | None = None
    """Bits a weight, as printed."""
    group_size: int | None = None
    """Weights a scale."""
    weight: str | None = None
    """A weight's name."""


class DistributedFacts(Facts):
    """Ranks, rendezvous, collectives, Ray and KV transfer."""

    family: Literal["distributed"] = "distributed"
    nccl_error: str | None = None
    """NCCL's name for the error."""
    nccl_version: str | None = None
    """NCCL's release."""
    nccl_last_error: str | None = None
    """The text after NCCL's `Last error:`."""
    cuda_error: str | None = None
    """CUDA's words for the error beneath."""
    op_type: str | None = None
    """The collective, such as ALLREDUCE."""
    seq_num: int | None = None
    """The collective's sequence number."""
    timeout_s: float | None = None
    """The time allowed, in seconds."""
    method: str | None = None
    """The worker method or NCCL function that failed."""
    host: str | None = None
    """A host name."""
    address: str | None = None
    """A peer's address."""
    port: int | None = None
    """A TCP port."""
    joined: int | None = None
    """Clients that joined."""
    expected: int | None = None
    """Clients that were expected."""
    variable: str | None = None
    """An environment variable."""
    environment_variable: str | None = None
    """The variable that does not fit, as the nodes' environments or interfaces show it."""
    environment_fault: str | None = None
    """What does not fit, with the values and the nodes."""
    environment_value: str | None = None
    """What to set that variable to."""
    environment_node: str | None = None
    """The node on which to set it."""
    num_heads: int | None = None
    """Attention heads of the model."""
    num_kv_heads: int | None = None
    """Key-value heads of the model."""
    tensor_parallel_size: int | None = None
    """The tensor parallel size asked for."""
    pipeline_parallel_size: int | None = None
    """The pipeline parallel size asked for."""
    world_size: int | None = None
    """Processes in the group."""
    gpu_count: int | None = None
    """GPUs that are visible."""
    gpu_total: float | None = None
    """GPUs in the Ray cluster."""
    gpu_used: float | None = None
    """GPUs in use in the Ray cluster."""
    dimension: int | None = None
    """The size that cannot be split."""
    ib_status: int | None = None
    """The InfiniBand completion status."""
    vendor_err: int | None = None
    """The InfiniBand vendor error."""
    size_bytes: int | None = None
    """The size of a segment or message."""
    code: int | None = None
    """A library's error code."""
    ray_cluster_version: str | None = None
    """The Ray release of the cluster."""
    ray_process_version: str | None = None
    """The Ray release of this process."""
    python_version: str | None = None
    """The Python release."""
    node_id: str | None = None
    """A Ray node."""
    exit_type: str | None = None
    """Ray's type of worker exit."""
    actor: str | None = None
    """The Ray actor's class."""
    pid: int | None = None
    """A process id."""
    connector: str | None = None
    """The KV connector."""


class GpuFacts(Facts):
    """The GPU, its driver and its hardware."""

    family: Literal["gpu"] = "gpu"
    cuda_error: str | None = None
    """CUDA's, HIP's or the NPU's words for the error."""
    cuda_error_code: int | None = None
    """The number of the CUDA error."""
    cuda_enum: str | None = None
    """The enumerator, such as cudaErrorIllegalAddress."""
    kernel: str | None = None
    """The kernel that failed."""
    file: str | None = None
    """The source file and line that report it."""
    assertion: str | None = None
    """The assertion that failed."""
    nvml_error: str | None = None
    """NVML's name for the error."""
    xid: int | None = None
    """NVIDIA's Xid code."""
    ecc_errors: int | None = None
    """Memory errors that could not be corrected, counted since the driver was loaded."""
    sxid: int | None = None
    """NVSwitch's SXid code."""
    pci: str | None = None
    """The PCI address."""
    driver_version: str | None = None
    """The driver that is installed."""
    required_version: str | None = None
    """The driver or CUDA release that is asked for."""
    gpu_name: str | None = None
    """The GPU's product name."""
    capability: str | None = None
    """The GPU's compute capability."""
    process: str | None = None
    """The process on the GPU."""


class EngineFacts(Facts):
    """The engine's processes and what it compiles."""

    family: Literal["engine"] = "engine"
    process: str | None = None
    """The process that died."""
    pid: int | None = None
    """Its process id."""
    tool: str | None = None
    """The compiler, linker or assembler."""
    arch: str | None = None
    """The GPU architecture compiled for."""
    file: str | None = None
    """The file that is missing or failed."""
    required: int | None = None
    """What a kernel needs of a GPU resource, in bytes for shared memory."""
    limit: int | None = None
    """What the GPU has of it."""
    last_frame: str | None = None
    """The innermost frame inside vLLM: file, line and function."""
    last_frame_anywhere: str | None = None
    """The innermost frame of the traceback."""


class ConfigFacts(Facts):
    """Arguments, environment and templates."""

    family: Literal["config"] = "config"
    argument: str | None = None
    """The flag or field."""
    value: str | None = None
    """The value that was refused."""
    choices: str | None = None
    """The values that are allowed, as printed."""
    variable: str | None = None
    """The environment variable."""
    outcome: str | None = None
    """What the server makes of the argument, where it does not refuse it."""
    meant: str | None = None
    """The name that was meant, where it is misspelt."""
    parser: str | None = None
    """The tool or reasoning parser."""
    chat_template: str | None = None
    """What `tokenizer_config.json` holds: `a template` or `none`."""
    host: str | None = None
    """A host name or address."""
    port: int | None = None
    """A TCP port."""


class RequestFacts(Facts):
    """Requests that the server rejected."""

    family: Literal["request"] = "request"
    status_code: int | None = None
    """The HTTP status."""
    outcome: str | None = None
    """What became of the server, where it did not just refuse: it died."""
    endpoint: str | None = None
    """The path that was asked."""
    error_type: str | None = None
    """The error's type in the response."""
    prompt_tokens: int | None = None
    """Tokens in the prompt."""
    requested_tokens: int | None = None
    """Tokens asked for in all."""
    max_model_len: int | None = None
    """The context length, in tokens."""
    parameter: str | None = None
    """The request's parameter."""


class HostFacts(Facts):
    """Disk, permissions and the platform."""

    family: Literal["host"] = "host"
    reason: str | None = None
    """The platform's reason, as printed."""
    unit: str | None = None
    """The pod, container, job or service."""
    free_bytes: int | None = None
    """What is free on the disk."""
    needed_bytes: int | None = None
    """What was to be written."""
    restarts: int | None = None
    """How often the platform started it again."""
    outcome: str | None = None
    """What the platform did, where it is something else than to end the server."""


AnyFacts = (
    OomFacts
    | PerformanceFacts
    | LoadingFacts
    | NetworkFacts
    | QuantizationFacts
    | DistributedFacts
    | GpuFacts
    | EngineFacts
    | ConfigFacts
    | RequestFacts
    | HostFacts
)

FAMILIES: dict[str, type[Facts]] = {
    "oom": OomFacts,
    "performance": PerformanceFacts,
    "loading": LoadingFacts,
    "network": NetworkFacts,
    "quantization": QuantizationFacts,
    "distributed": DistributedFacts,
    "gpu": GpuFacts,
    "engine": EngineFacts,
    "config": ConfigFacts,
    "request": RequestFacts,
    "host": HostFacts,
}


def size(text: str) -> int | None:
    """Read a size such as `112.00 MiB`, `22.5 GiB`, `231892748kB` or `18329065000`, in bytes.

    Binary units throughout, as torch, vLLM and the kernel use them. None when it is no size,
    or one that no machine has.
    """
    found = _SIZE.match(text)
    if found is None:
        return None
    number, unit = found.groups()
    value = float(number.replace(",", "")) * _UNITS[unit.lower()]
    return round(value) if abs(value) < _MAX_SIZE else None


def _number(text: str) -> float | None:
    found = _NUMBER.search(text)
    return sensible(float(found[0].replace(",", "").replace("_", ""))) if found else None


def _converted(field: str, annotation: object, value: str | float) -> object:
    if not isinstance(value, str):
        if annotation not in (int | None, float | None):
            return str(value)
        number = sensible(value)
        return int(number) if number is not None and annotation == int | None else number
    if field.endswith("_bytes"):
        return size(value)
    if annotation == int | None:
        number = _number(value)
        return None if number is None else int(number)
    if annotation == float | None:
        return _number(value)
    return value.strip().rstrip(",;") or None


def seconds_field(name: str, family: type[Facts]) -> str | None:
    """The `_s` field that a number captured in milliseconds fills; None when it is another name."""
    if not name.endswith("_ms") or name in fields(family):
        return None
    field = name.removesuffix("_ms") + "_s"
    return field if field in fields(family) else None


def _with_units(captured: Mapping[str, str | float | None]) -> Mapping[str, str | float | None]:
    """`0.49/79.32 GiB` states its unit once, for both; a fraction of a byte does not exist."""
    sizes = {name: value for name, value in captured.items() if name.endswith("_bytes") and isinstance(value, str)}  # fmt: skip
    bare = {name: value for name, value in sizes.items() if _FRACTION.fullmatch(value)}
    unit = next((value.split()[-1] for value in sizes.values() if " " in value.strip()), None)
    if not bare or unit is None:
        return captured
    return {**captured, **{name: f"{value} {unit}" for name, value in bare.items()}}


def build(area: str, captured: Mapping[str, str | float | None]) -> AnyFacts:
    """Make an area's facts from captured texts and numbers; what cannot be read is left out."""
    family = FAMILIES[area]
    found: dict[str, Any] = {}
    for name, value in _with_units(captured).items():
        seconds = seconds_field(name, family)
        if seconds is not None and value is not None:
            number = _number(str(value))
            found.setdefault(seconds, None if number is None else number / 1000)
            continue
        annotation = fields(family).get(name)
        if annotation is None or value is None:
            continue
        found[name] = _converted(name, annotation, value)
    return family(**found)  # type: ignore[return-value]  # FAMILIES holds just the union's members


def stated(facts: Facts) -> dict[str, object]:
    """What the log states, by the fields' names, in their order."""
    return {
        name: value
        for name, value in values(facts).items()
        if value is not None and name != "family"
    }
