"""Rules: the pattern files, read and validated.

`patterns/<area>/<kind>.toml` is the kind `<area>.<kind>`; `patterns/topics/<name>.toml`
is a reference page. The format is described in `patterns/README.md`.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import regex
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vllm_triage.errors import RuleError
from vllm_triage.kinds import Confidence, Kind, Level, Phase, Risk, Role, Severity

ENTRY_POINT_GROUP = "vllm_triage.rules"
FOLDERS_VARIABLE = "VLLM_TRIAGE_RULES"
TOPICS = "topics"

_Text = Annotated[str, Field(min_length=1)]
_Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
_Version = Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?(\.?(post|rc|dev)\d+)?$")]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Form(_Strict):
    """One way to write a step's command, and the vLLM releases that accept it."""

    since: _Version | None = None
    """The first release that accepts it."""
    until: _Version | None = None
    """The last release that accepts it."""
    command: _Text | None = None
    """A command template."""
    change: dict[str, str] = {}
    """Flags to set, `"--flag" = "value"`; an empty value is a bare flag, `"-"` removes the flag."""


class Fix(_Strict):
    """One step towards the remedy."""

    do: _Text
    """Imperative, one thing, a full sentence."""
    command: _Text | None = None
    """A command template, the same for every release."""
    change: dict[str, str] = {}
    """Flags to set on the user's own command."""
    form: tuple[Form, ...] = ()
    """Commands that differ by release, oldest first; instead of `command` and `change`."""
    why: _Text | None = None
    """Half a line: why it helps, or why it differs from what is documented."""
    risk: Risk = Risk.RESTART
    """What the step does to the system."""
    since: _Version | None = None
    """The first release for which the step makes sense."""
    until: _Version | None = None
    """The last release for which the step makes sense."""
    documented: bool = False
    """Whether it is one of the documented steps."""
    documented_as: _Text | None = None
    """The documented command where it differs from the one shown."""
    docs: _Text | None = None
    """An address with more about it."""
    needs: tuple[_Text, ...] = ()
    """Facts that the log must state for the step to be shown."""
    unless: tuple[_Text, ...] = ()
    """Facts that rule the step out."""


class Pattern(_Strict):
    """One thing a log says."""

    name: _Name
    """Kebab-case: what the log says, never the cure."""
    keywords: Annotated[tuple[_Text, ...], Field(min_length=1)]
    """Plain texts, case-sensitive; each must be in a line's text before the regex is tried."""
    regex: _Text
    """Searched in an event's text; `^` and `$` match at line ends; named groups are facts."""
    level: Level = Level.ERROR
    """The least logging level of a line that may match; a line without level always may."""
    origin: Literal["any", "log", "access", "statistics", "kernel"] = "log"
    """Which sort of line may match."""
    when: Phase | None = None
    """The phase the server must have been in; a phase that the log does not show passes."""
    needs: tuple[_Name, ...] = ()
    """Facts that the run or the frames must show, such as `quantization`."""
    exception: tuple[_Text, ...] = ()
    """Exception classes, without module; the event must be one of them."""
    raised_in: tuple[_Text, ...] = ()
    """Globs, `vllm/config/*` or `vllm/utils.py:run`; the innermost frame must match one."""
    frames: tuple[_Text, ...] = ()
    """Globs; any frame of the traceback must match one."""
    at_least: dict[str, float] = {}
    """Least values of captured numbers."""
    at_most: dict[str, float] = {}
    """Greatest values of captured numbers."""
    times: Annotated[int, Field(ge=1)] = 1
    """How many lines in a row must match."""
    severity: Severity | None = None
    """Overrides the rule's."""
    role: Role | None = None
    """Overrides the rule's."""
    confidence: Confidence = Confidence.CERTAIN
    """How sure the kind is when this pattern matches."""
    facts: dict[str, str | float] = {}
    """Facts that the wording implies without stating them."""
    printed_by: _Text
    """The package that prints the line: vllm, torch, nccl, ray, kernel, ..."""
    file: _Text | None = None
    """The source file in that package."""
    since: _Version | None = None
    """The first release of that package known to print it."""
    until: _Version | None = None
    """The last release of that package known to print it."""
    hits: Annotated[tuple[_Text, ...], Field(min_length=1)]
    """Lines as printed that must match."""
    misses: Annotated[tuple[_Text, ...], Field(min_length=1)]
    """The nearest innocent lines."""


class Variant(_Strict):
    """A kind told from another by the run, not by its words."""

    of: Kind
    """The kind whose matches become this kind."""
    when: Phase | None = None
    """The phase in which they do."""
    needs: tuple[_Name, ...] = ()
    """Facts that the run or the frames must show."""
    hits: Annotated[tuple[_Text, ...], Field(min_length=1)]
    """Whole excerpts that become this kind."""
    misses: Annotated[tuple[_Text, ...], Field(min_length=1)]
    """Excerpts that stay the other kind."""


