"""Causes: which of the things that a log shows explains the others."""

from collections.abc import Sequence
from functools import cache

from vllm_triage.globs import fits
from vllm_triage.groups import GRAVITY, Group, clock, is_warning
from vllm_triage.kinds import Confidence, Kind, Role, Severity
from vllm_triage.matches import Match, Unknown


def choose(chain: Sequence[Match | Unknown]) -> Match | Unknown | None:
    """Pick what a printed chain of exceptions is about.

    The innermost cause of a `direct cause` chain; the last of a `during handling`
    chain, unless it only wraps or is itself explained by the earlier one.
    """
    best: Match | Unknown | None = None
    for item in chain:
        if best is None:
            best = item
            continue
        if isinstance(item, Unknown):
            if isinstance(best, Unknown):
                best = item if item.event.link == "context" else best
            elif best.recogniser.role is Role.CONSEQUENCE:
                best = item
            continue
        if isinstance(best, Unknown):
            best = item
        elif item.kind is best.kind:
            if item.event.link == "context" or _surer(item, best):
                best = item
        elif (
            best.recogniser.role is Role.CONSEQUENCE
            or explains(item.kind, best.recogniser.rule.explained_by)
            or (
                item.event.link == "context"
                and item.recogniser.role is Role.CAUSE
                and not explains(best.kind, item.recogniser.rule.explained_by)
            )
        ):
            best = item
    return best


def _surer(item: Match, other: Match) -> bool:
    order = list(Confidence)
    return order.index(item.recogniser.pattern.confidence) < order.index(
        other.recogniser.pattern.confidence
    )


@cache
def explains(kind: Kind, explained_by: tuple[str, ...]) -> bool:
    """Tell whether a kind is among those that explain another."""
    return any(fits(kind.value, glob) for glob in explained_by)


_TIER = {Role.CAUSE: 0, Role.SYMPTOM: 1, Role.CONSEQUENCE: 2}


def order(groups: Sequence[Group]) -> list[Group]:
    """Sort groups, the root cause first, and hang consequences under what explains them.

    A cause comes before a symptom before a consequence, an error before a warning; what
    another kind in the log explains comes after it; among equals, what happened first.
    """
    if not groups:
        return []
    several = len({group.line.source for group in groups}) > 1
    clocks = {id(group): clock(group.first_seen) for group in groups}
    by_clock = several and all(clocks.values())

    def when(group: Group) -> tuple[object, ...]:
        at = clocks[id(group)]
        return (at, group.position) if by_clock and at else (group.position,)

    fatal = [group for group in groups if group.severity is not Severity.NOTICE]
    for group in groups:
        group.caused_by = _explanation(group, fatal or groups)
    ranked = sorted(
        groups,
        key=lambda group: (
            group.caused_by is not None,
            GRAVITY[group.severity],
            _TIER[group.role],
            # What stopped the server outranks what it warned of and went on.
            is_warning(group.event),
            *when(group),
        ),
    )
    root = ranked[0]
    for group in ranked[1:]:
        if group.caused_by is None and _follows(group, root):
            group.caused_by = root
    return ranked


def _explanation(group: Group, others: Sequence[Group]) -> Group | None:
    for other in others:
        if other is group or not explains(other.kind, group.explained_by):
            continue
        if GRAVITY[other.severity] > GRAVITY[group.severity]:
            continue
        if other.role is Role.CONSEQUENCE or _TIER[other.role] > _TIER[group.role]:
            continue
        # Two kinds may each name the other: then the first one said is the cause.
        mutual = explains(group.kind, other.explained_by)
        if not mutual or other.position < group.position:
            return other
    return None


def _follows(group: Group, root: Group) -> bool:
    if group.severity is Severity.NOTICE:
        return False
    if group.role is Role.CONSEQUENCE:
        return True
    return group.role is Role.SYMPTOM and root.role is Role.CAUSE
