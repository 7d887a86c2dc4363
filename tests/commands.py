"""What a release would refuse in a command, or does not know in a text."""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import regex

from tests import releases
from tests.releases import ALL, VERSIONS, Releases, span
from vllm_triage.versions import parse

# Programs beside vLLM's own that a step may call. Those with releases are of packages that vLLM pins.
PROGRAMS: dict[str, str] = {
    **dict.fromkeys(("nvidia-smi", "nvcc", "dcgmi", "nvidia-bug-report.sh"), "NVIDIA's driver and toolkit"),
    **dict.fromkeys(("ibstat", "ibv_devinfo"), "InfiniBand's tools"),
    **dict.fromkeys(("cat", "cd", "df", "dirname", "du", "echo", "env", "export", "find", "free", "getent", "grep", "head",
                     "id", "ip", "ls", "rm", "sed", "sort", "tail", "tee", "watch", "eval"), "coreutils, procps or the shell"),
    **dict.fromkeys(("curl", "dmesg", "lscpu", "lsof", "nc", "pgrep", "ping", "ps", "sudo", "chown", "systemctl", "apt-get",
                     "ufw", "uptime", "journalctl"), "the operating system"),
    **dict.fromkeys(("kubectl", "docker", "podman", "sacct", "sbatch", "sinfo", "squeue"), "containers and schedulers"),
    **dict.fromkeys(("git", "gh", "pip", "python", "python3", "pytest", "pre-commit", "torchrun", "ray", "lm_eval",
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
    "HCCL_CONNECT_TIMEOUT": "Ascend's HCCL",
    "PYTHONFAULTHANDLER": "Python",
    **dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HTTPS_PROXY"), "OpenSSL, requests, every HTTP client"),
    **dict.fromkeys(("USER", "HOME", "LD_LIBRARY_PATH", "NO_COLOR"), "the shell and the loader"),
    "VLLM_TRIAGE_RULES": "this project", "_VLLM_TRIAGE_COMPLETE": "click's shell completion of this project",
}  # fmt: skip

# What the guide or a reader may look for and no release has: it may be named, never told to be used.
NEVER_EXISTED = frozenset(
    ("--disable-flash-attn", "--speculative-method", "--input-tokens", "--output-tokens", "NCCL_TIMEOUT")
)  # fmt: skip

# Flags of other programs that texts name.
_FOREIGN = frozenset(
    ("--mem", "--ipc", "--gpus", "--local-dir", "--time", "--rules", "--fail-on", "--no-redact", "--no-pager",
     "--format", "--all", "--apply-steps", "--vllm", "--prefix", "--color", "--no-deps", "--shm-size", "--FLAG", "--all-files")
)  # fmt: skip

_ASSIGNMENT = regex.compile(r"(\w+)=(.*)", regex.DOTALL)
_SUBSTITUTION = regex.compile(r"\$\(([^()]*)\)")
_REDIRECTION = regex.compile(r"\s\d?>>?\s?(?:&\d|\S+)")
_FLAG = regex.compile(r"-[-a-zA-Z]")
_STAND_IN = regex.compile(r"[A-Z][A-Z0-9_/-]*")
_METRIC = regex.compile(r"vllm:[a-z_]+")
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
    line, _, comment = _cut_comment(command)
    try:
        pieces = list(_simple(line))
    except ValueError as error:
        return (f"the shell cannot read it: {error}",)
    for words in pieces:
        out += _words(words, version)
    out += [f"{name}: not on /metrics" for name in _METRIC.findall(line) if version not in releases.metric(name)]  # fmt: skip
    out += _metrics_searched(pieces, version)
    if comment:
        told = comment.partition(": ")[2] or comment
        known = told.split(" ", 1)[0] in PROGRAMS
        out += faults(told, version) if known else text_faults(comment, frozenset((version,)))
    return tuple(out)


def _cut_comment(command: str) -> tuple[str, str, str]:
    found = regex.search(r"(?:^|\s)#\s", command)
    if found is None:
        return command, "", ""
    return command[: found.start()], "#", command[found.end() :]


def _simple(line: str) -> Iterator[list[str]]:
    """The simple commands of a shell line, `$(...)` among them."""
    for inner in _SUBSTITUTION.findall(line):
        yield from _simple(inner)
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
        while rest and (rest[0].startswith("-") or _ASSIGNMENT.fullmatch(rest[0]) or rest[0].isdigit()):
            word, *rest = rest
            if word == "-u":
                yield from _assigned(rest.pop(0), None, version)
            elif found := _ASSIGNMENT.fullmatch(word):
                yield from _assigned(found[1], found[2], version)
        if rest:
            yield from _words(rest, version)
    elif program == "vllm":
        yield from _vllm(rest, version)
    elif program in ("python", "python3") and rest[:2] == ["-m", _MODULE]:
        yield from _arguments("serve", rest[2:], version, models=0)
    elif program in ("docker", "podman") and (images := [word for word in rest if word.startswith(_IMAGE)]):
        at = rest.index(images[0])
        for flag, value in zip(rest[:at], rest[1:at], strict=False):
            if flag == "-e":
                name, _, text = value.partition("=")
                yield from _assigned(name, text or None, version)
        yield from _arguments("serve", rest[at + 1 :], version, models=0)
    elif program in _HUB:
        name = " ".join([program, *rest[:2]])
        held = _HUB.get(name, _HUB[program])
        if version not in held:
            yield f"{name}: not with this release's huggingface_hub"
    elif program not in PROGRAMS and not _STAND_IN.fullmatch(program):
        yield f"{program}: no known program"


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
) -> Iterator[str]:  # -> the number of words that are no value of it
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
    low, above, high = (releases.bounds(flag).get(name) for name in ("at_least", "above", "at_most"))
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
    for before, after in zip(pieces, pieces[1:], strict=False):
        if before[0] != "curl" or after[0] != "grep" or not any(word.endswith("/metrics") for word in before):
            continue
        if any(":9090/" in word for word in before):
            yield "9090 is Prometheus' own port"
        pattern = regex.compile(after[-1])
        if not any(pattern.search(name) for name in releases.metrics(version)):
            yield f"grep {after[-1]}: finds no metric"


# Texts

_TOKEN = regex.compile(
    r"(?<![\w./-])--[a-zA-Z][\w.-]*\w|\b(?:VLLM|NCCL|GLOO|CUDA|TORCH|PYTORCH|HF|UCX|HCCL)_[A-Z0-9_]*[A-Z0-9]\b|vllm:[a-z_]+"
)
_CODE = regex.compile(r"`([^`]+)`")
_RELEASE = r"(?:vLLM )?(0\.\d+(?:\.\d+){0,2}(?:\.post\d+)?)"
_CLAIM = regex.compile(
    rf"{_RELEASE}\s*(?:-|–|to)\s*{_RELEASE}|(?:until|through|up to|with|to) {_RELEASE}|(?:before|below|older than) {_RELEASE}"
    rf"|(?:from|since|in) {_RELEASE}|{_RELEASE}(?:\+| and later| or later| or newer)|<={_RELEASE}|>={_RELEASE}"
)  # fmt: skip
_SENTENCE = regex.compile(r"(?<=[.;!?|])\s+")
_AFTER = regex.compile(r"[`\"]*\s*\(?")
_BEFORE = regex.compile(r"[,:]?\s*[`(\"]*")
_CUDA_CODE = regex.compile(r"CUDA_(?:ERROR|R)_")


def text_faults(text: str, owner: Releases) -> tuple[str, ...]:
    """What a text names and some release of those that read it does not know.

    A release in the same sentence bounds the claim: right before or after the name to just
    these releases, elsewhere in the sentence to some release.
    """
    out: list[str] = []
    for sentence in _SENTENCE.split(text):
        claims = [(found.start(), found.end(), _claimed(found)) for found in _CLAIM.finditer(sentence)]  # fmt: skip
        for found in _TOKEN.finditer(sentence):
            if found[0] in NEVER_EXISTED or _CUDA_CODE.match(found[0]):
                continue
            held = _held(found[0])
            wanted = _adjacent(sentence, found.start(), found.end(), claims)
            if wanted is not None:
                missing = wanted - held
            elif claims:
                missing = frozenset() if held else ALL
            else:
                missing = owner - held
            if missing:
                out.append(f"{found[0]}: unknown in {_short(missing)}: {sentence!r}")
        for code in _CODE.findall(sentence):
            first = code.split(" ", 1)[0]
            if " " not in code or (first not in PROGRAMS and not _ASSIGNMENT.fullmatch(first)):
                continue
            wrong = {version: faults(code, version) for version in owner}
            bad = frozenset(version for version, found_ in wrong.items() if found_)
            if bad and (not claims or bad == owner):
                out.append(f"{code}: {next(one for one in wrong.values() if one)} in {_short(bad)}")
    return tuple(out)


def _held(token: str) -> Releases:
    if token.startswith("vllm:"):
        return releases.metric(token)
    if token.startswith("--"):
        base = token.partition(".")[0].partition("=")[0]
        if base in _FOREIGN:
            return ALL
        if base == "--model":
            return ALL
        return frozenset().union(
            *(releases.flags(one).get(base, frozenset()) for one in ("serve", "bench throughput", "bench serve"))
        )
    if token.startswith("VLLM_") and token not in VARIABLES:
        return releases.variable(token)
    return ALL if token in VARIABLES else frozenset()


def _claimed(found: regex.Match[str]) -> Releases:
    first, last, until, before, since, later, most, least = found.groups()
    if first:
        return span(first, last)
    if before:
        number = parse(before)
        return frozenset(one for one in VERSIONS if number and (parse(one) or number) < number)
    return span(since or later or least, until or most)


def _adjacent(
    sentence: str, start: int, end: int, claims: Iterable[tuple[int, int, Releases]]
) -> Releases | None:
    after = [held for first, _, held in claims if first >= end and _AFTER.fullmatch(sentence[end:first])]
    before = [held for _, last, held in claims if last <= start and _BEFORE.fullmatch(sentence[last:start])]
    return next(iter(after + before), None)


def _short(found: Releases) -> str:
    ordered = sorted(found, key=VERSIONS.index)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} ... {ordered[-1]} ({len(ordered)})"
