"""GPUs: what listings tell of each, put together from one sample or many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vllm_triage.artefacts.observations import Observation, Value
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

MAX_GPUS = 1_024
_MAX_SAMPLES = 100_000
_MAX_PROCESSES = 4_096
_MIB = 1024**2
_MAX_MIB = 1e9
_IN_USE_PCT = 10.0
# What a server's processes are called; a bare python may be one of them.
_OWN = expression(
    r"(?i)vllm|python|ray::|enginecore|worker_(?:tp|pp|dp)|torchrun|not found|insufficient"
)
_LEAST_FOREIGN = 512 * _MIB


@dataclass(slots=True)
class Process:
    """A program that uses a GPU."""

    pid: int
    name: str
    used_bytes: int
    line: Line


@dataclass(slots=True)
class Gpu:
    """What is told of one GPU."""

    index: str
    values: dict[str, Value] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    utilization: list[float] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    has_worked: bool = False
    sampled: int = 0
    used_mib: float = 0.0
    total_mib: float = 0.0
    processes: dict[int, Process] = field(default_factory=dict)

    def put(self, name: str, value: Value, line: Line) -> None:
        """Note a fact; what is told first holds."""
        if value != "":
            self.values.setdefault(name, value)
            self.lines.setdefault(name, line)

    def sample(self, utilization: float | None, line: Line, *, weight: int = 1) -> None:
        """Note the share of time in which it worked, 0 to 100, of one sample or the mean of several."""
        if utilization is None or not 0 <= utilization <= 100 or weight < 1:
            return
        if len(self.utilization) < _MAX_SAMPLES:
            self.utilization.append(utilization)
            self.weights.append(min(weight, _MAX_SAMPLES))
            if not self.has_worked:
                self.lines["gpu_utilization_pct"] = line
                self.has_worked = utilization > 0

    def memory(self, used_mib: float | None, total_mib: float | None, line: Line) -> None:
        """Note its memory; of several samples the fullest holds."""
        if total_mib is not None and 0 < total_mib < _MAX_MIB:
            self.total_mib = total_mib
        if used_mib is not None and 0 <= used_mib < _MAX_MIB:
            if used_mib >= self.used_mib:
                self.used_mib = used_mib
                self.lines["gpu_memory_used_pct"] = line
            self.lines.setdefault("gpu_memory_used_pct", line)

    def process(self, pid: int, name: str, used_mib: float | None, line: Line) -> None:
        """Note a program that computes on it."""
        if len(self.processes) < _MAX_PROCESSES and len(name) <= 300:
            used = used_mib if used_mib is not None and 0 <= used_mib < _MAX_MIB else 0.0
            self.processes[pid] = Process(pid, name, round(used * _MIB), line)

    @property
    def used_pct(self) -> float | None:
        """How full its memory is."""
        if not self.total_mib or "gpu_memory_used_pct" not in self.lines:
            return None
        return min(100.0, 100 * self.used_mib / self.total_mib)

    def busy(self) -> tuple[float, int] | None:
        """The mean of its utilization and of how many samples; idle time before and after is left out."""
        shares = list(zip(self.utilization, self.weights, strict=True))
        while shares and shares[-1][0] == 0:
            shares.pop()
        start = next((at for at, one in enumerate(shares) if one[0] > 0), 0)
        shares = shares[start:]
        count = sum(weight for _, weight in shares)
        return (sum(share * weight for share, weight in shares) / count, count) if count else None


class Listing:
    """The GPUs that one file tells of."""

    def __init__(self) -> None:
        self.gpus: dict[str, Gpu] = {}
        self.values: dict[str, Value] = {}
        self.lines: dict[str, Line] = {}

    def gpu(self, index: str, line: Line) -> Gpu:
        """The GPU of this index, or of this address where a listing names no index."""
        found = self.gpus.get(index)
        if found is None:
            found = Gpu(index, lines={"gpu_index": line})
            if len(self.gpus) < MAX_GPUS:
                self.gpus[index] = found
        return found

    def put(self, name: str, value: str, line: Line) -> None:
        """Note a fact of the whole machine."""
        if value and value not in ("N/A", "ERR!", "Not Found", "[N/A]"):
            self.values.setdefault(name, value)
            self.lines.setdefault(name, line)

    def observations(self) -> Iterator[Observation]:
        """One of each GPU, and one of what is told of the run."""
        for gpu in self.gpus.values():
            yield self._of(gpu)
        yield from self._run()

    def _of(self, gpu: Gpu) -> Observation:
        values: dict[str, Value] = dict(gpu.values)
        if gpu.index.isdecimal():
            values.setdefault("gpu_index", float(gpu.index))
        busy, used = gpu.busy(), gpu.used_pct
        if busy is not None:
            values["gpu_utilization_pct"], values["gpu_samples"] = (
                round(busy[0], 1),
                float(busy[1]),
            )
        if used is not None:
            values["gpu_memory_used_pct"] = round(used, 1)
        if gpu.total_mib:
            values["total_bytes"] = gpu.total_mib * _MIB
        return Observation("gpu", {**self.values, **values}, {**gpu.lines, **self.lines})

    def _run(self) -> Iterator[Observation]:
        gpus = list(self.gpus.values())
        values: dict[str, Value] = dict(self.values)
        lines = dict(self.lines)
        used = _in_use(gpus)
        _put_load(used, values, lines)
        names = {str(gpu.values["gpu_name"]) for gpu in gpus if "gpu_name" in gpu.values}
        if len(names) == 1 and "..." not in next(iter(names)):
            values["gpu_name"] = next(iter(names))
        slow = [gpu for gpu in used if "gpu_slowdown" in gpu.values]
        if slow:
            values["gpu_slowdown"] = slow[0].values["gpu_slowdown"]
            lines["gpu_slowdown"] = slow[0].lines["gpu_slowdown"]
        if gpus and all(gpu.index.isdecimal() for gpu in gpus):
            values["visible_gpus"] = float(len(gpus))
        foreign = _foreign(gpus)
        if foreign is not None:
            gpu, process = foreign
            size = f"{process.used_bytes / 1024**3:.1f} GiB"
            where = f" of GPU {gpu.index}" if gpu.index.isdecimal() else ""
            values["other_process"] = f"{process.name} (pid {process.pid}, {size}{where})"
            lines["other_process"] = process.line
        for gpu in gpus:
            for name, line in gpu.lines.items():
                lines.setdefault(name, line)
        if values and lines:
            yield Observation("run", values, lines)


def _in_use(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Those that a server's processes use; where none is named, those whose memory is in use."""
    own = [gpu for gpu in gpus if any(_OWN.search(one.name) for one in gpu.processes.values())]
    return own or [gpu for gpu in gpus if (gpu.used_pct or 0) >= _IN_USE_PCT] or gpus


