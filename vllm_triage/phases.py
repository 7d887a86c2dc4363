"""Phases: what the server was doing, told from the functions of a traceback."""

from functools import lru_cache

from vllm_triage.expressions import expression
from vllm_triage.kinds import Phase

_SERVING_PLACES = expression(
    r"(?:async_llm_engine|async_llm|serving\w{0,80}|metrics|loggers|dump_input)\.py:"
)

# What records of vLLM and uvicorn begin with when the server comes to a phase.
READY = (
    "Application startup complete",
    "Uvicorn running on",
    "Starting vLLM API server",
    "Starting vLLM server on",
    "Dumping scheduler output",
    "EngineCore encountered a fatal error",
    "AsyncLLM output_handler failed",
    "Engine background task failed",
    "Exception in ASGI application",
)
STARTED = ("Application startup complete", "Uvicorn running")
STARTING = (
    "EngineCore failed to start",
    "WorkerProc failed to start",
    "Engine core initialization failed",
    "Engine process failed to start",
    "WorkerProc initialization failed",
    "Starting to load model",
    "Initializing a",
)
STOPPING = (
    "Shutting down",
    "Received signal",
    "Received SIGTERM",
    "Gracefully stopping",
    "[shutdown] API server: shutdown triggered",
    "[shutdown] EngineCore: trigger received signal",
)

_STARTUP_FUNCTIONS = frozenset(
    [
        "load_model",
        "get_model",
        "load_weights",
        "init_device",
        "profile_run",
        "determine_num_available_blocks",
        "determine_available_memory",
        "capture_model",
        "capture",
        "_dummy_run",
        "_dummy_sampler_run",
        "_dummy_pooler_run",
        "_warm_up_model",
        "warm_up_model",
        "warmup",
        "kernel_warmup",
        "compile_or_warm_up_model",
        "initialize_kv_cache",
        "_initialize_kv_caches",
        "initialize_from_config",
        "initialize_cache",
        "_init_cache_engine",
        "init_cache_engine",
        "wait_for_engine_startup",
        "launch_core_engines",
        "create_engine_config",
        "create_model_config",
        "from_engine_args",
        "from_vllm_config",
        "_init_executor",
        "_allocate_kv_cache",
        "_allocate_kv_cache_tensors",
        "get_kv_cache_configs",
        "make_async_mp_client",
        "profile_cudagraph_memory",
        "init_worker_distributed_environment",
        "init_distributed_environment",
        "__post_init__",
        "get_config",
    ]
)
_SERVING_FUNCTIONS = frozenset(
    [
        "run_busy_loop",
        "_process_engine_step",
        "step",
        "step_with_batch_queue",
        "step_async",
        "engine_step",
        "run_engine_loop",
        "output_handler",
        "run_asgi",
        "execute_model",
        "sample_tokens",
        "_model_forward",
        "generate",
        "worker_busy_loop",
        "run_engine",
        "wake_up",
    ]
)
_ENGINE_FUNCTIONS = frozenset(
    (
        "run_busy_loop",
        "_process_engine_step",
        "run_engine_core",
        "run_engine_loop",
        "engine_step",
        "output_handler",
        "worker_busy_loop",
        "run_engine",
    )
)
_ENGINE_LOOPS = frozenset(("run_busy_loop", "run_engine_core", "run_engine_loop"))
_ENGINE_PLACES = (
    "engine.py:",
    "core.py:",
    "multiproc_executor.py:",
    "worker_base.py:",
    "multiproc_worker_utils.py:",
)
_ENGINE_FILES = (
    "vllm/v1/core/",
    "vllm/v1/worker/",
    "vllm/v1/executor/",
    "vllm/worker/",
    "vllm/executor/",
    "vllm/model_executor/",
    "vllm/distributed/",
)
_QUANTIZED_PATH = expression(
    r"/quantization/(?!kv_cache)|(?:awq|gptq|marlin|bitsandbytes|gguf|modelopt|compressed_tensors|fp8_utils|cutlass_w8a8)\w{0,80}\.py"
)
_QUANTIZED_FUNCTION = expression(r"(?:awq|gptq|marlin|exl|aqlm|nvfp4|mxfp4|w8a8|w4a16)_")


@lru_cache(maxsize=256)
def phase_of(frames: tuple[tuple[str, int, str], ...], place: str | None) -> Phase | None:
    """Tell from a traceback's functions, else from the printing module, what the server did."""
    functions = {frame[2] for frame in frames}
    if functions & _STARTUP_FUNCTIONS:
        return Phase.STARTUP
    if functions & _SERVING_FUNCTIONS:
        return Phase.SERVING
    if place is not None and _SERVING_PLACES.search(place):
        return Phase.SERVING
    return None


def in_engine(frames: tuple[tuple[str, int, str], ...], place: str | None) -> bool:
    """Tell whether an exception passed through the engine's own loop, which ends with it."""
    if not frames and place is not None:
        return place.startswith(_ENGINE_PLACES)
    return any(
        function in _ENGINE_FUNCTIONS or file.startswith(_ENGINE_FILES)
        for file, _, function in frames
    )


def ends_engine(frames: tuple[tuple[str, int, str], ...]) -> bool:
    """Tell whether an exception left the engine's loop, which does not go on after one."""
    return any(
        function in _ENGINE_LOOPS and file.startswith("vllm/") for file, _, function in frames
    )


@lru_cache(maxsize=256)
def quantized_by(frames: tuple[tuple[str, int, str], ...]) -> str | None:
    """The quantization code that a traceback passes through, by its file's or function's name."""
    for file, _, function in reversed(frames):
        if _QUANTIZED_PATH.search(file):
            return file.rpartition("/")[2].removesuffix(".py")
        if _QUANTIZED_FUNCTION.match(function):
            return function.partition("_")[0]
    return None
