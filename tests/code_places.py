"""Write `patterns/code-places.json`: on which line each release of vLLM has a known statement.

    python -m tests.code_places FOLDER

FOLDER/RELEASE/vllm/ holds the Python files of a published release, unpacked from its source
archive (`pip download --no-deps --no-binary vllm vllm==RELEASE`), its wheel where it has none.
Nothing of it is run. The file keeps numbers and checksums, no text.
"""

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vllm_triage.releases import WORDS, path, site
from vllm_triage.versions import parse

# The modules whose records real logs show.
LOGGERS = frozenset(
    """api_server arg_utils async_llm async_llm_engine backends base_loader cli_args compilation
    config core core_client cpu_model_runner cpu_worker cuda default_loader dump_input engine
    engine_args entry factories gpu_executor gpu_model_runner gpu_worker hf importing kernel
    kv_cache_utils launcher llm_engine loader logger metrics metrics_utils model model_runner
    monitor multiproc_executor multiproc_gpu_executor multiproc_worker_utils parallel_state
    pynccl ray_executor ray_gpu_executor ray_utils registry scheduler selector serving_chat
    serving_completion system_utils torch_utils vllm weight_utils worker worker_base""".split()  # noqa: SIM905
)
# The modules and functions that real tracebacks pass through.
MODULES = frozenset(
    """config distributed/device_communicators/pynccl distributed/device_communicators/shm_broadcast
    distributed/parallel_state engine/arg_utils engine/async_llm_engine engine/llm_engine
    engine/multiprocessing/client engine/multiprocessing/engine entrypoints/cli/main
    entrypoints/cli/serve entrypoints/launchers/api_server/entry entrypoints/llm
    entrypoints/openai/api_server executor/executor_base executor/gpu_executor
    executor/multiproc_gpu_executor executor/mp_distributed_executor executor/uniproc_executor
    executor/ray_distributed_executor executor/ray_gpu_executor model_executor/model_loader
    model_executor/model_loader/__init__ model_executor/model_loader/base_loader
    model_executor/model_loader/default_loader model_executor/model_loader/loader
    model_executor/model_loader/weight_utils scripts transformers_utils/config
    v1/core/kv_cache_utils v1/engine/async_llm v1/engine/core v1/engine/core_client
    v1/engine/llm_engine v1/engine/utils v1/executor/abstract v1/executor/multiproc_executor
    v1/executor/uniproc_executor v1/worker/gpu_model_runner v1/worker/gpu_worker
    v1/worker/worker_base worker/model_runner worker/worker worker/worker_base""".split()  # noqa: SIM905
)
FUNCTIONS = frozenset(
    """main run_server cmd run_server_worker __init__ build_async_engine_client run_engine_core
    build_async_engine_client_from_engine_args create_engine_config from_vllm_config load_model
    wait_for_engine_startup get_response launch_core_engines get_model wait_for_ready
    load_weights _wait_for_response make_async_mp_client make_client result run_mp_engine
    output_handler get_output_async check_enough_kv_cache_memory create_model_config worker_main
    get_all_weights _init_executor _execute_worker_rpc collective_rpc init_device
    execute_model _initialize_kv_caches determine_available_memory _get_weights_iterator
    _prepare_weights acquire_read _process_engine_step step run_busy_loop dequeue NCCL_CHECK
    init from_engine_args create_engine_configs _verify_quantization _run_engine _init_tokenizer
    _dummy_sampler_run get_config tensor_model_parallel_all_reduce _model_forward
    get_quant_config __post_init__ _warm_up_model capture get_kv_cache_configs _dummy_run
    profile_run init_app_state build_and_serve get_kv_cache_config generate capture_model
    initialize_from_config initialize_cache determine_num_available_blocks init_worker
    _run_workers run_engine_loop engine_step step_async serve init_worker_distributed_environment
    initialize_kv_cache compile_or_warm_up_model execute_method worker_busy_loop __new__
    add_request _initialize_model _run_output_handler init_model_parallel_group""".split()  # noqa: SIM905
)
_LEVELS = ("info", "warning", "error", "exception", "critical", "info_once", "warning_once")


def _first_words(call: ast.Call) -> str | None:
    """The words that every record of a logger's call begins with; None when there are too few."""
    found = call.args[0] if call.args else None
    if isinstance(found, ast.JoinedStr):
        found = found.values[0] if found.values else None
    if not isinstance(found, ast.Constant) or not isinstance(found.value, str):
        return None
    text = found.value.partition("%")[0].partition("\n")[0][:WORDS]
    return text if len(text) == WORDS else None


def _goes_on(callee: ast.expr) -> bool:
    """Tell whether a traceback is likely to have a further frame of vLLM below this call."""
    name = callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", "")
    return name in FUNCTIONS or name.startswith(("EngineCore", "AsyncLLM", "LLMEngine"))


def _sites(tree: ast.Module, lines: list[str], name: str) -> Iterator[tuple[str, str, int]]:
    stem = name.rpartition("/")[2]
    for node in ast.walk(tree):
        if (
            stem in LOGGERS
            and isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _LEVELS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "logger"
        ):
            words = _first_words(node)
            if words is not None:
                yield f"{stem}.py", site(words), node.lineno
        if (
            name in MODULES
            and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name in FUNCTIONS
        ):
            numbers = {
                inner.lineno
                for part in node.body
                for inner in ast.walk(part)
                if isinstance(inner, ast.Raise)
                or (isinstance(inner, ast.Call) and _goes_on(inner.func))
            }
            for number in numbers:
                text = lines[number - 1].strip()
                if "logger" not in text and len(text) > 12:
                    yield f"vllm/{name}.py", site(f"{node.name} {text}"), number


def places(folder: Path) -> dict[str, Any]:
    """The table of all releases under a folder."""
    names = sorted((one.name for one in folder.iterdir()), key=lambda one: (parse(one) or (), one))
    table: dict[str, dict[str, dict[int, set[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(set))
    )
    for index, release in enumerate(names):
        root = folder / release / "vllm"
        for module in sorted(root.rglob("*.py")):
            name = module.relative_to(root).as_posix().removesuffix(".py")
            if module.stem not in LOGGERS and name not in MODULES:
                continue
            text = module.read_text("utf-8")
            for file, key, number in _sites(ast.parse(text), text.split("\n"), name):
                table[file][key][index].add(number)
    return {
        "releases": names,
        "sites": {
            file: {key: _row(found) for key, found in sorted(keys.items()) if _is_telling(found)}
            for file, keys in sorted(table.items())
        },
    }


def _is_telling(found: dict[int, set[int]]) -> bool:
    """A statement that stands twice in one file tells nothing."""
    return all(len(numbers) == 1 for numbers in found.values())


def _row(found: dict[int, set[int]]) -> list[int]:
    """The first release's index, then the line in each release, 0 where it has none."""
    first, last = min(found), max(found)
    return [first, *(min(found.get(index, {0})) for index in range(first, last + 1))]


def written(table: Mapping[str, Any]) -> str:
    """The table as JSON, a row a source file."""
    sites = table["sites"].items()
    rows = [
        f"{json.dumps(file)}: {json.dumps(keys, separators=(',', ':'))}" for file, keys in sites
    ]
    releases = json.dumps(table["releases"])
    return f'{{"releases": {releases},\n"sites": {{\n' + ",\n".join(rows) + "\n}}\n"


def main() -> None:
    """Write the file."""
    path().write_text(written(places(Path(sys.argv[1]))), "utf-8")


if __name__ == "__main__":
    main()
