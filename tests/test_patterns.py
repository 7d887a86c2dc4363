"""Every rule's own tests: hits, misses, templates, captures and linear time."""

import pytest

from vllm_triage import rule_check
from vllm_triage.catalogue import Catalogue, folder
from vllm_triage.kinds import Kind

PROBLEMS = rule_check.check()


@pytest.mark.parametrize("kind", list(Kind))
def test_a_kind_has_a_rule_that_keeps_its_promises(kind: Kind, catalogue: Catalogue) -> None:
    assert kind in catalogue.rules
    path = f"{kind.area}/{kind.value.partition('.')[2]}.toml"

    assert [text for text in PROBLEMS if text.startswith(path)] == []


def test_no_other_problem_is_left() -> None:
    assert PROBLEMS == []


def test_every_rule_has_a_real_pattern_or_is_told_by_the_run(catalogue: Catalogue) -> None:
    bare = [
        kind.value
        for kind, rule in catalogue.rules.items()
        if not rule.pattern and not rule.variant
    ]

    assert bare == []


def test_the_patterns_of_the_checkout_are_the_ones_in_force() -> None:
    assert (folder() / "README.md").is_file()
