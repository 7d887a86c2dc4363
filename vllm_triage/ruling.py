"""Ruling out: why a step is of no use for the run at hand."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vllm_triage import templates
from vllm_triage.arguments import Value
from vllm_triage.numbers import whole
from vllm_triage.rules import Fix
from vllm_triage.tables import table

ALREADY = "already set so"
NOT_SET = "the flag is not set here"


class Proposal(NamedTuple):
    """What a step would do."""

    texts: tuple[str, ...]
    """The templates that it is written with."""
    flags: Mapping[str, str]
    """The flags that it sets, with their values; empty when it is no mere change of flags."""


def states(condition: str, values: Mapping[str, str]) -> bool:
    """Tell whether `name` or `name=value` holds."""
    name, sign, value = condition.partition("=")
    return values.get(name) == value if sign else bool(values.get(name))


def permits(where: Mapping[str, Iterable[str]], values: Mapping[str, str]) -> bool:
    """Tell whether all facts that are stated have one of the allowed values."""
    return all(not values.get(name) or values[name] in allowed for name, allowed in where.items())


def ruled_out(
    fix: Fix, proposal: Proposal, values: Mapping[str, str], arguments: Mapping[str, Value]
) -> str | None:
    """Why a step is of no use: half a line, None when nothing speaks against it."""
    for condition, why in fix.ruled_out.items():
        if states(condition, values):
            return templates.fill(why, values)
    wanted = proposal.flags.items()
    against = {flag: _against(flag, value, values, arguments) for flag, value in wanted}
    if against and None not in against.values():
        return next(iter(against.values()))
    unfitting = _none_fits(proposal, values)
    if unfitting is not None or not wanted or not arguments:
        return unfitting
    if any(against[flag] is None and not is_so(flag, value, arguments) for flag, value in wanted):
        return None
    return NOT_SET if all(value == "-" for _, value in wanted) else ALREADY


def _none_fits(proposal: Proposal, values: Mapping[str, str]) -> str | None:
    for text in proposal.texts:
        for name in sorted(templates.names(text)):
            if values.get(name) == "" and name in table("ruled-out")["none_fits"]:
                return str(table("ruled-out")["none_fits"][name])
    return None


def is_so(flag: str, value: str, arguments: Mapping[str, Value]) -> bool:
    """Tell whether a run was started with a flag so; the value `-` is for one that is not there."""
    shown = arguments.get(flag.removeprefix("--").replace("-", "_"))
    if shown is None or shown is False:
        return value == "-"
    return str(shown) == value if shown is not True else value == ""


def _against(
    flag: str, value: str, values: Mapping[str, str], arguments: Mapping[str, Value]
) -> str | None:
    if value == "-" or arguments.get(flag.removeprefix("--").replace("-", "_")) is False:
        return None
    for rule in table("ruled-out")["rule"]:
        if flag not in rule["flags"]:
            continue
        where: Mapping[str, list[str]] = rule.get("where", {})
        if any(values.get(name) not in allowed for name, allowed in where.items()):
            continue
        limit = values.get(rule["above"], "") if "above" in rule else None
        if limit is None or (
            limit.isdecimal() and value.isdecimal() and whole(value) > whole(limit)
        ):
            return templates.fill(rule["why"], values)
    return None


def names() -> frozenset[str]:
    """The facts that the table asks for."""
    rules = table("ruled-out")["rule"]
    asked = {name for rule in rules for name in rule.get("where", {})}
    return frozenset(asked | {rule["above"] for rule in rules if "above" in rule})
