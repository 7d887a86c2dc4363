"""The plans of the gates are those that the patterns give, and are used for no others."""

from pathlib import Path

import pytest

from vllm_triage import plans
from vllm_triage.catalogue import built_in, load
from vllm_triage.lines import Origin
from vllm_triage.rules import Pattern

PATTERNS = [pattern for rule in load().rules.values() for pattern in rule.worded]


def test_those_that_are_written_are_those_that_are_worked_out(tmp_path: Path) -> None:
    path = tmp_path / plans.NAME
    plans.write(path, built_in().rules.values())
    found = plans.read(path)

    assert found is not None
    assert [*found.by_origin] == [Origin.LOG, Origin.ACCESS, Origin.STATISTICS]
    assert found.by_origin == plans._worked_out(PATTERNS)
    assert len(found.by_origin[Origin.LOG].words) > 500


def test_the_build_has_written_those_of_the_built_in_patterns() -> None:
    found = plans._built_in()

    assert found is not None
    assert plans.plans(PATTERNS) is found.by_origin


@pytest.mark.parametrize(
    "change", [{"keywords": ("another",)}, {"any_of": ("another",)}, {"origin": "access"}]
)
def test_other_patterns_have_other_plans(change: dict[str, object]) -> None:
    other: list[Pattern] = [PATTERNS[0].model_copy(update=change), *PATTERNS[1:]]

    assert plans.plans(other) == plans._worked_out(other) != plans.plans(PATTERNS)


@pytest.mark.parametrize("data", [b"", b"rubbish", b"i\x01\0\0\0", None])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / plans.NAME
    if data is not None:
        path.write_bytes(data)

    assert plans.read(path) is None
