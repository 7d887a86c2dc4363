"""Wrappings: what runtimes, daemons, command lines and terminals put around one printed line."""

import copy
from typing import NamedTuple

from vllm_triage import json_exports, json_records
from vllm_triage.expressions import expression

_MAX_LAUNCHERS = 64
_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_CRI = expression(rf"({_ISO}) (stdout|stderr) ([FP])(?: |$)")
_STAMP = expression(rf"({_ISO})(?: |$)")
_HOST_PROGRAM = expression(r"[\w.-]{1,80} ([\w./-]{1,60}(?:\[\d+\])?): ?")
_STDERR = expression(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) \| (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) +\| (stderr|stdout) \| ?"
)
_SYSLOG = expression(
    r"(?:<\d{1,3}>)?([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) ([\w.:-]{1,80}) ([\w./-]{1,60}(?:\[\d+\])?): ?"
)
_SYSLOG_5424 = expression(
    r"<\d{1,3}>1 (\S{1,64}) (\S{1,255}) (\S{1,64}) (\S{1,128}) \S{1,64} (?:-|(?:\[[^\]]{0,1000}\])+) ?(?:\ufeff)?"
)
_KUBECTL = expression(r"\[(?:pod|container)/([^\]\s]{1,200})\] ?")
_COMPOSE = expression(r"([a-z0-9][\w.-]{0,80}) +\| ?")
_STERN = expression(r"([a-z0-9][a-z0-9.-]{0,80}-(?:[a-z0-9]{5}|\d{1,3})) ([a-z][a-z0-9-]{0,40}) ")
_CLOUD = expression(rf"[A-Z]{{4,9}} ({_ISO}) \[resource\.labels\.[^\]]{{0,200}}\] ")
_LAUNCHER = expression(r"\[([a-z][\w-]{0,30})\] (?=\(|INFO |ERROR |WARNING |DEBUG |Traceback|  )")
_TAG = expression(r"\[([a-z][\w-]{0,30})\] ")
_LOGFMT = expression(
    r"""(?:[\w.@-]{1,40}=(?:"(?:[^"\\]|\\.)*+"|[^\s"]*+) )*?(?:msg|message|log)=("(?:[^"\\]|\\.)*+")"""
)
_PRETTY = expression(
    r"""\s{1,40}"(?:message|msg|log|text|MESSAGE|line|textPayload|@message|_raw|stdout|stderr)": ("(?:[^"\\]|\\.)*+"),?\s*$"""
)
_GREP = expression(r"\d{1,9}:(?=[^\d\s])")
_TALOS = expression(r"[\d.]{7,15}: kern: +\w+: \[(\S{10,40})\]: ")
_PIPE = expression(r" {1,8}\| ")
_FRAME_EDGE = expression(r"^[│┃║] ?|\s{0,300}[│┃║]$")
_YAML = "textPayload: "


class Text(NamedTuple):
    """What a process printed, and what the envelope said of it."""

    number: int
    text: str
    time: str | None = None
    stream: str | None = None
    container: str | None = None
    level: str | None = None
    unwrapped: bool = False