class Rule(_Strict):
    """A kind: what it means, how it is recognised, what to do."""

    title: _Text
    """What broke, at most 70 characters; may hold placeholders."""
    severity: Severity
    """How much of the service is lost."""
    role: Role = Role.CAUSE
    """Where it stands in the story."""
    summary: _Text
    """What happened, one or two sentences."""
    cause: _Text
    """Why it happens."""
    docs: tuple[_Text, ...] = ()
    """Addresses of documentation."""
    explained_by: tuple[_Text, ...] = ()
    """Kinds, or areas as `gpu.*`, that are the cause when both are in a log."""
    symptom: _Text | None = None
    """The symptom as documented."""
    verify: _Text | None = None
    """How to see that the remedy worked."""
    collect: tuple[_Text, ...] = ()
    """What to collect when the log does not show the cause."""
    variant: Variant | None = None
    """Set when the kind is told from another by the run."""
    fix: Annotated[tuple[Fix, ...], Field(min_length=1)]
    """Steps in order."""
    pattern: tuple[Pattern, ...] = ()
    """What the log says."""


class Topic(_Strict):
    """A reference page that belongs to kinds."""

    title: _Text
    """The heading."""
    text: _Text
    """The explanation."""
    kinds: tuple[Kind, ...] = ()
    """The kinds whose reports point here."""
    columns: tuple[_Text, ...] = ()
    """A table's headings."""
    rows: tuple[tuple[str, ...], ...] = ()
    """A table's rows."""
    fix: tuple[Fix, ...] = ()
    """Steps in order."""
    docs: tuple[_Text, ...] = ()
    """Addresses of documentation."""


class Catalogue(NamedTuple):
    """All rules and topics in force."""

    rules: Mapping[Kind, Rule]
    topics: Mapping[str, Topic]


def folder() -> Path:
    """The built-in pattern files: the wheel's own copy, else the checkout's."""
    packaged = Path(__file__).parent / "patterns"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "patterns"


def files(root: Path) -> list[Path]:
    """The pattern files under a folder, in the order of their kinds.

    Raises RuleError when the folder does not exist or holds none.
    """
    if not root.is_dir():
        message = f"{root}: no such folder; --rules takes a folder of AREA/KIND.toml files"
        raise RuleError(message)
    found = sorted(root.glob("*/*.toml"))
    if not found:
        message = f"{root}: no AREA/KIND.toml files in this folder"
        raise RuleError(message)
    return found


def read(path: Path, *, root: Path) -> tuple[Kind, Rule] | tuple[str, Topic]:
    """Read one pattern file.

    Raises RuleError with the file, the field and the offending text.
    """
    where = path.relative_to(root)
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{where}: not valid TOML: {error}"
        raise RuleError(message) from error
    except OSError as error:
        message = f"{where}: cannot be read: {error.strerror}"
        raise RuleError(message) from error
    try:
        if where.parts[0] == TOPICS:
            return path.stem, Topic.model_validate(data)
        return _kind(where), Rule.model_validate(data)
    except ValidationError as error:
        raise RuleError(_explain(where, data, error)) from error


def _kind(where: Path) -> Kind:
    name = f"{where.parts[0]}.{where.stem}"
    try:
        return Kind(name)
    except ValueError:
        message = f"{where}: {name} is not a kind; the file's path must be AREA/KIND.toml of a known kind"
        raise RuleError(message) from None


def _explain(where: Path, data: Mapping[str, object], error: ValidationError) -> str:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    if len(place) > 1 and place[0] in ("pattern", "fix"):
        items = data.get(place[0])
        index = int(place[1])
        item = items[index] if isinstance(items, list) and index < len(items) else {}
        name = item.get("name") or item.get("do") if isinstance(item, dict) else None
        place[:2] = [f"{place[0]} {index + 1}" + (f" ({name})" if name else "")]
    given = repr(first["input"])
    shown = given if len(given) <= 80 else given[:77] + "..."
    return f"{where}: {', '.join(place)}: {first['msg']} (found {shown})"


def load(folders: Sequence[Path | str] = (), *, builtin: bool = True) -> Catalogue:
    """Read the built-in rules, those of installed packages and environment, then `folders`.

    A later rule for a kind replaces an earlier one.
    Raises RuleError with the file and the reason.
    """
    extra = [Path(item) for item in folders]
    named = os.environ.get(FOLDERS_VARIABLE, "")
    environment = [Path(item) for item in named.split(os.pathsep) if item]
    rules: dict[Kind, Rule] = {}
    topics: dict[str, Topic] = {}
    if builtin:
        base = _builtin()
        rules.update(base.rules)
        topics.update(base.topics)
    for root in [*_installed(), *environment, *extra]:
        _add(rules, topics, root)
    return Catalogue(rules, topics)


@cache
def _builtin() -> Catalogue:
    rules: dict[Kind, Rule] = {}
    topics: dict[str, Topic] = {}
    _add(rules, topics, folder())
    return Catalogue(rules, topics)


def _add(rules: dict[Kind, Rule], topics: dict[str, Topic], root: Path) -> None:
    for path in files(root):
        name, entry = read(path, root=root)
        if root != folder() and isinstance(entry, Rule):
            _compile(path.relative_to(root), entry)
        if isinstance(entry, Rule):
            rules[Kind(name)] = entry
        else:
            topics[name] = entry


def _compile(where: Path, rule: Rule) -> None:
    """The built-in patterns are proven by the tests; a user's must not fail in the middle of a log."""
    for pattern in rule.pattern:
        try:
            regex.compile(pattern.regex, regex.MULTILINE)
        except regex.error as error:
            message = f"{where}: {pattern.name}: regex does not compile: {error}"
            raise RuleError(message) from error


def _installed() -> Iterable[Path]:
    for point in entry_points(group=ENTRY_POINT_GROUP):
        target = point.load()
        yield Path(target() if callable(target) else target)
