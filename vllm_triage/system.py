"""System: what a bug report tells of the machine that it is made on."""

import contextlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import metadata
from typing import NamedTuple

from vllm_triage.expressions import expression
from vllm_triage.redact import REDACTED, redact
from vllm_triage.reports.clean import clean
from vllm_triage.secret_names import is_secret

TIMEOUT_S = 20.0
"""How long nvidia-smi gets: on a broken GPU it may never answer."""
_MAX_OUTPUT = 262_144
_MAX_VALUE = 1_000
# Those of which a report asks for the release, as pip names them.
_PACKAGES = (
    "vllm", "vllm-ascend", "vllm-spyre", "torch", "torchvision", "torchaudio", "torch-npu", "torch-xla", "triton", "pytorch-triton-rocm",
    "transformers", "tokenizers", "huggingface-hub", "hf-xet", "safetensors", "accelerate", "peft", "sentence-transformers",
    "ray", "flash-attn", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "xformers", "deep-gemm", "flash-mla",
    "compressed-tensors", "llmcompressor", "bitsandbytes", "autoawq", "auto-gptq", "gptqmodel", "torchao", "gguf",
    "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime",
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas-cu12", "nvidia-ml-py", "nvidia-cutlass-dsl", "cupy-cuda12x",
    "xgrammar", "outlines", "outlines-core", "lm-format-enforcer", "llguidance", "lmcache", "nixl", "mooncake-transfer-engine",
    "mistral-common", "tiktoken", "sentencepiece", "openai", "fastapi", "starlette", "uvicorn", "pydantic", "numpy", "numba", "pyzmq",
)  # fmt: skip
_NAMES = frozenset(
    ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LD_LIBRARY_PATH", "LD_PRELOAD",
     "PYTHONPATH", "VIRTUAL_ENV", "CONDA_DEFAULT_ENV", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
     "SSL_CERT_FILE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES",
     "TPU_VISIBLE_CHIPS", "XDG_CACHE_HOME", "TMPDIR", "NO_COLOR")
)  # fmt: skip
_PREFIXES = (
    "VLLM_", "NCCL_", "CUDA_", "HF_", "HUGGING_FACE_", "TRANSFORMERS_", "TOKENIZERS_", "TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_",
    "TRITON_", "RAY_", "GLOO_", "TP_SOCKET_", "UCX_", "NVIDIA_", "NVSHMEM_", "NIXL_", "LMCACHE_", "MOONCAKE_", "FLASHINFER_", "HIP_", "RCCL_",
    "HSA_", "ASCEND_", "HCCL_", "KMP_", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_NODEID", "SLURM_GPUS",
)  # fmt: skip
# Says nothing of a fault, or names the one card.
_DULL = expression(
    r"^\s*(?:[^:]{1,80}:\s*N/A|(?:Serial Number|GPU UUID|Board ID|Board Part Number|Timestamp)\s*:.*)\s*$"
)


class System(NamedTuple):
    """A machine as texts, of which some may be empty."""

    platform: str
    packages: str
    environment: str
    gpus: str
    """What `nvidia-smi` prints, and how the GPUs are connected."""
    gpu_details: str
    """What `nvidia-smi -q` prints, without what is not known."""


def gather(environ: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> System:
    """Look at this machine. Imports none of the packages, asks nothing of the network, runs only nvidia-smi."""
    smi = shutil.which("nvidia-smi")
    plain = _run([smi], timeout_s) if smi else "nvidia-smi is not there.\n"
    is_alive = smi is not None and not plain.startswith("nvidia-smi did not")
    topology = _run([smi, "topo", "-m"], timeout_s) if smi and is_alive else ""
    details = _run([smi, "-q"], timeout_s) if smi and is_alive else ""
    return System(
        platform=_platform(),
        packages=_packages(),
        environment=environment(environ),
        gpus=plain + (f"\n{topology}" if topology else ""),
        gpu_details=trimmed(details),
    )


def environment(environ: Mapping[str, str]) -> str:
    """The variables that vLLM and what it stands on read, sorted, a line each; of secrets only that they are set."""
    rows = []
    for name, value in sorted(environ.items()):
        if name.upper() not in _NAMES and not name.startswith(_PREFIXES):
            continue
        if value and is_secret(name):
            rows.append(f"{name}={REDACTED}")
        else:
            rows.append(redact(f"{name}={redact(value)}")[: len(name) + _MAX_VALUE])
    return "".join(f"{clean(row)}\n" for row in rows)


def trimmed(details: str) -> str:
    """What `nvidia-smi -q` prints without fields that are not known and headings over nothing."""
    kept: list[str] = []
    for row in reversed([row for row in details.splitlines() if not _DULL.match(row)]):
        is_heading = row.strip() and ":" not in row and not row.startswith(("=", "GPU "))
        below = next((one for one in reversed(kept) if one.strip()), "")
        if is_heading and _indent(below) <= _indent(row):
            continue
        kept.append(row)
    return "".join(f"{row}\n" for row in reversed(kept) if row.strip())


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip()) if row else -1


def _platform() -> str:
    rows = [
        ("OS", _os_name()),
        ("Kernel", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("C library", " ".join(platform.libc_ver())),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("CPUs", str(os.cpu_count() or "")),
        ("Memory", _memory()),
        ("/dev/shm", _shared_memory()),
        ("Container", "yes" if os.path.exists("/.dockerenv") or os.environ.get("KUBERNETES_SERVICE_HOST") else ""),  # noqa: PTH110
    ]  # fmt: skip
    return "".join(f"{name}: {text}\n" for name, text in rows if text.strip())


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.platform()


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return ""
    return f"{size / 1024**3:.1f} GiB"


def _shared_memory() -> str:
    try:
        found = shutil.disk_usage("/dev/shm")
    except OSError:
        return ""
    return f"{found.total / 1024**3:.1f} GiB, {found.free / 1024**3:.1f} GiB free"


def _packages() -> str:
    rows = []
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError, OSError, ValueError, KeyError):
            rows.append(f"{name} {metadata.version(name)}")
    return "".join(f"{row}\n" for row in rows)


def _run(command: list[str], timeout_s: float) -> str:
    """What a program prints; one that hangs is left behind, even where it cannot be killed."""
    shown = " ".join(["nvidia-smi", *command[1:]])
    with tempfile.TemporaryFile() as output:
        try:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        except OSError as error:
            return f"{shown} cannot be run: {error.strerror or error}\n"
        try:
            code = started.wait(timeout_s)
        except subprocess.TimeoutExpired:
            started.kill()
            # In the driver's hands it cannot even be killed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(1.0)
            return f"nvidia-smi did not answer within {timeout_s:g} s ({shown}): the driver or a GPU hangs.\n"
        output.seek(0)
        text = output.read(_MAX_OUTPUT).decode("utf-8", "replace")
    text = "".join(f"{clean(redact(row.rstrip()))}\n" for row in text.splitlines())
    return text if not code else f"{text}\n{shown} ended with exit code {code}.\n"
