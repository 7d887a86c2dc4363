"""The gate: what a text must hold so that a pattern can match it."""

import pytest

from tests.anchors import anchors
from vllm_triage.catalogue import Catalogue, load
from vllm_triage.kinds import Level
from vllm_triage.rules import Pattern

CATALOGUE = load()


def held(words: tuple[str, ...], found: tuple[str, ...]) -> list[bool]:
    return [any(anchor in word for anchor in found) for word in words]


def implies_an_anchor(pattern: Pattern, found: tuple[str, ...]) -> bool:
    """One keyword is in the text, or one of all alternatives, or the name of one of all classes."""
    one_of = [held(words, found) for words in (pattern.any_of, pattern.exception) if words]
    return any(held(pattern.keywords, found)) or any(all(ways) for ways in one_of)


@pytest.mark.parametrize("level", list(Level))
def test_every_pattern_of_a_level_implies_an_anchor(level: Level) -> None:
    found = anchors(CATALOGUE, level)
    patterns = [
        pattern
        for rule in CATALOGUE.rules.values()
        for pattern in rule.worded
        if pattern.level.rank <= level.rank and pattern.origin not in ("access", "statistics")
    ]

    assert [one.name for one in patterns if not implies_an_anchor(one, found)] == []


def test_missing_anchors_are_noticed() -> None:
    found = anchors(CATALOGUE)
    patterns = [pattern for rule in CATALOGUE.rules.values() for pattern in rule.worded]

    assert not all(implies_an_anchor(one, found[::2]) for one in patterns)


def test_anchors_are_few_and_sorted_and_the_same_each_time() -> None:
    found = anchors(CATALOGUE)
    words = {
        word for rule in CATALOGUE.rules.values() for one in rule.pattern for word in one.keywords
    }

    assert found == tuple(sorted(found)) == anchors(CATALOGUE)
    assert len(found) < len(words) / 2
    assert (
        len(anchors(CATALOGUE, Level.INFO)) < len(anchors(CATALOGUE, Level.WARNING)) < len(found)
    )


def test_no_rules_have_no_anchors() -> None:
    assert anchors(Catalogue({}, {})) == ()
