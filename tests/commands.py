"""What a release would refuse in a command."""

import json
import shlex
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from itertools import pairwise

import regex

from tests import releases
from tests.releases import span

# Programs beside vLLM's own that a step may call. Those with releases are of packages that vLLM pins.
PROGRAMS: dict[str, str] = {
    **dict.fromkeys(("nvidia-smi", "nvcc", "dcgmi", "nvidia-bug-report.sh"), "NVIDIA's driver and toolkit"),
    **dict.fromkeys(("ibstat", "ibv_devinfo"), "InfiniBand's tools"),
    **dict.fromkeys(("cat", "cd", "df", "dirname", "du", "echo", "env", "export", "find", "free", "getent", "grep", "head",
                     "id", "ip", "ls", "rm", "sed", "sort", "tail", "tee", "watch", "eval"), "coreutils, procps or the shell"),
    **dict.fromkeys(("curl", "dmesg", "lscpu", "lsof", "nc", "pgrep", "ping", "ps", "sudo", "chown", "reboot", "systemctl", "journalctl", "apt-get",
                     "ufw", "update-ca-certificates"), "the operating system"),
    **dict.fromkeys(("kubectl", "docker", "podman", "sacct", "sbatch", "scontrol", "sinfo", "squeue"), "containers and schedulers"),
    **dict.fromkeys(("aws", "gcloud"), "the command lines of buckets that models lie in"),
    **dict.fromkeys(("git", "gh", "pip", "python", "python3", "pytest", "coverage", "pre-commit", "torchrun", "ray", "lm_eval", "jq",
                     "py-spy"), "development and Python packages"),
    "fresh/bin/pip": "a fresh environment's pip", ".venv/bin/pip": "this project's environment",
    ".venv/bin/python": "this project's environment", ".venv/bin/pytest": "this project's environment",
    ".venv/bin/pre-commit": "this project's environment", ".venv/bin/vllm-triage": "this project",
    ".ci/run": "this project", "vllm-triage": "this project", "vllm": "vLLM", "hf": "huggingface_hub",
    "huggingface-cli": "huggingface_hub",
}  # fmt: skip

# The hub's programs, by the huggingface_hub that a release's transformers asks for: `hf` came with
# 0.34 (transformers 4.55), `huggingface-cli` and `hf cache delete` stopped working with 1.0 (transformers 5).
_HUB = {
    "huggingface-cli": span(None, "0.23.0"),
    "hf": span("0.10.2", None),
    "hf cache delete": span("0.10.2", "0.23.0"),
    "hf cache ls": span("0.24.0", None),
    "hf cache rm": span("0.24.0", None),
}

# Variables that are not vLLM's own, with who reads them. `NCCL_TIMEOUT` is read by nobody.
VARIABLES: dict[str, str] = {
    **dict.fromkeys(("NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_P2P_DISABLE",
                     "NCCL_NVLS_ENABLE"), "NCCL 2.18 - 2.30: its library names it"),
    "GLOO_SOCKET_IFNAME": "torch's Gloo back end",
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING"), "the CUDA driver"),
    **dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF",), "torch's allocator, named in its own hint from 2.1 on"),
    "TORCHINDUCTOR_CACHE_DIR": "torch's inductor",
    **dict.fromkeys(("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"), "torch.distributed's env:// rendezvous"),
    **dict.fromkeys(("HF_HOME", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"), "huggingface_hub"),
    "TRANSFORMERS_OFFLINE": "transformers",
    "TIKTOKEN_ENCODINGS_BASE": "openai-harmony, which gpt-oss models need",
    **dict.fromkeys(("UCX_TLS", "UCX_NET_DEVICES"), "UCX"),
    **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
                     "AWS_EC2_METADATA_DISABLED"), "AWS's libraries"),
    **dict.fromkeys(("RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING", "RUNAI_STREAMER_LOG_TO_STDERR", "RUNAI_STREAMER_LOG_LEVEL"),
                    "Run:ai's model streamer, its page on environment variables"),
    "HCCL_CONNECT_TIMEOUT": "Ascend's HCCL",
    "PYTHONFAULTHANDLER": "Python",
    "HYPOTHESIS_PROFILE": "this project's tests",
    **dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HTTPS_PROXY"), "OpenSSL, requests, every HTTP client"),
    **dict.fromkeys(("USER", "HOME", "LD_LIBRARY_PATH", "NO_COLOR"), "the shell and the loader"),
    "VLLM_TRIAGE_RULES": "this project", "VLLM_TRIAGE_NO_CACHE": "this project", "_VLLM_TRIAGE_COMPLETE": "click's shell completion of this project",
}  # fmt: skip

