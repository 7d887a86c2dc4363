"""The catalogue: all rules and topics in force, read from the pattern files.

`patterns/<area>/<kind>.toml` is the kind `<area>.<kind>`; `patterns/topics/<name>.toml`
is a reference page. A user's folder is laid out the same.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vllm_triage import installed, rule_cache, templates
from vllm_triage.errors import RuleError
from vllm_triage.kinds import Kind
from vllm_triage.plain import made
from vllm_triage.prebuilt import content
from vllm_triage.prefilter import Ways
from vllm_triage.rules import Extension, Rule, Topic
from vllm_triage.tables import folder, parsed
from vllm_triage.thresholds import resolved

_MAX_FILE = 1_048_576
_MAX_DEPTH = 50
_MAX_REGEX = 10_000
# Characters of a regex with its repeats written out, as compiling it does.
_MAX_COPIES = 200_000
FOLDERS_VARIABLE = "VLLM_TRIAGE_RULES"
TOPICS = "topics"
Entry = Rule | Extension | Topic
"""What a file says."""


class Catalogue(NamedTuple):
    """All rules and topics in force."""

    rules: Mapping[Kind, Rule]
    topics: Mapping[str, Topic]
    prefilter: Mapping[str, Ways] = {}
    """What a text must hold for a user's regex to match it."""
    unmet: tuple[str, ...] = ()
    """A sentence for each folder of a user's with patterns that miss their own hits."""


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


def read(path: Path, *, root: Path) -> tuple[str, Entry]:
    """Read one pattern file; a user's rule without title adds to the built-in one.

    Gives the name of a topic, the kind of all else.
    Raises RuleError with the file, the field and the offending text.
    """
    data = _checked(path, root, _content(path, root))
    return _name(path, root), made(_type(path, root, data), data)


def _content(path: Path, root: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE + 1)
    except OSError as error:
        message = f"{_shown(path, root)}: cannot be read: {error.strerror}"
        raise RuleError(message) from error
    if len(content) > _MAX_FILE:
        message = f"{_shown(path, root)}: is larger than 1 MiB, which no file of rules is"
        raise RuleError(message)
    return content


def _checked(path: Path, root: Path, content: bytes) -> dict[str, Any]:
    """What a file says, if that is what it may."""
    import tomllib

    try:
        data = tomllib.loads(content.decode("utf-8"))
        depth = _depth(data)
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits is a ValueError too.
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        message = f"{_shown(path, root)}: not valid TOML: {reason}"
        raise RuleError(message) from error
    if depth > _MAX_DEPTH:
        message = f"{_shown(path, root)}: nested too deep"
        raise RuleError(message)
    from vllm_triage.rule_files import checked

    _name(path, root)
    try:
        return checked(_type(path, root, data), data)
    except ValueError as error:
        message = f"{_shown(path, root)}: {error}"
        raise RuleError(message) from error


def _depth(data: object) -> int:
    """How deep tables and arrays are nested."""
    depth, level = 0, [data]
    while level and depth <= _MAX_DEPTH:
        depth += 1
        inside = [
            list(one.values()) if isinstance(one, dict) else one
            for one in level
            if isinstance(one, dict | list)
        ]
        level = [value for values in inside for value in values]
    return depth


def _type(path: Path, root: Path, data: Mapping[str, object]) -> type[Entry]:
    if path.parent.name == TOPICS:
        return Topic
    return Rule if "title" in data or root == folder() else Extension


def _shown(path: Path, root: Path) -> Path:
    return path.relative_to(root) if root == folder() else path


def _name(path: Path, root: Path) -> str:
    area, where = path.parent.name, _shown(path, root)
    return path.stem if area == TOPICS else _kind(area, path.stem, where)


