"""Prebuilt: the content of the TOML files under `patterns/`, read once, when the package is built.

Reading TOML takes longer than most logs do. The build (`hatch_build.py`) puts the parsed content
beside the files, as plain data; a file that has changed since then is why all of it is passed
over. What a run asks of few rules, their steps and examples, is put aside, to be read when it is
asked for. The build has nothing but the standard library.
"""

import marshal
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_triage.plain import LATER

NAME = "prebuilt.marshal"
# Pythons from 3.4 on read it.
_MARSHAL_VERSION = 4


def names(folder: Path) -> list[str]:
    """The TOML files under a folder, `NAME.toml` and `AREA/NAME.toml`."""
    found = []
    for one in os.scandir(folder):
        if one.name.endswith(".toml"):
            found.append(one.name)
        elif one.is_dir():
            inside = os.listdir(one)  # noqa: PTH208, a path each would take as long as the rest
            found += [f"{one.name}/{name}" for name in inside if name.endswith(".toml")]
    return sorted(found)


def write(folder: Path, target: Path, *, is_edited: bool) -> None:
    """Write the content of a folder's TOML files.

    Where the files are edited (a checkout), their times are kept too: a change can leave a file
    as long as it was. Elsewhere whoever installs the files sets their times.
    """
    import tomllib

    out: dict[str, tuple[int, int, bytes]] = {}
    for name in names(folder):
        path = folder / name
        content = path.read_bytes()
        data = marshal.dumps(_packed(tomllib.loads(content.decode("utf-8"))), _MARSHAL_VERSION)
        out[name] = len(content), path.stat().st_mtime_ns if is_edited else 0, data
    target.write_bytes(marshal.dumps(out, _MARSHAL_VERSION))


def read(folder: Path) -> Mapping[str, bytes] | None:
    """The prebuilt content of a folder's files by their names, for `content`.

    None when there is none, or the files have changed since.
    """
    try:
        found: dict[str, tuple[int, int, bytes]] = marshal.loads((folder / NAME).read_bytes())
        if sorted(found) != names(folder):
            return None
        start = f"{folder}{os.sep}"
        for name, (size, time, _) in found.items():
            status = os.stat(start + name)  # noqa: PTH116
            if status.st_size != size or time not in (0, status.st_mtime_ns):
                return None
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return {name: data for name, (_, _, data) in found.items()}


def content(data: bytes) -> dict[str, Any]:
    """What one file says, for `plain.made`: what a run asks of few rules is under `LATER`."""
    found: dict[str, Any] = marshal.loads(data)
    return found


def whole_content(data: bytes) -> dict[str, Any]:
    """What one file says."""
    found = content(data)
    for one in (found, *found.get("pattern", ())):
        if LATER in one:
            one.update(marshal.loads(one.pop(LATER)))
    return found


def _packed(found: dict[str, Any]) -> dict[str, Any]:
    """What a file says; of a rule the steps and the patterns' examples as one value each."""
    if "pattern" not in found:
        return found
    _put_later(found, "fix")
    for pattern in found["pattern"]:
        _put_later(pattern, "hits", "misses")
    return found


def _put_later(table: dict[str, Any], *names: str) -> None:
    later = {name: table.pop(name) for name in names if name in table}
    table[LATER] = marshal.dumps(later, _MARSHAL_VERSION)
