"""What a report is made of.

The library and the JSON contract have the same types, validated: `contract`.
"""

from typing import Literal

from vllm_triage.facts import AnyFacts
from vllm_triage.kinds import Confidence, Kind, Phase, Risk, Role, Severity
from vllm_triage.plain import Plain

SCHEMA_VERSION: Literal["1"] = "1"


class Source(Plain):
    """One input that was read."""

    name: str
    """The path as given, or `<stdin>`."""
    format: str = "plain"
    """The envelope of most lines: plain, docker, cri, journald, syslog, ndjson, compose, ..."""
    lines: int = 0
    """Physical lines read."""
    bytes: int = 0
    """Bytes read, after decompression."""
    truncated_lines: int = 0
    """Lines over the limit, of which only the beginning was read."""
    problem: str | None = None
    """One sentence when not all of it could be read."""


class RunInfo(Plain):
    """One run of a server, from its banner to its end."""

    vllm_version: str | None = None
    """The release as printed, else as inferred."""
    vllm_version_from: Literal["banner", "package", "image", "code"] | None = None
    """What tells it: the server, a package listing or wheel, an image's tag; `code` is inferred from code lines."""
    engine: Literal["v0", "v1"] | None = None
    """The engine generation."""
    model: str | None = None
    """The model's hub id or path."""
    arguments: dict[str, str | int | float | bool | list[str] | None]
    """The arguments that differ from the defaults, by their Python names."""
    command: str | None = None
    """The command that started it as the log shows it, else one with its arguments; secrets redacted."""
    phase: Phase | None = None
    """How far it came; None when the log does not show it."""
    nccl_version: str | None = None
    """As vLLM or torch's errors print it."""
    weights_bytes: int | None = None
    """What the weights took on one GPU, in bytes, as vLLM measured it."""
    torch_version: str | None = None
    """The release of torch."""
    devices: int | None = None
    """GPUs in use, as far as the log shows."""
    kv_cache_tokens: int | None = None
    """The size of the KV cache in tokens."""
    source: str | None = None
    """The input that holds its beginning."""
    first_line: int | None = None
    """The line of its beginning."""
    first_seen: str | None = None
    """The first time stamp, as printed."""
    last_seen: str | None = None
    """The last time stamp, as printed."""
    restarts: int = 0
    """How many runs with the same arguments followed this one."""


class Evidence(Plain):
    """A line that proves an incident."""

    source: str
    """The input."""
    line: int
    """The 1-based number of the physical line."""
    text: str
    """The line as printed, secrets redacted."""


class FixStep(Plain):
    """One rendered step."""

    number: int
    """From 1."""
    do: str
    """What to do."""
    command: str | None = None
    """A command for this run."""
    change: dict[str, str]
    """Flags that the step sets on the server's command."""
    why: str | None = None
    """Half a line: why."""
    risk: Risk = Risk.RESTART
    """What it does to the system."""
    holds_for: str | None = None
    """The vLLM releases that accept it; None for all."""
    documented: bool = False
    """Whether it is one of the documented steps."""
    documented_as: str | None = None
    """The documented command where it differs."""
    docs: str | None = None
    """An address with more about it."""