def _kind(area: str, stem: str, where: Path) -> Kind:
    name = f"{area}.{stem}"
    try:
        return Kind(name)
    except ValueError:
        import difflib

        near = difflib.get_close_matches(name, [kind.value for kind in Kind], 3, 0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "vllm-triage kinds lists them"
        message = (
            f"{where}: {name} is not a kind, and the path AREA/KIND.toml must name one; {hint}"
        )
        raise RuleError(message) from None


def load(
    folders: Path | str | Sequence[Path | str] = (),
    *,
    builtin: bool = True,
    thresholds: Mapping[str, float | str] | None = None,
) -> Catalogue:
    """Read the built-in rules, those of installed packages and environment, then `folders`.

    A later rule for a kind replaces an earlier one; one without title adds to it. `thresholds`
    has other values for some of those that patterns name.
    Raises RuleError with the file and the reason, TriageError for a threshold that is none.
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
        base = built_in()
        rules.update(base.rules)
        topics.update(base.topics)
    prefilter: dict[str, Ways] = {}
    unmet: list[str] = []
    for root in [*installed.folders(), *environment, *extra]:
        known = _add(rules, topics, root)
        prefilter |= known.prefilter
        if known.unmet:
            others = f" and {len(known.unmet) - 1} more" if len(known.unmet) > 1 else ""
            does = "miss" if others else "misses"
            unmet.append(
                f"{known.unmet[0]}{others} {does} a hit of its own; vllm-triage check-rules {root} says why"
            )
    return Catalogue(resolved(rules, thresholds), topics, prefilter, tuple(unmet))


@cache
def built_in() -> Catalogue:
    """The built-in rules as they are written, with names of thresholds in the place of numbers."""
    rules: dict[Kind, Rule] = {}
    topics: dict[str, Topic] = {}
    ready = parsed()
    if ready is None:
        _add(rules, topics, folder())
        return Catalogue(rules, topics)
    for file, data in ready.items():
        area, _, name = file.removesuffix(".toml").partition("/")
        if area == TOPICS:
            topics[name] = made(Topic, content(data))
        elif name:
            rules[Kind(f"{area}.{name}")] = made(Rule, content(data))
    return Catalogue(rules, topics)


def _add(rules: dict[Kind, Rule], topics: dict[str, Topic], root: Path) -> rule_cache.Known:
    """Add what a folder's files say; give what is known of them."""
    contents = {path.relative_to(root).as_posix(): _content(path, root) for path in files(root)}
    known = None if root == folder() else rule_cache.read(contents)
    if known is None:
        known = _known(contents, root)
        if root != folder():
            rule_cache.write(contents, known)
    for name, data in known.files.items():
        path = root / name
        entry, kind = made(_type(path, root, data), data), _name(path, root)
        if isinstance(entry, Topic):
            topics[kind] = entry
            continue
        named = Kind(kind)
        rules[named] = entry.extended(rules[named]) if isinstance(entry, Extension) else entry
    return known


def _known(contents: rule_cache.Contents, root: Path) -> rule_cache.Known:
    known = rule_cache.Known({}, {}, [])
    for name, said in contents.items():
        path = root / name
        data = known.files[name] = _checked(path, root, said)
        entry = made(_type(path, root, data), data)
        if root != folder() and not isinstance(entry, Topic):
            _compile(path, entry)
            from vllm_triage.necessary import necessary

            known.prefilter.update({one.regex: necessary(one.regex) for one in entry.pattern})
            from vllm_triage.proofs import unmet

            known.unmet.extend(f"{name}: {one}" for one in unmet(entry.pattern))
    return known


def _compile(where: Path, rule: Rule | Extension) -> None:
    """The built-in rules are proven by the tests; a user's must not fail in the middle of a log."""
    for text in _texts(rule):
        try:
            templates.parse(text)
        except ValueError as error:
            message = f"{where}: {error} (in {text!r})"
            raise RuleError(message) from error
    for pattern in rule.pattern:
        problem = None if pattern.artefact is not None else unusable(pattern.regex)
        if problem is not None:
            message = f"{where}: {pattern.name}: {problem}"
            raise RuleError(message)


def unusable(text: str) -> str | None:
    """What is wrong with a user's regex; compiling a huge one would take for ever."""
    import regex

    from vllm_triage.syntax import copies, parse

    if len(text) > _MAX_REGEX:
        return f"regex is longer than {_MAX_REGEX:,} characters"
    try:
        with contextlib.suppress(ValueError):
            if copies(parse(text)) > _MAX_COPIES:
                return "regex repeats its parts too often: lower the numbers in its braces"
        regex.compile(text, regex.MULTILINE)
    except RecursionError:
        return "regex is nested too deep"
    except (regex.error, OverflowError, ValueError) as error:
        return f"regex does not compile: {error}"
    return None


def _texts(rule: Rule | Extension) -> Iterator[str]:
    if isinstance(rule, Rule):
        yield from (rule.title, rule.summary, rule.cause, *rule.verify_texts)
    for fix in rule.fix:
        yield from (fix.do, fix.command or "", fix.why or "", *fix.change.values())
        for form in fix.form:
            yield from (form.command or "", *form.change.values())
