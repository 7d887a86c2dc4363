"""Derived values: what follows from a run and an incident's facts without being printed."""

import shlex
from collections.abc import Mapping
from math import ceil

from vllm_triage import flags
from vllm_triage.arguments import number
from vllm_triage.drivers import needed
from vllm_triage.expressions import expression
from vllm_triage.memory import held_elsewhere
from vllm_triage.numbers import whole
from vllm_triage.run import Run
from vllm_triage.tables import table
from vllm_triage.versions import parse

# Written by this module from words that were checked, so that a command may hold them as they are.
QUOTED = frozenset(("replacement", "model_files", "download", "pod", "workload"))
NAMES = (
    "visible_gpus", "engine", "device", "needed_driver", "model_folder", "named_model", "model_files", "download",
    "config_path", "network_interface", "signal_name", "pci_address", "module_package", "vllm_module", "shm_path", "flag_name",
    "refused_flag", "refused", "replacement", "replacement_why", "dropped_flag", "dropped_why", "flag_came_with",
    "compute_capability", "reused_prefix_pct", "weights_exceed_card", "held_elsewhere", "rope_factor", "gpu_load", "gpu_memory", "gpu_watched",
    "fitting_lora_rank", "fitting_loras",
    "pod", "workload", "namespace", "scheduler", "gpu_make", "master_host", "master_port", "peer_host", "peer_port",
)  # fmt: skip

_FOLDER = expression(r"(?:/|\.{1,2}/|~|[A-Za-z]:\\)")
_HUB_ID = expression(r"[\w.-]{1,96}(?:/[\w.-]{1,96})?")
PLAIN = expression(r"[\w./:@+=,%-]{1,300}")
"""What a shell takes as one plain word."""
_PCI = expression(r"(?:[\da-fA-F]{4,8}:)?[\da-fA-F]{2}:[\da-fA-F]{2}")
_LONG_FLAG = expression(r"--?[A-Za-z][\w-]{0,80}")
_CHOICE = expression(r"[\w.+-]+")
_MAX_SIGNAL = 64
_MAX_PARALLEL = 4096
_WITHOUT_POINT = 30
_MOST_PCT = 80
_SIGNAL_STATUS = 128
_BUSY_PCT = 80
_FULL_PCT = 95
_SEVERAL = 3
# What `--max-lora-rank` takes (`vllm/config/lora.py`).
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def derived(known: Mapping[str, object], run: Run | None) -> dict[str, str]:
    """The values named in `NAMES`, as far as a run and an incident's facts tell them."""
    version = run.version if run is not None else None
    found: dict[str, str | None] = {
        **_model(known, run),
        **_refused_flag(known, version),
        "module_package": _package(known.get("module")),
        "vllm_module": _starting(known.get("module"), "vllm.", "vllm_"),
        "shm_path": _shared_memory(known.get("path")),
        "device": _device(run),
        "needed_driver": needed_driver(run),
        "network_interface": run.interface if run is not None else None,
        "engine": engine(run),
        "signal_name": _signal(known),
        "reused_prefix_pct": _reused(known.get("prefix_cache_hit_pct")),
        "compute_capability": _capability(known.get("capability")),
        "weights_exceed_card": _exceeding(known, run),
        "held_elsewhere": _elsewhere(known),
        "rope_factor": _rope_factor(known),
    }
    found.update(_meeting(known, run))
    gpus = visible_gpus(known, run)
    if gpus is not None:
        found["visible_gpus"] = str(gpus)
    found.update(_gpu_load(known))
    found.update(_loras(known))
    pci = known.get("pci")
    if isinstance(pci, str):
        found["pci_address"] = pci + ".0" if _PCI.fullmatch(pci) else pci
    return {name: value for name, value in found.items() if value}


def _meeting(known: Mapping[str, object], run: Run | None) -> dict[str, str]:
    """The peer that the failing line names; it speaks for the master before what the run says."""
    peer = {name: str(known[name]) for name in ("host", "port") if known.get(name)}
    master = run.meeting.told(run.arguments) if run is not None else {}
    return {
        **master,
        **{f"master_{name}": value for name, value in peer.items()},
        **{f"peer_{name}": value for name, value in peer.items()},
    }


