"""Every rule's own tests: hits, misses, templates, captures and linear time."""

import pytest

from tests.alternatives import TooManyWaysError, literals
from vllm_triage import rule_check
from vllm_triage.catalogue import Catalogue
from vllm_triage.kinds import Kind
from vllm_triage.tables import folder

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


# Their keyword is a condition of its own: the regex may match without it.
CONDITIONS = {
    "network.hub_unreachable:shell-cannot-reach-the-hub",
    "loading.weights_invalid:weight-key-alone",
}


def test_the_gate_shuts_no_alternative_of_a_regex_out(catalogue: Catalogue) -> None:
    shut = []
    for kind, rule in catalogue.rules.items():
        for pattern in rule.worded:
            name = f"{kind}:{pattern.name}"
            try:
                ways = literals(pattern.regex)
            except TooManyWaysError:
                continue
            shut += [
                f"{name}: {word!r} is not in {way}"
                for way in ways
                for word in pattern.keywords
                if name not in CONDITIONS and not any(word in text for text in way)
            ][:1]
            if pattern.any_of:
                shut += [f"{name}: none of any_of is in {way}" for way in ways if not any(word in text for text in way for word in pattern.any_of)][:1]  # fmt: skip

    assert shut == []
