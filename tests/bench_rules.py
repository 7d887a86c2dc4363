"""The built-in patterns once more, as a folder of user's rules."""

import json
import tomllib
from pathlib import Path
from typing import Any

from vllm_triage import catalogue
from vllm_triage.tables import folder


def doubled(target: Path) -> Path:
    """A folder that adds every built-in pattern of a log a second time, under another name.

    A copy searches for the same keywords and has the same conditions; its regex is another
    one that finds the same, so that nothing that is kept for the first serves the second.
    """
    for path in catalogue.files(folder()):
        every = tomllib.loads(path.read_text("utf-8")).get("pattern", [])
        patterns = [one for one in every if "regex" in one]
        if not patterns:
            continue
        copy = target / path.relative_to(folder())
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("".join(map(_again, patterns)), "utf-8")
    return target


def _again(pattern: dict[str, Any]) -> str:
    other = {**pattern, "name": f"{pattern['name']}-again"}
    if "regex" in pattern:
        other["regex"] = f"(?:{pattern['regex']})"
    return "[[pattern]]\n" + "".join(f"{name} = {_toml(one)}\n" for name, one in other.items())


def _toml(value: object) -> str:
    """A string of JSON is one of TOML, so is a list or a number."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(name)} = {_toml(one)}" for name, one in value.items())
            + "}"
        )
    return json.dumps(value, ensure_ascii=False)
