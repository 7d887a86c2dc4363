"""Tables: where the built-in data lies, and the single files of it."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from vllm_triage import prebuilt


@cache
def folder() -> Path:
    """The built-in pattern files and tables: the wheel's own copy, else the checkout's."""
    packaged = Path(__file__).parent / "patterns"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "patterns"


@cache
def parsed() -> Mapping[str, bytes] | None:
    """What the build has read of the built-in files, by their names; None where it has not."""
    return prebuilt.read(folder())


@cache
def table(name: str) -> dict[str, Any]:
    """The content of `patterns/NAME.toml`, read once."""
    ready = parsed()
    if ready is not None:
        return prebuilt.content(ready[f"{name}.toml"])
    import tomllib

    return tomllib.loads((folder() / f"{name}.toml").read_text("utf-8"))