def visible_gpus(known: Mapping[str, object], run: Run | None) -> int | None:
    """How many GPUs one process could see; None when unknown, or when the ranks span nodes.

    The count that the failing line states, else that of the devices which the log lists.
    """
    count = known.get("gpu_count")
    if isinstance(count, int):
        return count
    if run is None or run.visible_gpus is None:
        return None
    nodes = number(run.arguments, "nnodes") or 1
    if nodes > 1 or run.arguments.get("distributed_executor_backend") == "ray":
        return None
    return run.visible_gpus


def engine(run: Run | None) -> str | None:
    """`v0` or `v1`: as printed, else the only one that the release has."""
    if run is None:
        return None
    if run.engine is not None:
        return run.engine
    release = parse(run.version)
    if release is None or (0, 8) <= release < (0, 11):
        return None
    return "v1" if release >= (0, 11) else "v0"


def needed_driver(run: Run | None) -> str | None:
    """The least driver for the CUDA release that torch, else vLLM's default wheel, is built for."""
    need = needed(run) if run is not None else None
    if need is None:
        return None
    text = f"CUDA {need.cuda} needs driver {need.whole} or newer"
    if need.least == need.whole:
        return text
    return f"{text}, by minor version compatibility {need.least}"


def _loras(known: Mapping[str, object]) -> dict[str, str]:
    """The rank and the number of adapters to allow, where those asked for were refused."""
    value = known.get("value")
    if not isinstance(value, str) or not (value.isascii() and value.isdigit()):
        return {}
    asked = whole(value)
    if known.get("argument") == "--max-loras":
        return {"fitting_loras": str(asked)}
    ranks = [rank for rank in _LORA_RANKS if rank >= asked]
    if known.get("argument") != "--max-lora-rank" or not ranks:
        return {}
    return {"fitting_lora_rank": str(ranks[0])}


def _gpu_load(known: Mapping[str, object]) -> dict[str, str]:
    """What a listing of the GPUs comes to: one sample is a moment, several have watched them."""
    found: dict[str, str] = {}
    busy, samples = known.get("gpu_utilization_pct"), known.get("gpu_samples")
    if isinstance(busy, float):
        found["gpu_load"] = "low" if busy < _BUSY_PCT else "high"
        if isinstance(samples, int) and samples >= _SEVERAL:
            found["gpu_watched"] = f"{busy:.0f} % in {samples} samples"
    used = known.get("gpu_memory_used_pct")
    if isinstance(used, float):
        found["gpu_memory"] = "full" if used >= _FULL_PCT else "free"
    return found


def _model(known: Mapping[str, object], run: Run | None) -> dict[str, str | None]:
    fact = known.get("model")
    named = fact if isinstance(fact, str) else None
    model = (run.model if run is not None else None) or named
    out: dict[str, str | None] = {"named_model": named or model}
    path = known.get("path")
    if isinstance(path, str) and path.endswith(".json"):
        out["config_path"] = path
    if model is None:
        return out
    if _FOLDER.match(model):
        out["model_folder"] = model
        out.setdefault("config_path", model.rstrip("/") + "/config.json")
        if PLAIN.fullmatch(model):
            out["model_files"] = model
            out["download"] = f"ORG/NAME --local-dir {model}"
    elif _HUB_ID.fullmatch(model):
        out["download"] = model
        name = model.replace("/", "--")
        out["model_files"] = f"~/.cache/huggingface/hub/models--{name}/snapshots/*/"
    return out


def _signal(known: Mapping[str, object]) -> str | None:
    """The signal's name, from its name, its number or an exit status."""
    name, code = known.get("signal"), known.get("exit_code")
    if isinstance(name, str) and not name.lstrip("-").isdecimal():
        return name
    text = name if isinstance(name, str) else None
    value = whole(text) if text else code if isinstance(code, int) else 0
    from signal import Signals

    for candidate in (-value, value - _SIGNAL_STATUS, value if text else 0):
        if 0 < candidate <= _MAX_SIGNAL:
            try:
                return Signals(candidate).name
            except ValueError:
                continue
    return None


def _capability(value: object) -> str | None:
    """A GPU's compute capability as NVIDIA writes it: vLLM prints 7.5 as `75` and as `7.5`."""
    if not isinstance(value, int | float):
        return None
    return f"{value / 10 if value >= _WITHOUT_POINT else value:.1f}"