def _put_load(used: Sequence[Gpu], values: dict[str, Value], lines: dict[str, Line]) -> None:
    busy = [(gpu, found) for gpu in used if (found := gpu.busy()) is not None]
    if busy:
        values["gpu_utilization_pct"] = round(sum(one[0] for _, one in busy) / len(busy), 1)
        values["gpu_samples"] = float(min(one[1] for _, one in busy))
        lines["gpu_utilization_pct"] = busy[0][0].lines["gpu_utilization_pct"]
    full = [gpu for gpu in used if gpu.used_pct is not None]
    if full:
        fullest = max(full, key=lambda gpu: gpu.used_pct or 0.0)
        values["gpu_memory_used_pct"] = round(fullest.used_pct or 0.0, 1)
        lines["gpu_memory_used_pct"] = fullest.lines["gpu_memory_used_pct"]


def _foreign(gpus: Sequence[Gpu]) -> tuple[Gpu, Process] | None:
    """The program that holds most of a GPU's memory and is none of the server's."""
    found = [
        (gpu, process)
        for gpu in gpus
        for process in gpu.processes.values()
        if process.used_bytes >= _LEAST_FOREIGN and not _OWN.search(process.name)
    ]
    return max(found, key=lambda pair: pair[1].used_bytes, default=None)
