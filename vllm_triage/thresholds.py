"""Thresholds: from where on a value counts as a fault, named so that a user can set another.

`patterns/thresholds.toml` has them; a pattern's `at_least` and `at_most` may name one.
"""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import NamedTuple

from vllm_triage.errors import RuleError, TriageError
from vllm_triage.kinds import Kind
from vllm_triage.rules import Pattern, Rule
from vllm_triage.tables import table


class Threshold(NamedTuple):
    """A named bound."""

    name: str
    value: float
    unit: str
    meaning: str
    """Half a sentence: of what, and on which side the fault is."""
    documented: bool


def thresholds() -> tuple[Threshold, ...]:
    """Those that there are, with their usual values."""
    return tuple(
        Threshold(
            name,
            float(one["value"]),
            one["unit"],
            one["meaning"],
            documented=one.get("documented", False),
        )
        for name, one in table("thresholds").items()
    )


def chosen(given: Mapping[str, float | str]) -> dict[str, float]:
    """The usual values, with those that a user gave in their place.

    Raises TriageError for a name that is none, and for a value that is no number from 0 on.
    """
    values = {name: float(one["value"]) for name, one in table("thresholds").items()}
    for name, text in given.items():
        if name not in values:
            message = f"threshold {name}: no such threshold; {_hint(name, values)}"
            raise TriageError(message)
        try:
            value = float(text)
        except (TypeError, ValueError):
            value = -1.0
        if not isfinite(value) or value < 0:
            message = f"threshold {name}={text}: not a number from 0 on; write it as {name}={values[name]:g}"
            raise TriageError(message)
        values[name] = value
    return values


def parsed(texts: tuple[str, ...]) -> dict[str, str]:
    """What `NAME=VALUE` texts say. Raises TriageError for one without a value."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            message = f"threshold {text}: write it as NAME=VALUE, as ttft-ms=500"
            raise TriageError(message)
        found[name.strip()] = value.strip()
    return found


def resolved(
    rules: Mapping[Kind, Rule], given: Mapping[str, float | str] | None = None
) -> dict[Kind, Rule]:
    """The rules with numbers in place of the names of thresholds.

    Raises TriageError for what was given wrong, RuleError for a pattern that names none.
    """
    values = chosen(given or {})
    out = dict(rules)
    for kind, rule in rules.items():
        if any(map(_names, rule.pattern)):
            patterns = tuple(_resolved(kind, one, values) for one in rule.pattern)
            out[kind] = rule.model_copy(update={"pattern": patterns})
    return out


def _names(pattern: Pattern) -> bool:
    if not (pattern.at_least or pattern.at_most):
        return False
    return any(isinstance(bound, str) for bound in _bounds(pattern))


def _bounds(pattern: Pattern) -> Iterator[float | str]:
    yield from pattern.at_least.values()
    yield from pattern.at_most.values()


def _resolved(kind: Kind, pattern: Pattern, values: Mapping[str, float]) -> Pattern:
    if not _names(pattern):
        return pattern
    for bound in _bounds(pattern):
        if isinstance(bound, str) and bound not in values:
            message = f"{kind}: {pattern.name}: {bound!r} is no threshold; {_hint(bound, values)}"
            raise RuleError(message)
    return pattern.model_copy(
        update={
            "at_least": _numbers(pattern.at_least, values),
            "at_most": _numbers(pattern.at_most, values),
        }
    )


def _numbers(bounds: Mapping[str, float | str], values: Mapping[str, float]) -> dict[str, float]:
    return {
        name: values[bound] if isinstance(bound, str) else bound for name, bound in bounds.items()
    }


def _hint(name: str, known: Mapping[str, float]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, 3, 0.5)
    return f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(known)}"