def _exceeding(known: Mapping[str, object], run: Run | None) -> str | None:
    """What the weights take of each card, where no card can hold its part: `141.1 GB of 84.9 GB`."""
    weights, card = known.get("checkpoint_bytes"), known.get("total_bytes")
    if run is None or not isinstance(weights, int) or not isinstance(card, int) or card <= 0:
        return None
    arguments = run.arguments
    if any(
        arguments.get(name) for name in ("quantization", "cpu_offload_gb", "load_format", "dtype")
    ):
        return None
    sizes = [number(arguments, f"{one}_parallel_size") or 1 for one in ("tensor", "pipeline")]
    if not all(1 <= one <= _MAX_PARALLEL for one in sizes):
        return None
    part = weights / (sizes[0] * sizes[1])
    return f"{part / 1e9:.1f} GB of {card / 1e9:.1f} GB" if part >= card else None


def _elsewhere(known: Mapping[str, object]) -> str | None:
    held = held_elsewhere(known)
    return None if held is None else f"{held / 2**30:.1f} GiB"


def _starting(text: object, *beginnings: str) -> str | None:
    return text if isinstance(text, str) and text.startswith(beginnings) else None


def _shared_memory(path: object) -> str | None:
    """A file of /dev/shm, by its path or by the name that POSIX gives it, `/torch_1234`."""
    is_name = isinstance(path, str) and path.rfind("/") == 0 and "." not in path
    return str(path) if is_name else _starting(path, "/dev/shm", "/run/shm")


def _device(run: Run | None) -> str | None:
    """`cpu`, `cuda`, ...: as the engine prints it, or as the build is named."""
    if run is None:
        return None
    device = run.config.get("device_config")
    if isinstance(device, str):
        return device
    return "cpu" if run.version is not None and run.version.endswith("+cpu") else None


def _package(module: object) -> str | None:
    if not isinstance(module, str):
        return None
    return table("module-packages").get(module.partition(".")[0])


def _refused_flag(known: Mapping[str, object], version: str | None) -> dict[str, str | None]:
    """What to write for a flag that the release does not accept, or for its value."""
    printed = known.get("argument")
    text = printed.partition("/")[0] if isinstance(printed, str) else ""
    flag, _, given = text.partition("=")
    if not _LONG_FLAG.fullmatch(flag):
        return {}
    out: dict[str, str | None] = {
        "flag_name": flag.strip("-").replace("_", "-"),
        "refused_flag": flag,
        "refused": flag,
    }
    if known.get("detail") == "unrecognized":
        out |= _successor(flag, given or _first_value(known.get("value")), version)
        return out
    value, choices = known.get("value"), known.get("choices")
    if isinstance(value, str) and isinstance(choices, str):
        import difflib

        near = difflib.get_close_matches(value, _CHOICE.findall(choices), 1)
        if near and near[0] != value:
            out["refused"] = f"{flag} {value}"
            out["replacement"] = shlex.join([flag, near[0]])
            out["replacement_why"] = "the nearest of the values that are allowed"
    return out


def _successor(flag: str, value: str | None, version: str | None) -> dict[str, str | None]:
    modern = flags.successor(flag, value, version)
    if modern is not None:
        if not modern.words:
            return {"dropped_flag": flag, "dropped_why": modern.why}
        return {"replacement": shlex.join(modern.words), "replacement_why": modern.why}
    later = flags.came_with(flag, version)
    if later is not None:
        return {"flag_came_with": later}
    near = flags.nearest(flag, version)
    if near is None:
        return {}
    return {"replacement": shlex.join([near, value] if value else [near])}


def _first_value(rest: object) -> str | None:
    """The value that stood after the flag, in what argparse printed without its quotes."""
    if not isinstance(rest, str) or rest.startswith("-"):
        return None
    text = rest.partition(" --")[0]
    if text.startswith(("{", "[")):
        return text
    word = (text.split() or [""])[0]
    return word if PLAIN.fullmatch(word) else None


def _reused(pct: object) -> str | None:
    """A prefix-cache hit rate that leaves little to gain."""
    return f"{pct:g}" if isinstance(pct, int | float) and pct >= _MOST_PCT else None


def _rope_factor(known: Mapping[str, object]) -> str | None:
    """What the model's own context is to be multiplied by for the one asked for, rounded up to tenths."""
    asked, allowed = known.get("max_model_len"), known.get("derived_max_model_len")
    if not (isinstance(asked, int | float) and isinstance(allowed, int | float)):
        return None
    return f"{ceil(asked * 10 / allowed) / 10:.1f}" if asked > allowed > 0 else None
