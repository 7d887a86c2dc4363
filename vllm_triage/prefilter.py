"""Prefilter: plain texts that a text must hold for a regex to match it.

Looking for them takes less than the search, and far less than compiling what will not match.
Those of the built-in patterns are read from their regexes (`necessary`) when the package is built.
"""

import marshal
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from vllm_triage.tables import folder

NAME = "prefilter.marshal"
_MARSHAL_VERSION = 4
Ways = tuple[tuple[str, ...], ...]
"""In what is matched stand all texts of one of these; none where nothing is known."""


def holds(text: str, ways: Ways) -> bool:
    """Tell whether a text holds what it must."""
    for words in ways:
        for word in words:
            if word not in text:
                break
        else:
            return True
    return not ways


def write(target: Path, asked: Mapping[str, Ways]) -> None:
    """Write what regexes ask for."""
    target.write_bytes(marshal.dumps(dict(asked), _MARSHAL_VERSION))


@cache
def built_in() -> Mapping[str, Ways]:
    """What the regexes ask for that were there when the package was built."""
    try:
        found: Mapping[str, Ways] = marshal.loads((folder() / NAME).read_bytes())
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    return found
