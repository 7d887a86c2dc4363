"""Echoes: how a server was started, as a shell, a launcher or a manifest in the log shows it."""

import io
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import regex

from vllm_triage.arguments import Value, value_of
from vllm_triage.expressions import expression
from vllm_triage.numbers import whole

MAX_TEXT = 16384
SERVER_MODULE = "vllm.entrypoints.openai.api_server"

# A prompt, `Command:`, `+` of `set -x`, a continuation's `>`; never the advice in a message.
_PROMPT = r"(?:\([\w./-]{1,40}\) {0,2})?(?:[$#+>❯➜]+ |\[[\w.-]+@[^\]]{1,60}\][$#] ?|.{0,24}[Cc]ommand: ?|ExecStart=[-@:+!|]{0,3}|[\w.-]+@[\w.-]+:[^$#]{0,60}[$#] ?)?(?:sudo (?:-\w+ ){0,9}|exec |nohup ){0,9}"
_VARIABLES = r"(?:\w+=(?:'[^']*'|\"[^\"]*\"|[^\s'\"]\S*)? ){0,99}(?:env (?:\w+=\S* ){1,99})?"
# What runs another command as it is, with options of its own.
_LAUNCHER = (
    r"(?:(?:srun|numactl|stdbuf|dumb-init|tini|(?:uv|conda|mamba|micromamba|poetry|pipenv|pdm|pixi) run"
    r"|(?:singularity|apptainer|docker|podman|nerdctl|kubectl) exec|ray job submit)(?: [^\s;|&<>()'\"]{1,200}){0,12}? )?"
)
START = expression(
    rf"{_PROMPT}(?={_VARIABLES}(?:nohup |exec |uv run ){{0,3}}{_LAUNCHER}"
    r"(?:(?:\S*/)?(?:vllm serve |python[\d.]* (?:-u )?(?:\S*/vllm serve |-m vllm\.entrypoints))"
    r"|(?:docker|podman|nerdctl)(?: container)? run ))"
)
# What runs a command that one of its words is.
_SHELL = expression(
    rf"{_PROMPT}(?={_VARIABLES}(?:bash|sh|su|ssh|srun|sbatch|tmux|screen|(?:docker|podman|nerdctl|kubectl|singularity|apptainer) (?:exec|run)) )"
)
_ASSIGNMENT = expression(r"(\w+)=(.*)", regex.DOTALL)
_REDIRECTED = expression(r"\d")
_IMAGE = expression(r"(?=[\w./-]*vllm)[\w./:@-]+", regex.IGNORECASE)
_TAGGED = expression(r"(?:[\w.-]+/)*vllm-openai:v(\d+\.\d+\.\d+(?:\.post\d+)?)")
_BARE_DOCKER = frozenset(
    ("-d", "--detach", "-i", "--interactive", "-t", "--tty", "-it", "-ti", "-dit", "-itd", "--rm", "--init",
     "--privileged", "--read-only", "--no-healthcheck", "-P", "--publish-all", "-q", "--quiet")
)  # fmt: skip
_FLAG = expression(r"--?[A-Za-z]")
LONG = expression(r"--([A-Za-z][\w.-]*)(?:=(.*))?", regex.DOTALL)
_DEVICES = expression(r"(?<!\d)\d{1,3}(?:,\d{1,3})*(?!\d)")
_MODEL = expression(r"[^\[<{(\s]\S*")
# Words that the shell fills in: a plain variable, the home folder.
_VARIABLE = expression(
    r"[\w@%+=:,./-]*\$(?:[@*]|\w++|\{\w+(?::?[-=?+][\w@%+=:,./-]*)?\})[\w@%+=:,./-]*"
)
_HOME = expression(r"~/[\w@%+=:,./-]*")
_SHORT = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size",
          "-q": "quantization"}  # fmt: skip


class Echo(NamedTuple):
    """A command as words, and where vLLM's own arguments begin."""

    words: tuple[str, ...]
    first: int

    @property
    def model(self) -> str | None:
        """The model that is served, the positional argument or `--model`."""
        own = self.words[self.first :]
        if own and not own[0].startswith("-"):
            return own[0]
        found = self.flags().get("model")
        return found if isinstance(found, str) else None

    def flags(self) -> dict[str, Value]:
        """The flags and their values, by argument name; a bare flag is True."""
        out: dict[str, Value] = {}
        name = ""
        for word in self.words[self.first :]:
            flag = long_name(word)
            if flag is not None:
                name = flag[2:].replace("-", "_")
                value = word.partition("=")[2]
                out[name] = value_of(value) if value else True
            elif name and not (word.startswith("-") and _FLAG.match(word)):
                before = out[name]
                if before is True:
                    out[name] = value_of(word)
                else:
                    out[name] = [*(before if isinstance(before, list) else [str(before)]), word]
        return out

    @property
    def release(self) -> str | None:
        """The release that the tag of the started image names."""
        found = _TAGGED.fullmatch(self.words[self.first - 1])
        return found[1] if found else None

    def visible_gpus(self) -> int | None:
        """How many GPUs the command lets the server see; None when it does not limit them."""
        before = self.words[: self.first]
        for index, word in enumerate(before):
            name, _, value = word.rpartition("CUDA_VISIBLE_DEVICES=")
            if word.startswith("CUDA_VISIBLE_DEVICES=") or name == "--env=":
                return devices(value)
            flag, _, value = word.partition("=")
            if flag == "--gpus":
                value = value or (before[index + 1] if index + 1 < len(before) else "")
                return devices(value) if "device=" in value else whole(value) if value.isdecimal() else None  # fmt: skip
        return None


