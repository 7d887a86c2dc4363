"""Commands: the user's own way to start the server, with a change made."""

import shlex
from collections.abc import Mapping, Sequence

from vllm_triage import flags as known_flags
from vllm_triage.arguments import Value
from vllm_triage.echoes import SERVER_MODULE, Echo, long_name, shell
from vllm_triage.expressions import expression
from vllm_triage.redact import REDACTED
from vllm_triage.run import Run
from vllm_triage.secret_names import BARE, is_secret
from vllm_triage.tables import table
from vllm_triage.versions import parse

# One command, without comments, variables, other commands and line ends.
_PLAIN = expression(r"[^#$;|&<>`\n]+")
_SECRETS = ("api_key", "hf_token", "ssl_keyfile_password")
_NO_FLAGS = ("model", "model_tag", "subparser", "disable_log_config_file")


def suggested_command(run: Run | None, change: Mapping[str, str]) -> str | None:
    """The user's own command with flags set, removed (`-`) or given bare (empty text).

    Where the log shows the command itself, its words in their order, Docker's part and
    variables included. Else `vllm serve`, or the server's module where the log shows it
    started so or the release has no `vllm` command (before 0.5.5): of a log that prints all
    arguments those that are not the defaults. Secrets are replaced.
    None when the log does not show the arguments, or nothing would change.
    """
    if run is None or not change or run.model is None:
        return None
    if run.echo is not None and run.echo.model == run.model:
        return _edited(run.echo, change)
    if not run.arguments:
        return None
    flags = _flags(run)
    before = dict(flags)
    for flag, text in change.items():
        if text == "-":
            flags.pop(flag, None)
        else:
            flags.pop("--no-" + flag.removeprefix("--"), None)
            flags[flag] = [text] if text else []
    return _built(run, run.model, flags) if flags != before else None


def server_command(run: Run) -> str | None:
    """How the server was started: the command that the log shows, else one with the arguments that it prints.

    Secrets are replaced. None when the log shows neither.
    """
    if run.echo is not None:
        return shell(_without_secrets(run.echo.words, run.echo.model))
    if run.model is None or not run.arguments:
        return None
    return _built(run, run.model, _flags(run))


def _built(run: Run, model: str, flags: Mapping[str, Sequence[str]]) -> str:
    parts = ["python", "-m", SERVER_MODULE, "--model", model] if _is_module(run) else ["vllm", "serve", model]  # fmt: skip
    for flag, words in flags.items():
        parts += [flag, *words]
    return shlex.join(parts)


def has_change(command: str, change: Mapping[str, str]) -> bool:
    """Tell whether a command has all of a change."""
    words = shlex.split(command)
    return bool(change) and all(
        _with(words, flag, text, None) == words for flag, text in change.items()
    )


def _edited(echo: Echo, change: Mapping[str, str]) -> str | None:
    """An echoed command with its flags changed where they stand, new ones at its end."""
    own = list(echo.words[echo.first :])
    for flag, text in change.items():
        own = _with(own, flag, text, echo.model)
    if own == list(echo.words[echo.first :]):
        return None
    return shell(_without_secrets([*echo.words[: echo.first], *own], echo.model))


def _with(own: Sequence[str], flag: str, text: str, model: str | None) -> list[str]:
    out: list[str] = []
    is_done = text == "-"
    index = 0
    while index < len(own):
        word = own[index]
        index += 1
        if text != "-" and word == "--no-" + flag.removeprefix("--"):
            continue
        if long_name(word) != flag:
            out.append(word)
            continue
        if "=" not in word and index < len(own) and not is_flag(own[index]) and own[index] != model:  # fmt: skip
            index += 1
        if not is_done:
            out += [f"{word.partition('=')[0]}={text}"] if "=" in word else [word, text] if text else [word]  # fmt: skip
            is_done = True
    return out if is_done else [*out, flag, *([text] if text else [])]


def is_flag(word: str) -> bool:
    """Tell a flag from a value, which may be a negative number."""
    return word.startswith("-") and not word.lstrip("-")[:1].isdigit()


def _without_secrets(words: Sequence[str], model: str | None = None) -> list[str]:
    out: list[str] = []
    flag, is_hidden = "", False
    for word in words:
        name, sign, value = word.partition("=")
        if is_flag(word):
            flag = (long_name(word) or "").removeprefix("--").replace("-", "_")
            is_hidden = flag in _SECRETS and not sign
        elif is_hidden and word != model:
            out.append(REDACTED)
            # The server takes several keys.
            is_hidden = flag == "api_key"
            continue
        else:
            is_hidden = False
        if sign and value and not value.startswith("$") and (is_secret(name) or name in BARE):
            out.append(f"{name}={REDACTED}")
        else:
            out.append(word)
    return out


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
    return "model" in run.arguments and "model_tag" not in run.arguments


def _flags(run: Run) -> dict[str, list[str]]:
    flags: dict[str, list[str]] = {}
    for name, value in run.arguments.items():
        if name in _NO_FLAGS or (run.all_arguments and is_default(name, value)):
            continue
        flag = "--" + name.replace("_", "-")
        words = _words(name, value)
        if words is not None:
            flags[flag] = words
        elif value is False and known_flags.accepts("--no-" + flag[2:], run.version):
            flags["--no-" + flag[2:]] = []
    return flags


def is_default(name: str, value: object) -> bool:
    """Tell whether an old release's log prints this value when nothing was given."""
    return str(value) in table("argument-defaults").get(name, ())


def _words(name: str, value: Value) -> list[str] | None:
    if name in _SECRETS:
        return [REDACTED]
    if value is True:
        return []
    if value is None or value is False:
        return None
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]
