"""Messages that vLLM and its libraries print, filled in and printed as their release prints them."""

import json
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

import regex

from tests.conftest import FIXTURES
from vllm_triage.versions import parse

_FOLDER = FIXTURES / "vllm"
_PLACEHOLDER = regex.compile(r"\{((?:[^{}]|\{[^{}]*\})*)\}")
_SITE = "/usr/local/lib/python3.12/dist-packages/"


class Message(NamedTuple):
    """A message's template; what stands in braces is the expression that fills it."""

    kind: str
    template: str
    file: str
    level: str
    exception: str | None
    last: str
    tier: str
    package: str
    where: str | None


class Review(NamedTuple):
    """Why messages are not what their label says: globs over the template, the file and the level."""

    area: str
    kind: str
    reason: str
    template: str
    file: str
    level: str
    labels: tuple[str, ...]
    tiers: tuple[str, ...]

    def covers(self, message: Message) -> bool:
        """Tell whether the review is about a message."""
        return (
            self.area in ("any", message.kind.partition(".")[0])
            and fnmatchcase(message.template, self.template)
            and fnmatchcase(message.file, self.file)
            and fnmatchcase(message.level, self.level)
            and (not self.labels or message.kind in self.labels)
            and (not self.tiers or message.tier in self.tiers)
        )


@cache
def messages() -> tuple[Message, ...]:
    """Every template of vLLM, tiers 1 and 2, and of the libraries (`upstream`)."""
    return (*_read("messages.jsonl"), *_read("upstream_messages.jsonl"))


def _read(name: str) -> Iterator[Message]:
    for row in (_FOLDER / name).read_text("utf-8").splitlines():
        one = json.loads(row)
        tier = one.get("tier")
        yield Message(
            one["kind"],
            one["template"],
            one["file"],
            one["level"],
            one.get("exception"),
            one["last"],
            f"tier {tier}" if tier else "upstream",
            one.get("package", "vllm"),
            one.get("where"),
        )


@cache
def reviews() -> tuple[Review, ...]:
    """The reviewed messages in the order in which they are looked up, `any.toml` last."""
    found = sorted(
        (_FOLDER / "reviewed").glob("*.toml"), key=lambda path: (path.stem == "any", path)
    )
    return tuple(
        Review(
            path.stem,
            one["kind"],
            one["reason"],
            one.get("template", "*"),
            one.get("file", "*"),
            one.get("level", "*"),
            tuple(one.get("labels", ())),
            tuple(one.get("tiers", ())),
        )
        for path in found
        for one in tomllib.loads(path.read_text("utf-8")).get("reviewed", ())
    )


# What an expression's name says about its value; the first that is found in it.
_VALUES = (
    ("__name__", "LlamaForCausalLM"), ("dtype", "torch.float16"), ("url", "https://huggingface.co/api/models/org/model"),
    ("status_code", "503"), ("supported", "['auto', 'hf']"), ("missing", "['lm_head.weight']"), ("shape", "torch.Size([4096, 128])"),
    ("capability", "75"), ("quant", "awq"), ("path", "/models/model"), ("file", "/models/model/config.json"), ("dir", "/models/model"),
    ("arch", "LlamaForCausalLM"), ("host", "10.0.0.5"), ("addr", "10.0.0.5:29500"), ("port", "29500"), ("name", "model-a"),
    ("model", "org/model"), ("repo", "org/model"), ("method", "awq"), ("backend", "FLASHINFER"), ("task", "embed"), ("modality", "image"),
    ("device", "cuda:0"), ("template", "chat.jinja"), ("memory", "12.50"), ("size", "8"), ("len", "4096"), ("num", "7"), ("count", "3"),
    ("rank", "1"), ("max", "2048"), ("min", "2"), ("bytes", "1024"), ("tokens", "4096"), ("timeout", "600"), ("id", "3"), ("idx", "3"),
    ("index", "3"), ("total", "16"), ("version", "2.1"), ("utilization", "0.9"),
)  # fmt: skip
_TEXTS = {"n": "12", "i": "0", "k": "k", "v": "7", "e": "something went wrong", "err": "something went wrong", "text": "No route to host"}  # fmt: skip


def _value(expression: str) -> str:
    short = expression.strip()
    if short in _TEXTS:
        return _TEXTS[short]
    lower = short.lower()
    return next((value for word, value in _VALUES if word in lower), "x")


def filled(template: str) -> str:
    """The template with plausible values."""
    return _PLACEHOLDER.sub(lambda found: _value(found[1]), template)


