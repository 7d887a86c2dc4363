"""The catalogue: all rules and topics in force, read from the pattern files.

`patterns/<area>/<kind>.toml` is the kind `<area>.<kind>`; `patterns/topics/<name>.toml`
is a reference page. A user's folder is laid out the same.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import regex
from pydantic import ValidationError

from vllm_triage import templates
from vllm_triage.errors import RuleError
from vllm_triage.kinds import Kind
from vllm_triage.rules import Extension, Rule, Topic
from vllm_triage.tables import folder

ENTRY_POINT_GROUP = "vllm_triage.rules"
FOLDERS_VARIABLE = "VLLM_TRIAGE_RULES"
TOPICS = "topics"


class Catalogue(NamedTuple):
    """All rules and topics in force."""

    rules: Mapping[Kind, Rule]
    topics: Mapping[str, Topic]


def files(root: Path) -> list[Path]:
    """The pattern files under a folder, in the order of their kinds.

    Raises RuleError when the folder does not exist or holds none.
    """
    if not root.is_dir():
        message = f"{root}: no such folder; --rules takes a folder of AREA/KIND.toml files"
        raise RuleError(message)
    found = sorted(path for path in root.glob("*/*.toml") if path.is_file())
    if not found:
        message = f"{root}: no AREA/KIND.toml files in this folder"
        raise RuleError(message)
    return found


def read(path: Path, *, root: Path) -> tuple[Kind, Rule | Extension] | tuple[str, Topic]:
    """Read one pattern file; a user's rule without title adds to the built-in one.

    Raises RuleError with the file, the field and the offending text.
    """
    inside = path.relative_to(root)
    where = inside if root == folder() else path
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{where}: not valid TOML: {error}"
        raise RuleError(message) from error
    except OSError as error:
        message = f"{where}: cannot be read: {error.strerror}"
        raise RuleError(message) from error
    try:
        if inside.parts[0] == TOPICS:
            return path.stem, Topic.model_validate(data)
        kind = _kind(inside, where)
        if "title" not in data and root != folder():
            return kind, Extension.model_validate(data)
        return kind, Rule.model_validate(data)
    except ValidationError as error:
        raise RuleError(_explain(where, data, error)) from error


def _kind(inside: Path, where: Path) -> Kind:
    name = f"{inside.parts[0]}.{inside.stem}"
    try:
        return Kind(name)
    except ValueError:
        near = difflib.get_close_matches(name, [kind.value for kind in Kind], 3, 0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "vllm-triage kinds lists them"
        message = (
            f"{where}: {name} is not a kind, and the path AREA/KIND.toml must name one; {hint}"
        )
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


def load(folders: Path | str | Sequence[Path | str] = (), *, builtin: bool = True) -> Catalogue:
    """Read the built-in rules, those of installed packages and environment, then `folders`.

    A later rule for a kind replaces an earlier one; one without title adds to it.
    Raises RuleError with the file and the reason.
    """
    if isinstance(folders, str | Path):
        folders = [folders]
    if any(not str(item) for item in folders):
        message = "an empty folder name for rules; --rules takes a folder of AREA/KIND.toml files"
        raise RuleError(message)
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
        if isinstance(entry, Topic):
            topics[name] = entry
            continue
        kind = Kind(name)
        if root != folder():
            _compile(path, entry)
        rules[kind] = entry.extended(rules[kind]) if isinstance(entry, Extension) else entry


def _compile(where: Path, rule: Rule | Extension) -> None:
    """The built-in rules are proven by the tests; a user's must not fail in the middle of a log."""
    for text in _texts(rule):
        try:
            templates.parse(text)
        except ValueError as error:
            message = f"{where}: {error} (in {text!r})"
            raise RuleError(message) from error
    for pattern in rule.pattern:
        try:
            regex.compile(pattern.regex, regex.MULTILINE)
        except regex.error as error:
            message = f"{where}: {pattern.name}: regex does not compile: {error}"
            raise RuleError(message) from error


def _texts(rule: Rule | Extension) -> Iterator[str]:
    if isinstance(rule, Rule):
        yield from (rule.title, rule.summary, rule.cause, *rule.verify_texts)
    for fix in rule.fix:
        yield from (fix.do, fix.command or "", fix.why or "", *fix.change.values())
        for form in fix.form:
            yield from (form.command or "", *form.change.values())


def _installed() -> Iterable[Path]:
    for point in entry_points(group=ENTRY_POINT_GROUP):
        target = point.load()
        yield Path(target() if callable(target) else target)
