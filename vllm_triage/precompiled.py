"""Precompiled: what compiling the built-in regexes gives, written when the package is built.

Compiling one takes about a third of a millisecond and a log has a use for a hundred. What the
`regex` package gives for pickling a compiled regex is plain data, which we keep. It is used
where the same release of it runs on a machine of the same byte order, and else compiled anew.
"""

import copyreg
import marshal
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import regex

from vllm_triage.tables import folder

NAME = "precompiled.marshal"
_MARSHAL_VERSION = 4
_Key = tuple[str | bytes, int]


def compiled(text: str | bytes, flags: int) -> "regex.Pattern[Any]":
    """A regex, from what is precompiled where it is there."""
    data = _ready().get((text, int(flags)))
    if data is not None:
        try:
            found: regex.Pattern[Any] = _rebuild()(text, *marshal.loads(data))
        except (ValueError, EOFError, TypeError, RuntimeError):
            return regex.compile(text, flags)
        return found
    return regex.compile(text, flags)


def write(target: Path, wanted: Iterable[_Key]) -> None:
    """Compile regexes and write what that gives."""
    data = {}
    for text, flags in wanted:
        _, arguments = _reduce(regex.compile(text, flags))
        data[text, int(flags)] = marshal.dumps(arguments[1:], _MARSHAL_VERSION)
    target.write_bytes(marshal.dumps((_stamp(), data), _MARSHAL_VERSION))


def read(path: Path) -> Mapping[_Key, bytes]:
    """What was written for this release of `regex`; nothing when it was for another, or is not there."""
    try:
        stamp, data = marshal.loads(path.read_bytes())
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    found: Mapping[_Key, bytes] = data if stamp == _stamp() else {}
    return found


@cache
def _ready() -> Mapping[_Key, bytes]:
    return read(folder() / NAME)


def _stamp() -> tuple[str, str, int]:
    return regex.__version__, sys.byteorder, sys.maxsize


def _reduce(pattern: "regex.Pattern[Any]") -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What pickling a regex gives: a function, and what it takes to make it again."""
    made: tuple[Callable[..., Any], tuple[Any, ...]] = copyreg.dispatch_table[type(pattern)](  # type: ignore[assignment]
        pattern
    )
    return made


@cache
def _rebuild() -> Callable[..., Any]:
    return _reduce(regex.compile(""))[0]
