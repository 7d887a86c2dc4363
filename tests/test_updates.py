"""A stream tells the same as a triage of the whole file, only earlier."""

import pytest

from tests.conftest import Fixture, fixtures, name_of
from vllm_triage import Scanner, triage
from vllm_triage.model import Incident, Update


def latest(updates: list[Update]) -> dict[str, Update]:
    """What a reader who replaces older revisions has in the end."""
    last: dict[str, Update] = {}
    for update in updates:
        before = last.get(update.id)
        assert update.revision == (1 if before is None else before.revision + 1)
        last[update.id] = update
    return {key: update for key, update in last.items() if not update.withdrawn}


def content(incident: Incident, names: dict[str, str]) -> dict[str, object]:
    fields = incident.model_dump(include=set(Incident.model_fields) - {"id"})
    fields["caused_by"] = names.get(incident.caused_by or "")
    return fields


def named(incident: Incident) -> str:
    return f"{incident.kind} {getattr(incident.facts, 'exception', '')}"


def streamed(text: str, name: str) -> list[Update]:
    scanner = Scanner(name)
    updates: list[Update] = []
    for row in text.split("\n"):
        updates += scanner.feed(row)
    return [*updates, *scanner.close()]


@pytest.mark.parametrize("fixture", [pytest.param(one, id=name_of(one)) for one in fixtures()])
def test_a_log_fed_line_by_line_gives_the_incidents_of_the_whole_log(fixture: Fixture) -> None:
    whole = triage(fixture.log)
    text = fixture.log.read_bytes().decode("utf-8", "replace")

    last = latest(streamed(text, str(fixture.log)))

    expected = {one.id: named(one) for one in whole.incidents}
    told = {one.id: named(one) for one in last.values()}
    assert {told[one.id]: content(one, told) for one in last.values()} == {
        expected[one.id]: content(one, expected) for one in whole.incidents
    }
    assert len(last) == len(whole.incidents)
    assert {told.get(one.root_cause or "") for one in last.values()} <= {
        expected.get(whole.root_cause or "")
    }