_ASSIGNMENT = regex.compile(r"(\w+)=(.*)", regex.DOTALL)
_SUBSTITUTION = regex.compile(r"\$\(([^()]*)\)")
_REDIRECTION = regex.compile(r"\s\d?>>?\s?(?:&\d|\S+)")
_FLAG = regex.compile(r"-[-a-zA-Z]")
_STAND_IN = regex.compile(r"[A-Z][A-Z0-9_/-]*")
_METRIC = regex.compile(r"vllm:[a-z0-9_]+")
_NUMBER_WITH_UNIT = regex.compile(r"\d+(?:\.\d+)?[kKmMgGtT]")
_IMAGE = "vllm/vllm-openai"
_MODULE = "vllm.entrypoints.openai.api_server"
_VERSION_FLAG = span("0.6.6", None)
_HELP_TOPIC = span("0.9.2", None)
_AUTO_LENGTH = span("0.14.1", None)
_LENGTH_WITH_UNIT = span("0.8.5", None)
_DOTTED = span("0.9.0", None)

# The keys of JSON values, where a wrong one is refused.
_KEYS = {
    "--speculative-config": frozenset(
        ("model", "method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min", "draft_tensor_parallel_size")
    ),
    "--kv-transfer-config": frozenset(
        ("kv_connector", "kv_role", "kv_rank", "kv_parallel_size", "kv_buffer_size", "kv_ip", "kv_port", "engine_id", "kv_connector_extra_config")
    ),
    "--limit-mm-per-prompt": frozenset(("image", "video", "audio")),
}  # fmt: skip


@cache
def faults(command: str, version: str) -> tuple[str, ...]:
    """What a release would refuse or ignore in a shell command; nothing when it is right."""
    out: list[str] = []
    line, comment = with_comment(command)
    try:
        pieces = list(simple_commands(line))
    except ValueError as error:
        return (f"the shell cannot read it: {error}",)
    for words in pieces:
        out += _words(words, version)
    out += [f"{name}: not on /metrics" for name in _METRIC.findall(line) if version not in releases.metric(name)]  # fmt: skip
    out += _metrics_searched(pieces, version)
    told = comment.partition(": ")[2]
    if told.split(" ", 1)[0] in PROGRAMS:
        out += faults(told, version)
    return tuple(out)


def with_comment(command: str) -> tuple[str, str]:
    """The shell's part of a command and what its comment tells."""
    found = regex.search(r"(?:^|\s)#\s", command)
    return (command, "") if found is None else (command[: found.start()], command[found.end() :])


