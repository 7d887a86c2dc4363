"""Formats: which artefact a file is, told by its beginning.

A log is never one of them: a format is known by what no log begins with.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple, cast

from vllm_triage.artefacts.heads import is_benchmark, is_nvidia_smi
from vllm_triage.artefacts.observations import Reading
from vllm_triage.lines import Line

_SEEN = 60_000
_CUT = {"prometheus": "scrape", "environment": "environment", "manifests": "manifest"}
"""What is made of a last line without an end, by the readers' modules."""


class Format(NamedTuple):
    """An artefact that can be read."""

    name: str
    """As the report calls it."""
    module: str
    """The module of this package whose `read` takes its lines."""
    fits: Callable[[str], bool]
    """Whether a file that begins so is one."""
    is_log: bool = False
    """Whether its lines are read as those of a log too, and what they say is told as ever."""

    def read(self, lines: Sequence[Line], *, is_open: bool = False) -> Reading:
        """Read the whole artefact, of which the last line may be cut off where it `is_open`.

        Raises nothing: what is damaged is told by `problem`.
        """
        module = import_module(f"vllm_triage.artefacts.{self.module}")
        reading: Reading = module.read(lines)
        if not is_open or self.module not in _CUT:
            return reading
        from vllm_triage.artefacts import cuts

        return cast("Reading", getattr(cuts, _CUT[self.module])(reading, lines, module.read))


def _asked(module: str, *beginnings: str) -> Callable[[str], bool]:
    """Ask a reader's module, which is imported only for a file that begins so."""

    def fits(head: str) -> bool:
        if not head.startswith(beginnings):
            return False
        return bool(import_module(f"vllm_triage.artefacts.{module}").fits(head))

    return fits


def _is_model_file(head: str) -> bool:
    if not head.startswith("{"):
        return False
    from vllm_triage.artefacts.model_files import sort_of

    return sort_of(head) is not None


def _is_environment(head: str) -> bool:
    first = head.partition("\n")[0][:300]
    # Most logs are told by their first line, and need no reader's module.
    may_be = (
        first.partition("=")[0].isidentifier()
        or first.startswith(("export ", "declare ", "# ", "$ ", "BASH_FUNC_"))
        or any(
            sign in first
            for sign in (": <", ": flags=", " UP ", " UNKNOWN ", " DOWN", " Link encap:", "@")
        )
    )
    if not may_be:
        return False
    from vllm_triage.artefacts.environment import fits

    return fits(head)


def _is_long_environment(head: str) -> bool:
    """Whether a log may follow what is seen: Kubernetes sets seven variables for each service."""
    return len(head) > _SEEN and "\0" not in head and _is_environment(head)


def _is_manifest(head: str) -> bool:
    if '"HostConfig"' not in head and "apiVersion" not in head:
        return False
    from vllm_triage.artefacts.manifests import is_docker, is_pods

    return is_docker(head) or is_pods(head)


FORMATS: tuple[Format, ...] = (
    Format(
        "prometheus",
        "prometheus",
        _asked("exposition", "#", "vllm", "ray_vllm", "HTTP/", "process_", "python_", "http_"),
    ),
    Format("api-answer", "answers", _asked("answers", "{", "data:")),
    Format(
        "curl",
        "transcripts",
        _asked("transcripts", "HTTP/", "* ", "Note: Unn"),
        is_log=True,
    ),
    Format("kubectl-describe", "pods", _asked("pods", "Name: "), is_log=True),
    Format(
        "collect-env",
        "collect_env",
        _asked("collect_env", "Collecting environment", "PyTorch version: ", "====="),
        is_log=True,
    ),
    Format("model-file", "model_files", _is_model_file),
    Format("vllm-bench", "benchmarks", is_benchmark),
    Format("nvidia-smi", "gpu_listings", is_nvidia_smi),
    Format("manifest", "manifests", _is_manifest, is_log=True),
    Format("environment", "environment", _is_long_environment, is_log=True),
    Format("environment", "environment", _is_environment),
)


def format_of(head: str) -> Format | None:
    """The artefact that a file is which begins with this text; None for a log."""
    text = head.lstrip("\ufeff \t\r\n").replace("\r\n", "\n")
    return next((one for one in FORMATS if one.fits(text)), None)
