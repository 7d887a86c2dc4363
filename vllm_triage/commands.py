"""Commands: the user's own way to start the server, with a change made."""

import shlex
import tomllib
from collections.abc import Mapping
from functools import cache

import regex

from vllm_triage.arguments import Value
from vllm_triage.catalogue import folder
from vllm_triage.run import Run
from vllm_triage.versions import parse

# One command, without comments, variables, other commands and line ends.
_PLAIN = regex.compile(r"[^#$;|&<>`\n]+")
_SECRETS = ("api_key", "hf_token", "ssl_keyfile_password")
_NO_FLAGS = ("model", "model_tag", "subparser", "disable_log_config_file")
MODULE = "vllm.entrypoints.openai.api_server"


def suggested_command(run: Run | None, change: Mapping[str, str]) -> str | None:
    """The user's own command with flags set, removed (`-`) or given bare (empty text).

    `vllm serve`, or the server's module where the log shows it started so or the release
    has no `vllm` command (before 0.5.5). Only arguments that the log shows are written; of
    a log that prints all of them, those that are not the defaults. Secrets are replaced.
    None when the log does not show the arguments, or nothing would change.
    """
    if run is None or not change or not run.arguments or run.model is None:
        return None
    flags = _flags(run)
    before = dict(flags)
    for flag, text in change.items():
        if text == "-":
            flags.pop(flag, None)
        else:
            flags[flag] = [text] if text else []
    if flags == before:
        return None
    parts = ["python", "-m", MODULE, "--model", run.model] if _is_module(run) else ["vllm", "serve", run.model]  # fmt: skip
    for flag, words in flags.items():
        parts += [flag, *words]
    return shlex.join(parts)


def flags_of(command: str | None, model: str) -> dict[str, str | None]:
    """The flags of a plain `vllm serve MODEL --flag value`; none for anything else."""
    if command is None or not command.startswith("vllm serve "):
        return {}
    words = shlex.split(command)[2:]
    if not words or words[0] != model or not _PLAIN.fullmatch(command):
        return {}
    flags: dict[str, str | None] = {}
    flag = ""
    for word in words[1:]:
        if word.startswith("--"):
            flag, _, value = word.partition("=")
            flags[flag] = value
        elif flag and not flags[flag]:
            flags[flag] = word
        else:
            return {}
    return flags


def is_before_command(version: str | None) -> bool:
    """Tell a release that has no `vllm` command."""
    number = parse(version)
    return number is not None and number < (0, 5, 5)


def _is_module(run: Run) -> bool:
    if is_before_command(run.version):
        return True
    return "model" in run.arguments and "model_tag" not in run.arguments and not run.command


def _flags(run: Run) -> dict[str, list[str]]:
    flags: dict[str, list[str]] = {}
    for name, value in run.arguments.items():
        if name in _NO_FLAGS or (run.all_arguments and str(value) in _defaults().get(name, ())):
            continue
        words = _words(name, value)
        if words is not None:
            flags["--" + name.replace("_", "-")] = words
    return flags


def _words(name: str, value: Value) -> list[str] | None:
    if name in _SECRETS:
        return ["[redacted]"]
    if value is True:
        return []
    if value is None or value is False:
        return None
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


@cache
def _defaults() -> Mapping[str, list[str]]:
    return tomllib.loads((folder() / "argument-defaults.toml").read_text("utf-8"))
