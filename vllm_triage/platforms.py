"""Platforms: the pod, the scheduler and the make of GPU that a server runs on, as its log tells beside its own lines."""

from collections.abc import Iterable
from typing import NamedTuple

from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_FIELD = expression(
    rf"(Name|Namespace|Controlled By): {{1,40}}((?:[A-Za-z]{{1,40}}/)?{_NAME})\s*$"
)
# Hashes have no vowels and none of 0, 1 and 3: `vllm-7d9f6c5b8-x2x4q`.
_OF_DEPLOYMENT = expression(
    r"(.{1,230})-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}"
)
_HASH = expression(r"-[bcdfghjklmnpqrstvwxz2456789]{6,10}$")
_SCALABLE = ("Deployment", "StatefulSet", "DaemonSet")

# Kubelet's events and log.
_NAMED = (
    expression(rf"\bin pod (?P<pod>{_NAME})_(?P<namespace>{_NAME})(?:\(|\s|$)"),
    expression(rf"\bpod=\"(?P<namespace>{_NAME})/(?P<pod>{_NAME})\""),
    expression(rf"(?<![\w./-])pod/(?P<pod>{_NAME})\s"),
)
# kubectl logs --prefix, stern and shippers' records: the pod and its container.
_CONTAINER = expression(rf"(?P<pod>{_NAME})/[a-z0-9-]{{1,63}}")
# What kubelet calls the files: NAMESPACE_POD_UID/CONTAINER/0.log and POD_NAMESPACE_CONTAINER-ID.log.
_FILES = (
    expression(rf"(?:^|/)(?P<namespace>{_NAME})_(?P<pod>{_NAME})_[0-9a-f-]{{32,36}}/"),
    expression(rf"(?:^|/)(?P<pod>{_NAME})_(?P<namespace>{_NAME})_{_NAME}-[0-9a-f]{{64}}\.log"),
)
_SLURM_FILE = expression(r"(?:^|/)slurm-\d{1,12}(?:_\d{1,9})?\.out(?:\.\w{1,4})?$")
_SLURM_LINE = expression(r"\s{0,80}(?:srun|slurmstepd|salloc|sbatch): ")
# docker compose logs.
_COMPOSE_LINE = expression(r"[a-z0-9][\w.-]{0,80} +\| ")
# The makes of accelerator that are not NVIDIA's, by what an incident's own lines say.
_MAKES = {
    "amd": expression(
        r"\bHIP (?:out of memory|error)|\bhip[A-Z]\w{2,40}|/rocm|\+rocm\d|\brocBLAS\b|\bamdgpu\b"
    ),
    "tpu": expression(r"\bTPU (?:initialization|is already)|XLA:TPU|_HBM\d\)|/dev/accel\d"),
    "intel": expression(r"\b(?:UR_RESULT|ZE_RESULT|PI)_ERROR_|\bUR error$|\(Intel\(R\) "),
    "gaudi": expression(r"\bsynStatus\b|MODULE:PT_|\bhabana"),
    "ascend": expression(
        r"\bNPU (?:out of memory|function error)|\btorch_npu\b|\bHccl[A-Z]|\bE[A-Z]\d{4}: "
    ),
}

SIGNS = (
    "Name: ", "Namespace: ", "Controlled By: ", "Containers:", "srun: ", "slurmstepd: ", "salloc: ", "sbatch: ",
    "#SBATCH ", "SLURM_", "export SLURM_", "ROCM used to build PyTorch: ", "GPU models and configuration: ", "GPU 0: AMD ",
)  # fmt: skip
"""How the lines begin of which one is to be told to a platform."""
CONTAINER_TOOLS = ("docker", "podman", "nerdctl")
DETECTED = "detected platform "
_DETECTED = expression(r"detected platform (rocm|xpu|tpu|hpu|npu|ascend)\b")
_MAKE_OF = {"rocm": "amd", "xpu": "intel", "hpu": "gaudi", "npu": "ascend"}


class Pod(NamedTuple):
    """A pod, where it is, and what keeps it running, as `deployment/vllm`; without a name what makes it."""

    name: str
    namespace: str = ""
    workload: str | None = None


def pod(name: str, namespace: str = "", owner: str = "") -> Pod:
    """A pod with what its name and its owner, `ReplicaSet/vllm-7d9f6c5b8`, tell of what keeps it running."""
    kind, _, owner_name = owner.partition("/")
    if kind == "ReplicaSet" and _HASH.search(owner_name):
        return Pod(name, namespace, f"deployment/{_HASH.sub('', owner_name)}")
    if owner:
        return Pod(name, namespace, f"{kind.lower()}/{owner_name}" if kind in _SCALABLE else None)
    made = _OF_DEPLOYMENT.fullmatch(name)
    return Pod(name, namespace, f"deployment/{made[1]}" if made else None)


