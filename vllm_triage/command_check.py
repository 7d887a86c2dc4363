"""The commands of steps, checked against the flags of the releases that they claim."""

from collections.abc import Iterator, Mapping

from vllm_triage import flags, templates
from vllm_triage.echoes import long_name
from vllm_triage.expressions import expression

# What a shell would start: the server, a benchmark, or the image, whose arguments are the server's.
_STARTED = expression(
    r"\bvllm (?P<command>serve|bench (?:throughput|latency|serve))(?= )|\bvllm/vllm-openai[\w.:-]*(?= )"
    r"|-m vllm\.entrypoints\.openai\.api_server(?= )"
)
_END = expression(r"[|;&#]| -- ")
_WORD = expression(r"'[^']*'|\S+")
_ALWAYS = ("--help", "--model")
_STAND_IN = "\x00"


def problems(template: str, since: str | None, until: str | None) -> Iterator[str]:
    """Sentences about flags, and values that argparse checks, which a claimed release refuses."""
    try:
        names = templates.names(template)
        text = templates.fill(template, dict.fromkeys(names, _STAND_IN)) or ""
    except ValueError:
        return
    for found in _STARTED.finditer(text):
        rest = text[found.end() :]
        end = _END.search(rest)
        words = _WORD.findall(rest[: end.start()] if end else rest)
        yield from _words(words, found["command"] or flags.SERVE, since, until)


def _words(words: list[str], command: str, since: str | None, until: str | None) -> Iterator[str]:
    for index, word in enumerate(words):
        flag = long_name(word)
        if flag is None or flag in _ALWAYS:
            continue
        _, sign, given = word.partition("=")
        following = words[index + 1] if index + 1 < len(words) else ""
        yield from flag_problems(flag, given if sign else following, command, since, until)


def change_problems(
    change: Mapping[str, str], since: str | None, until: str | None
) -> Iterator[str]:
    """The same of a change; a flag that is removed may be gone."""
    for flag, value in change.items():
        if flag.startswith("--") and value != "-":
            yield from flag_problems(flag, value, flags.SERVE, since, until)


def flag_problems(
    flag: str, value: str, command: str, since: str | None, until: str | None
) -> Iterator[str]:
    """At most one sentence a flag: the release that lacks it, or that refuses its value."""
    lacking = flags.lacking(flag, since, until, command)
    if lacking:
        spans = f"{lacking[0]} to {lacking[-1]}" if len(lacking) > 1 else lacking[0]
        yield f"vllm {command} has no {flag} in {spans}; give since, until or forms"
        return
    if value and _STAND_IN not in value and "{" not in value and not value.startswith("-"):
        refusing = flags.refusing(flag, value, since, until) if command == flags.SERVE else ()
        if refusing:
            yield f"{flag} takes no {value!r} in {refusing[0]}"
