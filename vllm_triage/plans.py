"""Plans: under which words the gates look for the built-in patterns, worked out when the package is built."""

import marshal
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vllm_triage.conditions import looks_at
from vllm_triage.gate import Plan, planned
from vllm_triage.lines import Origin
from vllm_triage.rules import Pattern, Rule
from vllm_triage.tables import folder

NAME = "plans.marshal"
_MARSHAL_VERSION = 4
# Most lines are of access and few patterns ask for those.
_ORIGINS = (Origin.LOG, Origin.ACCESS, Origin.STATISTICS)
_Asked = list[tuple[tuple[str, ...], tuple[str, ...], str]]


class Plans(NamedTuple):
    """A plan for each sort of line; what they were worked out from."""

    asked: _Asked
    by_origin: Mapping[Origin, Plan]


def plans(patterns: Sequence[Pattern]) -> Mapping[Origin, Plan]:
    """The plans for patterns, which they name by their places in the row."""
    ready = _built_in()
    if ready is not None and ready.asked == _asked(patterns):
        return ready.by_origin
    return _worked_out(patterns)


def write(target: Path, rules: Iterable[Rule]) -> None:
    """Write the plans of rules."""
    patterns = [pattern for rule in rules for pattern in rule.worded]
    found = {origin.value: tuple(plan) for origin, plan in _worked_out(patterns).items()}
    target.write_bytes(marshal.dumps((_asked(patterns), found), _MARSHAL_VERSION))


def read(path: Path) -> Plans | None:
    """What was written; None where there is none that can be read."""
    try:
        asked, found = marshal.loads(path.read_bytes())
        return Plans(asked, {Origin(origin): Plan(*data) for origin, data in found.items()})
    except (OSError, ValueError, EOFError, TypeError):
        return None


@cache
def _built_in() -> Plans | None:
    return read(folder() / NAME)


def _asked(patterns: Iterable[Pattern]) -> _Asked:
    return [(one.keywords, one.any_of, one.origin) for one in patterns]


def _worked_out(patterns: Sequence[Pattern]) -> Mapping[Origin, Plan]:
    return {
        origin: planned(
            (one.keywords, one.any_of, number)
            for number, one in enumerate(patterns)
            if looks_at(one, origin)
        )
        for origin in _ORIGINS
    }