class Platform:
    """What the lines of one input say of where it runs, beside the other inputs of the call."""

    def __init__(self, every: "Platform | None" = None) -> None:
        self._pods: dict[str, Pod] = {}
        self._is_slurm = False
        self._make: str | None = None
        self._described: dict[str, str] = {}
        self._every = every

    @property
    def pod(self) -> Pod | None:
        """The pod that is described, by any input if this one describes none; None of several."""
        if not self._pods and self._every is not None:
            return self._every.pod
        return next(iter(self._pods.values())) if len(self._pods) == 1 else None

    @property
    def is_slurm(self) -> bool:
        """Whether any input shows a job of Slurm's."""
        return self._is_slurm or (self._every is not None and self._every.is_slurm)

    @property
    def make(self) -> str | None:
        """Whose accelerators any input shows, where they are not NVIDIA's."""
        return self._make or (self._every.make if self._every is not None else None)

    def add(self, found: Pod) -> None:
        """Take a pod that is described."""
        self._pods[found.name or found.workload or ""] = found
        if self._every is not None:
            self._every.add(found)

    def detect(self, text: str) -> None:
        """Take whose accelerators a line with `DETECTED` in it names."""
        found = _DETECTED.search(text)
        if found is not None:
            self._detect(_MAKE_OF.get(found[1], found[1]))

    def _detect(self, make: str) -> None:
        self._make = make
        if self._every is not None:
            self._every._detect(make)

    def feed(self, text: str) -> None:
        """Take a line that begins with one of the `SIGNS`."""
        if text.startswith(("Name", "Controlled", "Containers")):
            self._describe(text)
        elif text.startswith(("GPU", "ROCM")):
            if "AMD " in text[:60] or text[28:29].isdigit():
                self._detect("amd")
        else:
            self._is_slurm = True
            if self._every is not None:
                self._every.feed(text)

    def _describe(self, text: str) -> None:
        """A line of `kubectl describe pod`; nothing else that is described has its containers unindented."""
        found = _FIELD.match(text)
        if found is not None:
            if found[1] == "Name":
                self._described.clear()
            self._described[found[1]] = found[2]
        elif text.startswith("Containers:") and {"Name", "Namespace"} <= self._described.keys():
            known = self._described
            self.add(pod(known["Name"], known["Namespace"], known.get("Controlled By", "")))


def values(
    platform: Platform | None, lines: Iterable[Line], starter: str | None = None
) -> dict[str, str]:
    """What placeholders and conditions may take of a platform, and of an incident's own lines.

    `starter` is the program that the log shows starting the server, such as `docker`.
    `pod` and `workload` are followed by their namespace, as kubectl takes them.
    """
    shown = list(lines)
    found = next(filter(None, map(_named, shown)), None)
    known = platform.pod if platform is not None else None
    if found is None or (known is not None and known.name == found.name):
        found = known or found
    out: dict[str, str] = {}
    if found is not None:
        place = f" -n {found.namespace}" if found.namespace else ""
        out["scheduler"] = "kubernetes"
        if found.namespace:
            out["namespace"] = found.namespace
        if found.name:
            out["pod"] = found.name + place
        if found.workload:
            out["workload"] = found.workload + place
    elif (platform is not None and platform.is_slurm) or any(map(_is_of_slurm, shown)):
        out["scheduler"] = "slurm"
    elif starter in CONTAINER_TOOLS or any(_COMPOSE_LINE.match(line.raw) for line in shown):
        out["scheduler"] = "docker"
    make = (platform.make if platform is not None else None) or _make(shown)
    if make:
        out["gpu_make"] = make
    return out


def _make(lines: list[Line]) -> str | None:
    """The make that an incident's own lines show."""
    return next(
        (name for name, sign in _MAKES.items() if any(sign.search(line.raw) for line in lines)),
        None,
    )


def _named(line: Line) -> Pod | None:
    """The pod that a line, what it is wrapped in or the name of its file names."""
    found = next(filter(None, (one.search(line.raw[:4000]) for one in _NAMED)), None)
    found = found or next(filter(None, (one.search(line.source) for one in _FILES)), None)
    found = found or _CONTAINER.fullmatch(line.container or "")
    if found is None:
        return None
    return pod(found["pod"], found.groupdict().get("namespace") or "")


def _is_of_slurm(line: Line) -> bool:
    return bool(_SLURM_FILE.search(line.source) or _SLURM_LINE.match(line.raw))
