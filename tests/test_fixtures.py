"""One case a fixture log: its exact set of kinds, its root cause, the line that states it."""

import pytest

from tests.conftest import Fixture, fixtures, name_of
from vllm_triage import triage

ALL = [
    pytest.param(
        one,
        id=name_of(one),
        marks=[pytest.mark.xfail(reason=one.todo, strict=True)] if one.todo else [],
    )
    for one in fixtures()
]


@pytest.mark.parametrize("fixture", ALL)
def test_a_log_gives_exactly_its_kinds(fixture: Fixture) -> None:
    report = triage(fixture.log)

    assert {incident.kind.value for incident in report.incidents} == fixture.kinds
    assert (report.root.kind.value if report.root else "none") == fixture.root


@pytest.mark.parametrize(
    "fixture", [one for one in fixtures() if one.line is not None], ids=name_of
)
def test_the_first_evidence_is_the_line_that_states_the_cause(fixture: Fixture) -> None:
    report = triage(fixture.log)

    assert report.root is not None
    first = report.root.evidence[0]
    assert first.line == fixture.line
    assert first.source.endswith(fixture.log.name)


def test_there_are_fixtures_of_every_area_and_healthy_ones() -> None:
    areas = {one.root.partition(".")[0] for one in fixtures()}

    assert areas >= {
        "none", "oom", "performance", "loading", "network", "quantization",
        "distributed", "gpu", "engine", "config", "request", "host",
    }  # fmt: skip
