"""What every match of a regex is bound to contain, read from the regex itself."""

import importlib
import re  # noqa: TID251  # only its parser: nothing is matched with it
from collections.abc import Iterable
from typing import Any

# CPython's parser of regexes; the `regex` module has none that can be asked.
_parser: Any = importlib.import_module("re._parser")
_GROUP_NAME = re.compile(r"\(\?P<\w+>")
_MAX_WAYS = 4000

# A way through a regex: its literal characters, with None where anything may stand.
Way = tuple[str | None, ...]


class TooManyWaysError(Exception):
    """The regex has more alternatives than are worth spelling out."""


def literals(regex: str) -> list[list[str]]:
    """For each way through a regex the literal texts that a match on this way contains.

    Raises TooManyWaysError for a regex with thousands of ways.
    """
    tree = _parser.parse(_GROUP_NAME.sub("(?:", regex), re.MULTILINE)
    return [_runs(way) for way in _sequence(tree)]


def _sequence(items: Iterable[tuple[object, Any]]) -> list[Way]:
    ways: list[Way] = [()]
    for name, value in items:
        ways = [way + more for way in ways for more in _item(str(name), value)]
        if len(ways) > _MAX_WAYS:
            raise TooManyWaysError
    return ways


def _item(name: str, value: Any) -> list[Way]:
    if name == "LITERAL":
        return [(chr(value),)]
    if name == "IN" and len(value) <= 2 and all(str(kind) == "LITERAL" for kind, _ in value):
        return [(chr(code),) for _, code in value]
    if name == "BRANCH":
        return [way for branch in value[1] for way in _sequence(branch)]
    if name == "SUBPATTERN":
        return _sequence(value[3])
    if name == "ATOMIC_GROUP":
        return _sequence(value)
    if name in ("AT", "ASSERT", "ASSERT_NOT"):
        return [()]
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0] > 0:
        return [(*way, None) for way in _sequence(value[2])]
    return [(None,)]


def _runs(way: Way) -> list[str]:
    runs, current = [], ""
    for character in (*way, None):
        if character is not None:
            current += character
        elif current:
            runs.append(current)
            current = ""
    return runs