def simple_commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a shell line, `$(...)` among them."""
    for inner in _SUBSTITUTION.findall(line):
        yield from simple_commands(inner)
    words: list[str] = []
    plain = _REDIRECTION.sub(" ", _SUBSTITUTION.sub("WORD", line.replace("\\\n", " ")))
    for row in plain.split("\n"):
        lexer = shlex.shlex(row, posix=True, punctuation_chars=";|&()<>")
        lexer.whitespace_split = True
        lexer.commenters = ""
        for word in lexer:
            if not word.strip(";|&()<>"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)
        if words:
            yield words
        words = []


def _words(words: Sequence[str], version: str) -> Iterator[str]:
    rest = list(words)
    while rest and (found := _ASSIGNMENT.fullmatch(rest[0])):
        yield from _assigned(found[1], found[2], version)
        rest = rest[1:]
    if not rest:
        return
    program, *rest = rest
    if program in ("env", "export", "sudo", "watch"):
        yield from _prefixed(rest, version)
    elif program == "vllm":
        yield from _vllm(rest, version)
    elif program in ("python", "python3") and rest[:2] == ["-m", _MODULE]:
        yield from _arguments("serve", rest[2:], version, models=0)
    elif program in ("docker", "podman"):
        yield from _container(rest, version)
    elif program in _HUB:
        name = " ".join([program, *rest[:2]])
        if version not in _HUB.get(name, _HUB[program]):
            yield f"{name}: not with this release's huggingface_hub"
    elif program not in PROGRAMS and not _STAND_IN.fullmatch(program):
        yield f"{program}: no known program"


def _prefixed(words: Sequence[str], version: str) -> Iterator[str]:
    """What stands after `env`, `export`, `sudo` and `watch`."""
    rest = list(words)
    while rest:
        found = _ASSIGNMENT.fullmatch(rest[0])
        if found is None and not rest[0].startswith("-") and not rest[0].isdigit():
            yield from _words(rest, version)
            return
        word, *rest = rest
        if word == "-u" and rest:
            yield from _assigned(rest.pop(0), None, version)
        elif found is not None:
            yield from _assigned(found[1], found[2], version)


def _container(words: Sequence[str], version: str) -> Iterator[str]:
    """`docker run [options] vllm/vllm-openai[:tag] [vLLM's arguments]`."""
    at = next((index for index, word in enumerate(words) if word.startswith(_IMAGE)), None)
    if at is None:
        return
    for flag, value in pairwise(words[:at]):
        if flag == "-e":
            name, _, text = value.partition("=")
            yield from _assigned(name, text or None, version)
    yield from _arguments("serve", words[at + 1 :], version, models=0)


def _assigned(name: str, value: str | None, version: str) -> Iterator[str]:
    if name.startswith("VLLM_") and name not in VARIABLES:
        if version not in releases.variable(name):
            yield f"{name}: not read"
            return
        allowed = releases.variable_choices(name, version)
        if value and allowed is not None and value not in allowed:
            yield f"{name}={value}: not one of {sorted(allowed)}"
    elif name not in VARIABLES:
        yield f"{name}: read by nobody that is known"


def _vllm(words: Sequence[str], version: str) -> Iterator[str]:
    if not words or version not in releases.subcommand("serve"):
        yield "vllm: no such command"
        return
    if words[0] in ("--version", "-v"):
        if version not in _VERSION_FLAG:
            yield "vllm --version: not known"
        return
    command = " ".join(words[:2]) if words[0] == "bench" else words[0]
    if version not in releases.subcommand(command):
        yield f"vllm {command}: no such subcommand"
        return
    rest = words[len(command.split()) :]
    if releases.flags(command):
        yield from _arguments(command, rest, version, models=1 if command == "serve" else 0)


def _arguments(command: str, words: Sequence[str], version: str, *, models: int) -> Iterator[str]:
    if words and (words[0] == "--help" or words[0].startswith("--help=")):
        if "=" in words[0] and version not in _HELP_TOPIC:
            yield "--help=WORD: not known"
        return
    loose = 0
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-"):
            loose += 1
            continue
        flag, equals, value = word.partition("=")
        values = [value] if equals else []
        while not equals and index < len(words) and not _FLAG.match(words[index]):
            values.append(words[index])
            index += 1
        if not flag.startswith("--"):
            flag, held = releases.short_flags(command).get(flag, (flag, frozenset()))
            if version not in held:
                yield f"{flag}: not accepted"
                continue
        left = yield from _flag(command, flag, values, version)
        loose += left
    if loose != models:
        yield f"{loose} words without a flag, expected {models}"


def _flag(
    command: str, flag: str, values: Sequence[str], version: str
) -> Generator[str, None, int]:
    """The faults of one flag; the number of words after it that are no value of it."""
    base, dot, _ = flag.partition(".")
    known = releases.flags(command)
    if flag == "--FLAG":
        return 0
    model = base == "--model" and command == "serve"
    if version not in known.get(base, frozenset()) and not model:
        yield f"{flag}: not accepted"
        return len(values)
    sort = releases.sort_of(command, base)
    if dot:
        if sort != "json" or version not in _DOTTED:
            yield f"{flag}: takes no dotted key"
        return max(0, len(values) - 1)
    if sort == "switch" or base.startswith("--no-"):
        return len(values)
    if not values:
        yield f"{flag}: needs a value"
        return 0
    used = values if sort == "list" else values[:1]
    for value in used:
        yield from _value(command, base, sort, value, version)
    return len(values) - len(used)


def _value(command: str, flag: str, sort: str, value: str, version: str) -> Iterator[str]:
    if sort == "json" or (flag == "--limit-mm-per-prompt" and value.startswith("{")):
        yield from _json(flag, value)
        return
    allowed = releases.choices(command, flag, version)
    if allowed and value not in allowed:
        yield f"{flag} {value}: not one of {sorted(allowed)}"
    if sort not in ("int", "float"):
        return
    if flag == "--max-model-len":
        if value in ("auto", "-1") and version in _AUTO_LENGTH:
            return
        if _NUMBER_WITH_UNIT.fullmatch(value) and version in _LENGTH_WITH_UNIT:
            return
    try:
        number = int(value) if sort == "int" else float(value)
    except ValueError:
        yield f"{flag} {value}: not a number"
        return
    low, above, high = (
        releases.bounds(flag).get(name) for name in ("at_least", "above", "at_most")
    )
    if (
        (low is not None and number < low)
        or (above is not None and number <= above)
        or (high is not None and number > high)
    ):
        yield f"{flag} {value}: out of range"


def _json(flag: str, value: str) -> Iterator[str]:
    try:
        found = json.loads(regex.sub(r": VALUE\b", ": 0", value))
    except json.JSONDecodeError as error:
        yield f"{flag} {value}: not JSON: {error}"
        return
    if flag in _KEYS and set(found) - _KEYS[flag]:
        yield f"{flag}: unknown keys {sorted(set(found) - _KEYS[flag])}"


def _metrics_searched(pieces: Sequence[Sequence[str]], version: str) -> Iterator[str]:
    """A search of /metrics must find one."""
    for before, after in pairwise(pieces):
        if (
            before[0] != "curl"
            or after[0] != "grep"
            or not any(word.endswith("/metrics") for word in before)
        ):
            continue
        if any(":9090/" in word for word in before):
            yield "9090 is Prometheus' own port"
        pattern = regex.compile(after[-1])
        if not any(pattern.search(name) for name in releases.metrics(version)):
            yield f"grep {after[-1]}: finds no metric"
