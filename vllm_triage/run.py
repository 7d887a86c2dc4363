"""Run: the facts of one server run."""

from vllm_triage.arguments import Value
from vllm_triage.checkpoints import UNNAMED
from vllm_triage.echo_reader import EchoReader
from vllm_triage.echoes import Echo
from vllm_triage.kinds import Phase
from vllm_triage.meetings import Meeting
from vllm_triage.memory import Memory
from vllm_triage.model import RunInfo
from vllm_triage.platforms import Platform
from vllm_triage.releases import Release


class Run:
    """One server run while its log is being read."""

    def __init__(
        self, source: str, first_line: int, container: str | None = None, index: int = 0
    ) -> None:
        self.source = source
        self.first_line = first_line
        self.container = container
        self.release = Release()
        self.platform = Platform()
        self.meeting = Meeting()
        self.engine: str | None = None
        self.model: str | None = None
        self.arguments: dict[str, Value] = {}
        self.config: dict[str, Value] = {}
        self.echo: Echo | None = None
        self.echoes = EchoReader()
        self.visible_gpus: int | None = None
        self.interface: str | None = None
        self.all_arguments = False
        self.phase: Phase | None = None
        self.was_serving = False
        self.has_banner = False
        self.nccl_version: str | None = None
        self.memory = Memory()
        self.torch_version: str | None = None
        self.devices: int | None = None
        self.kv_cache_tokens: int | None = None
        self.first_seen: str | None = None
        self.last_seen: str | None = None
        self.last_answer = 0
        self.last_ready = 0
        self.lines = 0
        self.index = index
        self.observed: dict[str, str | float] = {}
        """What artefacts beside the log tell of it, by the names of facts."""

    @property
    def version(self) -> str | None:
        """The release, as printed or inferred."""
        return self.release.version

    @property
    def is_known(self) -> bool:
        """Whether anything told that it is one of vLLM."""
        return self.has_banner or self.model is not None or self.version is not None

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