class Wrappings:
    """Takes the outermost wrapping off a line; learns what tells some of them only by lines before."""

    def __init__(self) -> None:
        self._stern: str | None = None
        self._launchers: set[str] = set()
        self._is_listing = self._has_listed = False

    @property
    def state(self) -> tuple[object, ...] | None:
        """What it has learnt; None while a line's wrapping depends on the line before it."""
        return None if self._has_listed else (len(self._launchers), self._stern)

    def copy(self) -> "Wrappings":
        """One that has learnt the same."""
        other = copy.copy(self)
        other._launchers = self._launchers.copy()
        return other

    def off(self, item: Text) -> tuple[str, Text] | None:
        """What a line is wrapped in, and the line without it; None where it is in nothing."""
        first = item.text[0]
        if first.isdigit():
            return self._digits(item)
        if first in "[<" or first.isupper():
            return self._marked(item)
        if first.islower():
            return self._named(item)
        if first in " \t│┃║":
            return self._framed(item)
        return None

    @staticmethod
    def _digits(item: Text) -> tuple[str, Text] | None:
        text = item.text
        found = _CRI.match(text)
        if found:
            return "cri", item._replace(text=text[found.end() :], time=found[1], stream=found[2])
        found = _STAMP.match(text)
        if found:
            rest = text[found.end() :]
            host = _HOST_PROGRAM.match(rest)
            if host and ("[" in host[1] or host[1] == "kernel"):
                return "syslog", item._replace(
                    text=rest[host.end() :], time=found[1], container=host[1]
                )
            return "timestamp", item._replace(text=rest, time=found[1])
        found = _STDERR.match(text)
        if found:
            return "stderr", item._replace(
                text=text[found.end() :], time=found[1], stream=found[2]
            )
        found = _GREP.match(text)
        if found:
            return "grep", item._replace(text=text[found.end() :])
        found = _TALOS.match(text)
        if found:
            return "talos", item._replace(text=text[found.end() :], time=found[1])
        return None

    def _marked(self, item: Text) -> tuple[str, Text] | None:
        text = item.text
        if text[0] == "[":
            found = _KUBECTL.match(text)
            if found:
                return "kubectl", item._replace(text=text[found.end() :], container=found[1])
            found = _LAUNCHER.match(text)
            if found and len(self._launchers) < _MAX_LAUNCHERS:
                self._launchers.add(found[1])
            elif self._launchers:
                found = _TAG.match(text)
            if found and found[1] in self._launchers:
                return "launcher", item._replace(text=text[found.end() :])
            return None
        if text[0] == "<":
            found = _SYSLOG_5424.match(text)
            if found:
                name = f"{found[3]}[{found[4]}]"
                return "syslog", item._replace(
                    text=text[found.end() :], time=found[1], container=name
                )
        if text[3:4] == " " or text[0] == "<":
            found = _SYSLOG.match(text)
            if found:
                return "syslog", item._replace(
                    text=text[found.end() :], time=found[1], container=found[3]
                )
        if "[resource.labels." in text[:60]:
            found = _CLOUD.match(text)
            if found:
                return "cloud", item._replace(text=text[found.end() :], time=found[1])
        return None

    def _named(self, item: Text) -> tuple[str, Text] | None:
        text = item.text
        if "|" in text[:90]:
            found = _COMPOSE.match(text)
            if found:
                return "compose", item._replace(text=text[found.end() :], container=found[1])
        if '="' in text:
            found = _LOGFMT.match(text)
            message = json_records.string(found[1]) if found else None
            if message is not None:
                return "logfmt", item._replace(text=message.rstrip("\n"))
        if text.startswith(_YAML):
            value = text.removeprefix(_YAML)
            message = json_records.string(value) if value[:1] == '"' else _yaml(value)
            if message is not None:
                return "yaml", item._replace(text=message.rstrip("\n"))
        found = _STERN.match(text)
        if found:
            name = f"{found[1]}/{found[2]}"
            is_same, self._stern = name == self._stern, name
            if is_same:
                return "stern", item._replace(text=text[found.end() :], container=name)
        return None

    def _framed(self, item: Text) -> tuple[str, Text] | None:
        text = item.text
        if text[0] in " \t":
            if '"' in text[:60] and not item.unwrapped:
                row = self._listed(text)
                if row is not None:
                    return "json", item._replace(text=row.rstrip("\n"), unwrapped=True)
            if '": "' in text[:60]:
                found = _PRETTY.match(text)
                message = json_records.string(found[1]) if found else None
                if message is not None:
                    return "json", item._replace(text=message.rstrip("\n"))
            found = _PIPE.match(text)
            return ("pipe", item._replace(text=text[found.end() :])) if found else None
        return "frame", item._replace(text=_FRAME_EDGE.sub("", text))

    def _listed(self, text: str) -> str | None:
        """A string of a list of printed lines, where JSON is written out; None of any other line."""
        if json_exports.LIST_BEGINS.match(text) is not None:
            self._is_listing = self._has_listed = True
            return None
        row = json_exports.STRING.match(text) if self._is_listing else None
        self._is_listing = row is not None
        return json_records.string(row[1]) if row is not None else None


def _yaml(value: str) -> str:
    """A scalar of YAML, plain or in single quotes."""
    is_quoted = len(value) > 1 and value[0] == value[-1] == "'"
    return value[1:-1].replace("''", "'") if is_quoted else value
