"""Run: the facts of one server run."""

from dataclasses import dataclass, field

from vllm_triage.arguments import Value
from vllm_triage.checkpoints import UNNAMED
from vllm_triage.echoes import Echo, EchoReader
from vllm_triage.kinds import Phase
from vllm_triage.memory import Memory
from vllm_triage.model import RunInfo
from vllm_triage.releases import Release


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """One server run while its log is being read."""

    source: str
    first_line: int
    container: str | None = None
    release: Release = field(default_factory=Release)
    engine: str | None = None
    model: str | None = None
    arguments: dict[str, Value] = field(default_factory=dict)
    config: dict[str, Value] = field(default_factory=dict)
    echo: Echo | None = None
    echoes: EchoReader = field(default_factory=EchoReader)
    visible_gpus: int | None = None
    interface: str | None = None
    all_arguments: bool = False
    phase: Phase | None = None
    was_serving: bool = False
    has_banner: bool = False
    nccl_version: str | None = None
    memory: Memory = field(default_factory=Memory)
    torch_version: str | None = None
    devices: int | None = None
    kv_cache_tokens: int | None = None
    first_seen: str | None = None
    last_seen: str | None = None
    last_answer: int = 0
    last_ready: int = 0
    lines: int = 0
    index: int = 0
    observed: dict[str, str | float] = field(default_factory=dict)
    """What artefacts beside the log tell of it, by the names of facts."""

    @property
    def version(self) -> str | None:
        """The release, as printed or inferred."""
        return self.release.version

    @property
    def quantization(self) -> str | None:
        """The quantization method that the arguments, the engine's config or the checkpoint name."""
        for values in (self.arguments, self.config):
            value = values.get("quantization")
            if isinstance(value, str) and value not in ("None", ""):
                return value
        named = self.observed.get("model_method")
        return named if isinstance(named, str) and named != UNNAMED else None

    def info(self, restarts: int = 0) -> RunInfo:
        """The run as a report shows it."""
        engine = self.engine
        return RunInfo(
            vllm_version=self.version,
            vllm_version_from=self.release.version_from,
            engine="v0" if engine == "v0" else "v1" if engine == "v1" else None,
            model=self.model,
            arguments=dict(self.arguments),
            phase=self.phase,
            nccl_version=self.nccl_version,
            weights_bytes=self.memory.weights_bytes,
            torch_version=self.torch_version,
            devices=self.devices,
            kv_cache_tokens=self.kv_cache_tokens,
            source=self.source,
            first_line=self.first_line,
            first_seen=self.first_seen,
            last_seen=self.last_seen,
            restarts=restarts,
        )
