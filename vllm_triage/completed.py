"""Completed commands: a step's command with the rest of what the user's own server was started with."""

import shlex
from collections.abc import Mapping, Sequence
from itertools import takewhile

from vllm_triage.commands import flags_of, is_flag, server_command, suggested_command
from vllm_triage.expressions import expression
from vllm_triage.platforms import CONTAINER_TOOLS
from vllm_triage.run import Run

_START = expression(
    r"(vllm serve|python -m vllm\.entrypoints\.openai\.api_server --model|vllm/vllm-openai(?::[\w.-]{1,80})? --model) (?=[^\s-])"
)
_OPERATOR = expression(r" (?:2>&1|[|>#&])")
_ASSIGNED = expression(r"[A-Z][A-Z_0-9]{0,80}=\S*")
_SHELL = frozenset(("|", "||", "&&", ";", "2>&1", ">", "#"))


def completed(command: str | None, run: Run | None, change: Mapping[str, str]) -> str | None:
    """A step's command with all arguments of the run's, as far as the log tells them.

    What is no start of one server stays as it is, and what a shell would not take.
    """
    try:
        return _completed(command, run, change)
    except ValueError:
        return command


def _completed(command: str | None, run: Run | None, change: Mapping[str, str]) -> str | None:
    own = server_command(run) if run is not None else None
    if command is None or own is None or run is None or "\n" in command:
        return command
    found = _START.search(command)
    if found is None or command.count("vllm serve") > 1:
        return command
    end = _OPERATOR.search(command, found.end())
    shown, rest = command[found.end() : end and end.start()], command[end.start() :] if end else ""
    model = shown.partition(" ")[0]
    flags = flags_of(f"vllm serve {shown}", model)
    if None in flags.values() or (shown != model and not flags):
        return command
    # A step's change is what its own command in the report has too.
    wanted = change or {flag: text or "" for flag, text in flags.items()}
    full = suggested_command(run, wanted) or own
    words = shlex.split(full)
    if model != run.model:
        if words.count(run.model or "") != 1:
            return command
        full = shlex.join([model if word == run.model else word for word in words])
    if found[1].startswith("vllm/"):
        # Docker's part is the step's own.
        return command[: found.end()] + model + _after(words, run.model or "") + rest
    head, variables = _cut(command[: found.start()])
    if rest and words[0] in CONTAINER_TOOLS:
        # What a detached container prints goes through no pipe.
        full = full.replace(" -d ", " ", 1).replace(" --detach ", " ", 1)
    started = _with_variables(full, variables)
    return command if started is None else head + started + rest


def _cut(head: str) -> tuple[str, str]:
    """What stands before a server's start, and the variables directly before it."""
    words = head.split(" ")[:-1]
    at = len(words)
    while at and (words[at - 1] == "env" or _ASSIGNED.fullmatch(words[at - 1])):
        at -= 1
    before, variables = words[:at], words[at:]
    return "".join(f"{word} " for word in before), "".join(f"{word} " for word in variables)


def _after(words: Sequence[str], model: str) -> str:
    """The arguments behind the model, as a shell takes them."""
    if model not in words:
        return ""
    return "".join(f" {shlex.quote(word)}" for word in words[words.index(model) + 1 :])


def _with_variables(full: str, variables: str) -> str | None:
    """A command with variables of its environment; None where a container cannot be given them so."""
    if not variables:
        return full
    starter, _, rest = full.partition(" run ")
    if starter.split()[-1:] and starter.split()[-1] in (*CONTAINER_TOOLS, "container"):
        given = [word for word in shlex.split(variables) if word != "env"]
        return f"{starter} run {' '.join(f'-e {word}' for word in given)} {rest}"
    names = {word.partition("=")[0] for word in shlex.split(variables)}
    kept = full.split(" ")
    leading = list(takewhile(lambda word: "=" in word and not is_flag(word), kept))
    if any("'" in word or '"' in word for word in leading):
        return variables + full
    still = [word for word in leading if word.partition("=")[0] not in names]
    return variables + " ".join([*still, *kept[len(leading) :]])


def difference(command: str, own: str) -> str | None:
    """What a command has that the user's own has not, in half a line; None where more than flags differ.

    `add to your command: --max-num-seqs 64`
    """
    try:
        theirs, before = _grouped(shlex.split(command)), _grouped(shlex.split(own))
    except ValueError:
        return None
    if theirs[0] != before[0] or any(word in _SHELL for group in theirs[1] for word in group):
        return None
    known = [group[0] for group in before[1]]
    new = [group for group in theirs[1] if group not in before[1]]
    gone = [group[0] for group in before[1] if group[0] not in [other[0] for other in theirs[1]]]
    added = [word for group in new if group[0] not in known for word in group]
    changed = [word for group in new if group[0] in known for word in group]
    parts = [
        f"{words}: {shlex.join(group)}"
        for words, group in (
            ("add to your command", added),
            ("change in your command", changed),
            ("leave out of your command", gone),
        )
        if group
    ]
    return "; ".join(parts) or None


def _grouped(words: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """What stands before the first flag behind the server's start, and each flag with its values."""
    first = next((at for at, word in enumerate(words) if word == "serve" or word.startswith("vllm.entry")), 0)  # fmt: skip
    head: list[str] = []
    groups: list[list[str]] = []
    for at, word in enumerate(words):
        if at > first and is_flag(word):
            name, sign, value = word.partition("=")
            groups.append([name, value] if sign else [word])
        elif groups:
            groups[-1].append(word)
        else:
            head.append(word)
    return head, groups