class MemoryBudget(Plain):
    """The memory of one GPU as the log gives it; what it does not state is None and left out of the JSON."""

    process: str | None = None
    """The worker whose numbers these are."""
    gpu_index: int | None = None
    """The GPU's index among the visible ones."""
    gpu_memory_utilization: float | None = None
    """The share of the GPU that vLLM may use, 0 to 1."""
    total_bytes: int | None = None
    """The GPU's capacity."""
    desired_bytes: int | None = None
    """Total times utilization: what vLLM may use."""
    weights_bytes: int | None = None
    """The model's weights."""
    activations_bytes: int | None = None
    """The peak of PyTorch's activations while profiling."""
    non_torch_bytes: int | None = None
    """What the process holds outside PyTorch, such as NCCL's buffers."""
    cuda_graphs_bytes: int | None = None
    """CUDA graphs, measured, else estimated."""
    kv_cache_bytes: int | None = None
    """What is left for the KV cache; negative when the rest already exceeds the share."""
    kv_cache_needed_bytes: int | None = None
    """The KV cache that one request of the full context needs."""
    other_processes_bytes: int | None = None
    """What other processes hold."""
    process_bytes: int | None = None
    """What this process held when it failed."""
    allocated_bytes: int | None = None
    """What PyTorch had allocated."""
    reserved_bytes: int | None = None
    """What PyTorch had reserved but not allocated."""
    requested_bytes: int | None = None
    """What the failing allocation asked for."""
    free_bytes: int | None = None
    """What was free when it failed."""


class Incident(Plain):
    """One thing that broke, with its proof and its remedy."""

    id: str
    """Stable for the same input."""
    kind: Kind
    """Which kind."""
    area: str
    """The kind's area."""
    severity: Severity
    """How much of the service is lost."""
    role: Role
    """Cause, symptom or consequence."""
    title: str
    """What broke, one line."""
    summary: str
    """What happened."""
    cause: str
    """Why it happens."""
    confidence: Confidence
    """How sure the kind is."""
    facts: AnyFacts
    """What the lines state."""
    memory: MemoryBudget | None
    """The GPU's memory, where the kind is about it and the log states at least two sizes."""
    cards: str | None = None
    """One sentence: which GPUs would hold the weights, where it matters and their size is known."""
    fix_steps: tuple[FixStep, ...]
    """What to do, in order."""
    suggested_command: str | None = None
    """The user's own command with the first change made."""
    evidence: tuple[Evidence, ...]
    """The lines; the first states the cause."""
    table: tuple[tuple[str, ...], ...] = ()
    """Values of several artefacts that are best seen beside each other; the first row holds the headings."""
    count: int = 1
    """How often it was printed, tracebacks that repeat it included."""
    first_seen: str | None = None
    """The first time stamp, as printed."""
    last_seen: str | None = None
    """The last time stamp, as printed."""
    processes: tuple[str, ...] = ()
    """The processes that printed it."""
    caused_by: str | None = None
    """The incident that explains this one."""
    patterns: tuple[str, ...] = ()
    """The patterns that matched, `area.kind:name`."""
    collect: tuple[str, ...] = ()
    """What to collect when the cause is not in the log."""
    verify: str | None = None
    """How to see that the remedy worked."""
    topics: tuple[str, ...] = ()
    """Reference pages for `vllm-triage explain`."""
    docs: tuple[str, ...] = ()
    """Addresses of documentation."""


class Update(Incident):
    """An incident as a stream tells it: at once, and again when there is more to say."""

    revision: int
    """1 the first time; a later one replaces those before it with the same `id`."""
    root_cause: str | None = None
    """The id of the incident that, as far as the stream shows, explains the rest."""
    withdrawn: bool = False
    """The stream went on in a way that shows that it was no incident."""


class Report(Plain):
    """The answer to one call."""

    schema_version: Literal["1"] = SCHEMA_VERSION
    """Raised when the shape changes."""
    tool_version: str
    """The release of vllm-triage."""
    sources: tuple[Source, ...]
    """What was read."""
    runs: tuple[RunInfo, ...]
    """The server runs that the logs show."""
    root_cause: str | None = None
    """The id of the incident that explains the rest."""
    incidents: tuple[Incident, ...]
    """All incidents, the root cause first."""

    @property
    def root(self) -> Incident | None:
        """The incident that `root_cause` names."""
        return next((item for item in self.incidents if item.id == self.root_cause), None)

    @property
    def worst(self) -> Severity | None:
        """The gravest severity among the incidents."""
        order = list(Severity)
        return min((item.severity for item in self.incidents), key=order.index, default=None)
