"""Tables: where the built-in data lies, and the single files of it."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


def folder() -> Path:
    """The built-in pattern files and tables: the wheel's own copy, else the checkout's."""
    packaged = Path(__file__).parent / "patterns"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "patterns"


@cache
def table(name: str) -> dict[str, Any]:
    """The content of `patterns/NAME.toml`, read once."""
    found: dict[str, Any] = tomllib.loads((folder() / f"{name}.toml").read_text("utf-8"))
    return found
