"""The taxonomy on one screen: what can break, how badly, and in which role."""

from enum import StrEnum


class Severity(StrEnum):
    """How much of the service is lost."""

    FATAL = "fatal"
    DEGRADED = "degraded"
    NOTICE = "notice"


class Role(StrEnum):
    """Where an incident stands in the story.

    A symptom is the root cause only when no cause explains it, a consequence only
    when the log shows nothing else.
    """

    CAUSE = "cause"
    SYMPTOM = "symptom"
    CONSEQUENCE = "consequence"


class Phase(StrEnum):
    """What a server was doing: before, while or after it accepted requests."""

    STARTUP = "startup"
    SERVING = "serving"
    SHUTDOWN = "shutdown"


class Confidence(StrEnum):
    """How sure the report is of a kind."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Risk(StrEnum):
    """What a fix step does to the system: look, change a setting, restart, destroy data."""

    READ = "read"
    CONFIG = "config"
    RESTART = "restart"
    DESTRUCTIVE = "destructive"


class Level(StrEnum):
    """The logging levels, lowest first."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """The position from 0 (debug) to 3 (error and above)."""
        return _LEVEL_RANK[self]


_LEVEL_RANK = {level: rank for rank, level in enumerate(Level)}


class Kind(StrEnum):
    """Every kind of incident, `area.kind`; each has a file `patterns/<area>/<kind>.toml`."""

    OOM_LOAD = "oom.load"
    OOM_INFERENCE = "oom.inference"
    OOM_QUANTIZED = "oom.quantized"
    OOM_KV_CACHE = "oom.kv_cache"
    OOM_HOST = "oom.host"
    PERFORMANCE_LOW_THROUGHPUT = "performance.low_throughput"
    PERFORMANCE_HIGH_TTFT = "performance.high_ttft"
    PERFORMANCE_SLOW_DECODE = "performance.slow_decode"
    PERFORMANCE_KV_CACHE_PRESSURE = "performance.kv_cache_pressure"
    LOADING_MODEL_NOT_FOUND = "loading.model_not_found"
    LOADING_GATED_MODEL = "loading.gated_model"
    LOADING_TRUST_REMOTE_CODE = "loading.trust_remote_code"
    LOADING_TOKENIZER_NOT_FOUND = "loading.tokenizer_not_found"
    LOADING_FLASH_ATTN_MISSING = "loading.flash_attn_missing"
    LOADING_UNSUPPORTED_ARCHITECTURE = "loading.unsupported_architecture"
    LOADING_WEIGHTS_INVALID = "loading.weights_invalid"
    LOADING_CONFIG_INVALID = "loading.config_invalid"
    LOADING_CONTEXT_LENGTH = "loading.context_length"
    LOADING_MISSING_DEPENDENCY = "loading.missing_dependency"
    NETWORK_CONNECTION_REFUSED = "network.connection_refused"
    NETWORK_PORT_IN_USE = "network.port_in_use"
    NETWORK_SLOW_RESPONSE = "network.slow_response"
    NETWORK_HUB_UNREACHABLE = "network.hub_unreachable"
    QUANTIZATION_FORMAT_UNSUPPORTED = "quantization.format_unsupported"
    QUANTIZATION_HARDWARE_UNSUPPORTED = "quantization.hardware_unsupported"
    QUANTIZATION_QUALITY = "quantization.quality"
    DISTRIBUTED_INIT_FAILED = "distributed.init_failed"
    DISTRIBUTED_NCCL_CUDA_ERROR = "distributed.nccl_cuda_error"
    DISTRIBUTED_NCCL_SYSTEM_ERROR = "distributed.nccl_system_error"
    DISTRIBUTED_NCCL_TIMEOUT = "distributed.nccl_timeout"
    DISTRIBUTED_PARALLEL_CONFIG = "distributed.parallel_config"
    DISTRIBUTED_RAY = "distributed.ray"
    DISTRIBUTED_KV_TRANSFER = "distributed.kv_transfer"
    GPU_CUDA_ERROR = "gpu.cuda_error"
    GPU_DRIVER = "gpu.driver"
    GPU_HARDWARE = "gpu.hardware"
    ENGINE_DEAD = "engine.dead"
    ENGINE_COMPILE_FAILED = "engine.compile_failed"
    ENGINE_CRASHED = "engine.crashed"
    ENGINE_UNRECOGNISED = "engine.unrecognised"
    CONFIG_INVALID_ARGUMENT = "config.invalid_argument"
    CONFIG_CHAT_TEMPLATE = "config.chat_template"
    REQUEST_TOO_LONG = "request.too_long"
    REQUEST_INVALID = "request.invalid"
    HOST_DISK_FULL = "host.disk_full"
    HOST_PERMISSION = "host.permission"
    HOST_TERMINATED = "host.terminated"

    @property
    def area(self) -> str:
        """The part before the dot, which is also the family of its facts."""
        return self.value.partition(".")[0]
