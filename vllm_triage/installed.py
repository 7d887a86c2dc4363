"""Installed: the rule folders that other packages bring, by the entry point `vllm_triage.rules`."""

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

GROUP = "vllm_triage.rules"
_RECORDS = (".dist-info", ".egg-info", "EGG-INFO")


def folders() -> Iterator[Path]:
    """The folder that each entry point names, or its function gives."""
    # Importing the standard library's reader takes longer than looking whether there is any.
    if not may_exist():
        return
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        target = point.load()
        yield Path(target() if callable(target) else target)


def may_exist() -> bool:
    """Tell whether some installed package may have such an entry point; False is certain."""
    if any(
        hasattr(finder, "find_distributions") and finder is not PathFinder
        for finder in sys.meta_path
    ):
        return True
    return any(_may_hold(place or ".") for place in sys.path)


def _may_hold(place: str) -> bool:
    try:
        with os.scandir(place) as found:
            records = [one.path for one in found if one.name.endswith(_RECORDS)]
    except NotADirectoryError:
        # An archive.
        return True
    except OSError:
        return False
    return any(map(_names_group, records))


def _names_group(record: str) -> bool:
    try:
        with open(os.path.join(record, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123
            return GROUP.encode() in file.read()
    except OSError:
        return False
