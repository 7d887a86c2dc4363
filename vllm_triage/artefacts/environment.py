"""Environments: `env`, `printenv`, `export -p`, `/proc/PID/environ`, and the interfaces of a node."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from vllm_triage.artefacts.observations import Observation, Reading, Value, line
from vllm_triage.artefacts.variables import RELEVANT, Variable, node
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

MAX_INTERFACES = 500
MAX_DUMPS = 1024

_ASSIGNMENT = expression(
    r"(?:export |declare -[A-Za-z-]{1,9} )?(?P<name>[A-Za-z_][\w.%()-]{0,200})=(?P<value>.*)"
)
_UNSET = expression(r"(?:export|declare -[A-Za-z-]{1,9}) [A-Za-z_]\w{0,200}")
_BARE_NAME = expression(r"(?:export |declare -[A-Za-z-]{1,9} )?[A-Z][A-Z0-9_]{0,80}")
_PROMPT = expression(
    r"(?:(?:\([\w.-]{1,40}\) )?[\w.-]{1,64}@(?P<host>[\w.-]{1,64}):[^#$]{0,200}[#$] |[#$] )"
    r"(?:/\S{1,60}/)?(?:env|printenv|export|declare|ip|ifconfig|cat|tr)\b.{0,300}"
)
# 2: eth0@if5: <BROADCAST,...> mtu ...   eth0@if5 UP 10.0.0.5/24   eth0: flags=4163<UP,...>   eth0 Link encap:Ethernet
_INTERFACE = expression(
    r"(?:\d{1,5}: (?P<name>[^\s:@]{1,40})(?:@\S{1,40})?: <(?P<flags>[^>\n]{0,200})>.*"
    r"|(?P<name>[^\s:@=]{1,40})(?:@\S{1,40})?\s+(?P<state>UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)(?P<rest>\s.*)?"
    r"|(?P<name>[^\s:@=]{1,40}(?::\d{1,4})?): flags=\d{1,8}<(?P<flags>[^>\n]{0,200})>.*"
    r"|(?P<name>[^\s@=]{1,40})\s{1,12}Link encap:.*)"
)
_ADDRESS = expression(
    r"inet6?(?: addr:?)?\s{1,3}(?P<address>[\da-fA-F.:]{2,45})|inet addr:(?P<address>[\d.]{7,15})"
)
_BRIEF_ADDRESS = expression(r"(?<!\S)(?P<address>[\da-fA-F.:]{3,45})/\d{1,3}(?!\S)")
_CLOSED = expression(r"""(?:[^"\\]|\\.)*+"\s*""")


class Row(NamedTuple):
    """A line of a dump, or the lines of one variable."""

    sort: Literal["variable", "interface", "address", "prompt", "nothing", "foreign"]
    variable: Variable | None = None
    name: str = ""
    """Of an interface, the prompt's host."""
    addresses: tuple[str, ...] = ()
    is_up: bool = True
    number: int = 0
    text: str = ""


def rows(texts: Sequence[tuple[int, str]]) -> Iterator[Row]:
    """What each line of a dump is; `foreign` where it is none of a dump's."""
    at, is_listing = 0, False
    while at < len(texts):
        number, text = texts[at]
        at += 1
        if not text.strip() or text.startswith("#"):
            yield Row("nothing")
            continue
        if is_listing and text[0] in " \t":
            found = [one["address"] for one in _ADDRESS.finditer(text[:400])]
            sort: Literal["address", "nothing"] = "address" if found else "nothing"
            yield Row(sort, addresses=tuple(found), is_up=" RUNNING" in text or " UP " in text)
            continue
        # A variable's name has no blank, an interface's line no sign of equality before its first.
        set_to = _ASSIGNMENT.fullmatch(text)
        if set_to is not None:
            is_listing = False
            value, more = _whole(set_to["name"], set_to["value"], texts[at : at + 500])
            at += more
            yield Row("variable", Variable(set_to["name"], value, number, text))
            continue
        interface = _INTERFACE.fullmatch(text[:2000])
        prompt = None if interface else _PROMPT.fullmatch(text)
        if interface is not None:
            is_listing = True
            flags, state = interface["flags"], interface["state"]
            is_up = "UP" in flags.split(",") if flags is not None else state not in ("DOWN", "LOWERLAYERDOWN")  # fmt: skip
            brief = tuple(one["address"] for one in _BRIEF_ADDRESS.finditer(interface["rest"] or ""))  # fmt: skip
            yield Row("interface", None, interface["name"], brief, is_up, number, text)
        elif prompt is not None:
            is_listing = False
            yield Row("prompt", name=prompt["host"] or "")
        else:
            yield Row("nothing" if _UNSET.fullmatch(text) else "foreign")


def _whole(name: str, value: str, after: Sequence[tuple[int, str]]) -> tuple[str, int]:
    """A value without its quotes, and how many more lines it takes."""
    if name.startswith("BASH_FUNC_"):
        end = next((index for index, (_, text) in enumerate(after, 1) if text == "}"), 0)
        return value, end if value.startswith("()") else 0
    if value.startswith("-----BEGIN ") and "-----END" not in value:
        return value, next(
            (index for index, (_, text) in enumerate(after, 1) if text.startswith("-----END")), 0
        )
    if value.startswith('"') and _CLOSED.fullmatch(value[1:]) is None:
        return value[1:], next(
            (index for index, (_, text) in enumerate(after, 1) if _CLOSED.fullmatch(text)), 0
        )
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1].replace('\\"', '"').replace("\\$", "$").replace("\\\\", "\\")
    return value, 0


def fits(head: str) -> bool:
    """Whether a file that begins so holds nothing but variables and interfaces, one that matters at least."""
    if "\0" in head.split("\n", 1)[0]:
        parts = head.split("\0")[:-1]
        return any(_matters(one) for one in parts) and all("=" in one for one in parts if one)
    texts = list(enumerate(head.split("\n"), 1))
    # Of a last line without an end the name alone may be there.
    if len(head) > 60_000 or (len(texts) > 1 and _BARE_NAME.fullmatch(texts[-1][1])):
        texts = texts[:-1]
    found = False
    for row in rows(texts):
        if row.sort == "foreign":
            return False
        if row.sort == "interface" or (row.variable and RELEVANT.fullmatch(row.variable.name)):
            found = True
    return found


def _matters(text: str) -> bool:
    return RELEVANT.fullmatch(text.partition("=")[0]) is not None


class _Dump:
    """What is told of one node."""

    def __init__(self, source: str, host: str = "") -> None:
        self._source = source
        self.host = host
        self.variables: list[Variable] = []
        self._names: set[str] = set()
        self._interfaces: dict[str, Value] = {}
        self._shown: dict[str, Line] = {}
        self._last = ""

    def is_of_another(self, row: Row) -> bool:
        """Whether a line begins what another node says: its prompt, or a variable that this one has told."""
        if row.sort == "prompt":
            has_said = bool(self.variables or self._interfaces)
            return bool(row.name) and row.name != self.host and has_said
        return row.variable is not None and row.variable.name in self._names

    def feed(self, row: Row) -> None:
        if row.variable is not None:
            self.variables.append(row.variable)
            self._names.add(row.variable.name)
        elif row.sort == "interface" and len(self._interfaces) < MAX_INTERFACES:
            self._last = f"interface {row.name}"
            self._interfaces[self._last] = " ".join(
                ("up" if row.is_up else "down", *row.addresses)
            )
            self._shown[self._last] = line(self._source, row.number, row.text[:400])
        elif row.sort == "address" and self._last:
            known = str(self._interfaces[self._last])
            self._interfaces[self._last] = " ".join((known, *row.addresses))[:2000]
        elif row.sort == "prompt":
            self.host = self.host or row.name

    def observation(self) -> Observation | None:
        """None where nothing that matters was said."""
        is_whole = any(one.name == "PATH" for one in self.variables)
        found = node(self._source, self.variables, name=self.host, is_whole=is_whole)
        if not self._interfaces:
            return found
        if found is None:
            values: dict[str, Value] = {"node": self.host} if self.host else {}
            found = Observation("environment", values, self._shown)
        return found._replace(
            values={**found.values, **self._interfaces}, lines={**found.lines, **self._shown}
        )


def read(lines: Sequence[Line]) -> Reading:
    """Read the environment, the interfaces, or both, of one node or of several one after the other."""
    texts = [(one.number, one.raw.rstrip("\r")) for one in lines]
    source = lines[0].source if lines else ""
    dumps = [_Dump(source)]
    every = list(rows(texts))
    named = {
        one.variable.value for one in every if one.variable and one.variable.name == "HOSTNAME"
    }
    hosts = {one.name for one in every if one.sort == "prompt" and one.name}
    # A file for one server may set a variable twice.
    is_of_several = max(len(named), len(hosts)) > 1
    for row in every:
        if is_of_several and len(dumps) < MAX_DUMPS and dumps[-1].is_of_another(row):
            dumps.append(_Dump(source))
        dumps[-1].feed(row)
    found = (one.observation() for one in dumps)
    return Reading(tuple(one for one in found if one is not None))