def long_name(word: str) -> str | None:
    """The flag that a word is, in its long form with dashes; None when it is none."""
    if word in _SHORT:
        return "--" + _SHORT[word]
    found = LONG.fullmatch(word)
    return "--" + found[1].replace("_", "-") if found else None


def devices(text: str) -> int | None:
    """Count a list of device numbers as `0,1` or `"device=0,1"`."""
    found = _DEVICES.search(text)
    return found[0].count(",") + 1 if found else None


def parse(text: str) -> Echo | None:
    """Read an echoed command up to the end of its first shell command; None when it is none.

    A command in which the shell would run another is none: its words are not all known.
    """
    found = START.match(text[:MAX_TEXT])
    if found is None or "`" in text:
        return _inner(text)
    words = _split(text[found.end() : MAX_TEXT].replace("$(pwd)", "$PWD"))
    first = first_argument(words) if words else None
    if words is None or first is None or not _is_start(words[first:]):
        return _inner(text)
    return Echo(tuple(words), first)


def _inner(text: str) -> Echo | None:
    """The command that a shell, a multiplexer or a scheduler is given as one word."""
    found = _SHELL.match(text[:MAX_TEXT]) if "vllm" in text else None
    for word in (found and _split(text[found.end() : MAX_TEXT])) or ():
        if ("vllm serve " in word or SERVER_MODULE in word) and len(word) < len(text):
            return parse(word.strip())
    return None


def _is_start(own: Sequence[str]) -> bool:
    """Tell a server's arguments from a sentence or a usage line that begins like a command."""
    if not own or own[0].startswith("-"):
        return bool(own)
    follows = own[1:2]
    return bool(
        _MODEL.fullmatch(own[0])
        and ((follows and follows[0].startswith("-")) or (not follows and "/" in own[0]))
    )


def _split(text: str) -> list[str] | None:
    stream = io.StringIO(text)
    lexer = shlex.shlex(stream, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            if word and set(word) <= set("();<>|&"):
                if "(" in word:
                    return None
                # `2>&1` has a stream's number, `-tp 2 > log` a value.
                start = text.rfind(word, 0, stream.tell())
                if (
                    words
                    and word[0] in "<>"
                    and text[start - 1].isdigit()
                    and _REDIRECTED.fullmatch(words[-1])
                ):
                    words.pop()
                break
            if word.startswith("#"):
                # A comment; what is in quotes is none.
                if "'#" in text or '"#' in text:
                    return None
                break
            words.append(word)
    except ValueError:
        return None
    return words


def first_argument(words: Sequence[str]) -> int | None:
    """Where vLLM's arguments begin: after `vllm serve`, the server's module or the image."""
    for index, word in enumerate(words[:-1]):
        if word == "serve" and index and words[index - 1].rpartition("/")[2] == "vllm":
            return index + 1
        if word == SERVER_MODULE and index and words[index - 1] == "-m":
            return index + 1
    if not words or "run" not in words[:3] or words[0] not in ("docker", "podman", "nerdctl"):
        return None
    index = words.index("run") + 1
    while index < len(words) and words[index].startswith("-"):
        index += 1 if "=" in words[index] or words[index] in _BARE_DOCKER else 2
    if index < len(words) and _IMAGE.fullmatch(words[index]) and "--entrypoint" not in words:
        return index + 1
    return None


def shell(words: Sequence[str]) -> str:
    """Words as a shell reads them back; an assignment before the command stays one."""
    out: list[str] = []
    is_leading = True
    for word in words:
        found = _ASSIGNMENT.fullmatch(word)
        if is_leading and found:
            out.append(f"{found[1]}={shlex.quote(found[2])}" if found[2] else word)
            continue
        is_leading = is_leading and word == "env"
        if _VARIABLE.fullmatch(word):
            out.append(f'"{word}"')
        else:
            out.append(word if _HOME.fullmatch(word) else shlex.quote(word))
    return " ".join(out)