# Who calls into a file, by its place: (globs, process, what the server logs first, frames).
_Frames = tuple[tuple[str, str], ...]
_SERVING: _Frames = (
    ("vllm/entrypoints/openai/api_server.py", "create_chat_completion"),
    ("vllm/entrypoints/openai/serving_chat.py", "create_chat_completion"),
)
_STARTING: _Frames = (
    ("vllm/entrypoints/cli/main.py", "main"),
    ("vllm/entrypoints/openai/api_server.py", "run_server"),
    ("vllm/engine/arg_utils.py", "create_engine_config"),
)
_ENGINE: _Frames = (
    ("vllm/v1/engine/core.py", "run_engine_core"),
    ("vllm/v1/executor/uniproc_executor.py", "_init_executor"),
    ("vllm/v1/worker/gpu_worker.py", "load_model"),
)
_REQUEST_FILES = (
    "vllm/sampling_params.py", "vllm/pooling_params.py", "vllm/inputs/*", "vllm/renderers/*", "vllm/multimodal/*",
    "vllm/entrypoints/openai/*serving*", "vllm/entrypoints/openai/*protocol*", "vllm/entrypoints/*serving*", "vllm/entrypoints/*protocol*",
    "vllm/entrypoints/pooling/*", "vllm/entrypoints/serve/*", "vllm/entrypoints/anthropic/*", "vllm/entrypoints/speech_to_text/*",
    "vllm/entrypoints/chat_utils.py", "vllm/entrypoints/utils.py", "vllm/entrypoints/renderer.py", "vllm/entrypoints/generate/*",
    "vllm/v1/engine/*processor.py", "vllm/v1/structured_output/*", "vllm/model_executor/guided_decoding/*", "vllm/tool_parsers/*",
    "vllm/reasoning/*", "vllm/outputs.py", "vllm/logits_process.py", "vllm/model_executor/guided_decoding.py", "vllm/entrypoints/openai/tool_parsers/*", "vllm/v1/sample/*", "vllm/entrypoints/openai/speech_to_text*",
)  # fmt: skip
_START_FILES = (
    "vllm/config*", "vllm/engine/arg_utils.py", "vllm/entrypoints/*cli*", "vllm/entrypoints/launchers/*", "vllm/envs.py",
    "vllm/platforms/*", "vllm/transformers_utils/*", "vllm/utils*", "vllm/logger.py", "vllm/profiler/*", "vllm/tokenizers/*",
)  # fmt: skip


def _caller(file: str) -> tuple[str, _Frames]:
    if any(fnmatchcase(file, glob) for glob in _REQUEST_FILES):
        return "APIServer", _SERVING
    if any(fnmatchcase(file, glob) for glob in _START_FILES) or file.startswith(
        ("transformers/", "huggingface_hub/", "vllm/entrypoints/")
    ):
        return "APIServer", _STARTING
    return "EngineCore_DP0", _ENGINE


def _prefix(release: str, process: str, level: str, file: str) -> str:
    version = parse(release) or (0, 0, 0)
    name = file.rpartition("/")[2]
    if version < (0, 7, 0):
        return f"{level} 05-01 10:00:00 {name}:12] "
    head = f"{level} 05-01 10:00:00 [{name}:12] "
    return head if version < (0, 10, 0) else f"({process} pid=4321) {head}"


def printed(message: Message) -> list[str]:
    """The lines of a log in which the message stands, in the form of the last release that has it."""
    text = filled(message.template)
    if message.package != "vllm":
        return _foreign(message, text)
    process, frames = _caller(message.file)
    if message.where == "http_response":
        body = {"error": {"message": text, "type": "BadRequestError", "param": None, "code": 400}}
        return [f"openai.BadRequestError: Error code: 400 - {body}"]
    if message.where == "warnings.warn":
        return [f"{_SITE}{message.file}:12: {message.exception}: {text}", "  warnings.warn("]
    prefix = _prefix(message.last, process, message.level, message.file)
    if message.exception is None:
        return [prefix + row for row in text.split("\n")]
    head = "EngineCore failed to start." if process != "APIServer" else None
    if frames is _SERVING:
        head = "Error in preprocessing prompt inputs"
    out = [f"{prefix}{head}"] if head else []
    mark = prefix if head else ""
    rows = ["Traceback (most recent call last):", *_frames((*frames, (message.file, "check")))]
    if _is_pydantic(message):
        rows += [
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
            *f"  Value error, {text} [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]".split("\n"),
            "    For further information visit https://errors.pydantic.dev/2.12/v/value_error",
        ]  # fmt: skip
    else:
        rows += f"{message.exception}: {text}".split("\n")
    return out + [mark + row for row in rows]


def _is_pydantic(message: Message) -> bool:
    return (
        message.file.startswith("vllm/config")
        and message.exception in ("ValueError", "AssertionError")
        and (parse(message.last) or (0, 0, 0)) >= (0, 10, 2)
    )


def _frames(places: _Frames) -> Iterator[str]:
    for file, function in places:
        yield f'  File "{_SITE}{file}", line 123, in {function}'
        yield "    return self.inner(value)"


def _foreign(message: Message, text: str) -> list[str]:
    if message.package == "nccl":
        return [f"node-1:4321:4400 [0] {text}" if text.startswith("NCCL") else text]
    if message.exception is None:
        if message.package == "ray":
            level = message.level
            return [f"2026-05-01 10:00:00,123\t{level} worker.py:12 -- {row}" for row in text.split("\n")]  # fmt: skip
        return text.split("\n")
    if message.exception.endswith("Warning"):
        return [f"{_SITE}{message.file}:12: {message.exception}: {text}", "  warnings.warn("]
    _, frames = _caller(message.file)
    inner = ((message.file, "check"),) if message.file.endswith(".py") else ()
    return [
        "Traceback (most recent call last):",
        *_frames((*frames, *inner)),
        *f"{message.exception}: {text}".split("\n"),
    ]
