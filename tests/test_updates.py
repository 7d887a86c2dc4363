"""A stream tells the same as a triage of the whole file, only earlier."""

import random
from collections.abc import Iterator

import pytest

from tests.conftest import Fixture, fixtures, name_of
from vllm_triage import Kind, Scanner, triage
from vllm_triage.contract import validated
from vllm_triage.model import Incident, Update
from vllm_triage.plain import fields
from vllm_triage.updates import Teller


def latest(updates: list[Update]) -> dict[str, Update]:
    """What a reader who replaces older revisions has in the end."""
    last: dict[str, Update] = {}
    for update in updates:
        before = last.get(update.id)
        assert update.revision == (1 if before is None else before.revision + 1)
        last[update.id] = update
    return {key: update for key, update in last.items() if not update.withdrawn}


def content(incident: Incident, names: dict[str, str]) -> dict[str, object]:
    found = validated(incident).model_dump(include={*fields(Incident)} - {"id"})
    found["caused_by"] = names.get(incident.caused_by or "")
    return found


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


def checked(scanner: Scanner, rows: list[str], *, quiet: random.Random | None) -> list[Update]:
    """Stream rows, with silences at random; hold what every reader of updates relies on."""
    updates: list[Update] = []
    known: set[str] = set()

    def take(news: Iterator[Update]) -> None:
        for update in news:
            assert update.caused_by is None or update.caused_by in known
            known.add(update.id)
            # The root cause comes first, or was told before.
            assert update.root_cause is None or update.root_cause in known
            updates.append(update)

    for row in rows:
        take(scanner.feed(row))
        if quiet is not None and quiet.random() < 0.1:
            take(scanner.quiet(scanner.number - quiet.randrange(3)))
    take(scanner.close())
    withdrawn: set[str] = set()
    for update in updates:
        assert update.withdrawn or update.id not in withdrawn or update.revision > 2
        withdrawn |= {update.id} if update.withdrawn else set()
    return updates


SHARED = Scanner()


@pytest.mark.parametrize("fixture", [pytest.param(one, id=name_of(one)) for one in fixtures()])
def test_silences_at_any_moment_change_no_root_cause(fixture: Fixture) -> None:
    rows = fixture.log.read_bytes().decode("utf-8", "replace").split("\n")
    whole = triage(fixture.log)

    smooth = checked(Scanner(like=SHARED), rows, quiet=None)
    last = latest(smooth)
    assert {one.kind for one in last.values()} == {one.kind for one in whole.incidents}
    for seed in range(2):
        halting = checked(Scanner(like=SHARED), rows, quiet=random.Random(seed))
        roots = {one.kind for one in latest(halting).values() if one.root_cause == one.id}
        assert roots == {one.kind for one in whole.incidents if one.id == whole.root_cause}


EARLY_DEATH = (
    "(APIServer pid=1) ERROR 01-01 00:00:01 [async_llm.py:480] "
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
    "See stack trace (above) for the root cause."
)
CAUSE = (
    "(EngineCore pid=2) ERROR 01-01 00:00:01 [core.py:700] torch.OutOfMemoryError: "
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
)
CALM = "(APIServer pid=1) INFO 01-01 00:00:02 [launcher.py:1] all is calm"


def test_a_consequence_waits_for_its_cause_and_is_told_after_it() -> None:
    scanner = Scanner()
    early = list(scanner.feed(EARLY_DEATH)) + list(scanner.feed(CALM))
    later = list(scanner.feed(CAUSE)) + list(
        scanner.feed(CALM.replace("APIServer pid=1", "EngineCore pid=2"))
    )

    assert early == []
    assert [one.kind.area for one in later] == ["oom", "engine"]
    assert later[1].caused_by == later[0].id == later[1].root_cause == later[0].root_cause
    assert [one.revision for one in later] == [1, 1]


def test_a_consequence_whose_cause_does_not_come_is_told_when_it_is_quiet() -> None:
    scanner = Scanner()
    list(scanner.feed(EARLY_DEATH)) + list(scanner.feed(CALM))

    assert list(scanner.quiet(0)) == []
    (dead,) = scanner.quiet(2)
    assert dead.kind == "engine.dead"
    assert dead.root_cause == dead.id
    cause, again = [*scanner.feed(CAUSE), *scanner.quiet(3)]
    assert (again.id, again.revision) == (dead.id, 2)
    assert again.caused_by == again.root_cause == cause.id


def test_a_consequence_without_silence_is_told_after_a_thousand_lines() -> None:
    scanner = Scanner()
    told = [list(scanner.feed(row)) for row in (EARLY_DEATH, *(CALM,) * 1100)]

    (at,) = [number for number, news in enumerate(told) if news]
    assert at == 1001


def test_repeats_wait_for_a_silence() -> None:
    scanner = Scanner()
    told = [
        update
        for number in range(50)
        for row in (CAUSE, CALM.replace("APIServer", "EngineCore"))
        for update in scanner.feed(row.replace("pid=1", "pid=2").replace("pid=2", f"pid={number}"))
    ]
    assert [one.count for one in told] == [1]

    (more,) = scanner.quiet(100)
    assert (more.revision, more.count) == (2, 50)
    assert list(scanner.quiet(100)) == []


def found(text: str = CAUSE, **changes: object) -> Incident:
    (one,) = triage(iter([text])).incidents
    return one.model_copy(update=changes)


def test_an_incident_that_turned_out_to_be_none_is_withdrawn_once_and_may_come_back() -> None:
    teller = Teller()
    cause = found()
    (first,) = teller.news([cause], cause.id)
    (gone,) = teller.news([], None)

    assert (gone.id, gone.revision, gone.withdrawn, gone.root_cause) == (first.id, 2, True, None)
    assert list(teller.news([], None)) == []
    (back,) = teller.news([cause], cause.id)
    assert (back.id, back.revision, back.withdrawn) == (first.id, 3, False)


def test_what_was_held_back_and_turned_out_to_be_none_is_never_told() -> None:
    teller = Teller()
    dead = found(EARLY_DEATH)

    assert list(teller.news([dead], dead.id, line=1)) == []
    assert list(teller.news([], None, line=2)) == []
    assert not teller.is_due(5000, 5000)
    assert list(teller.news([], None, line=5000, quiet=5000, is_end=True)) == []


def test_of_what_is_kept_only_the_repeats_since_are_news() -> None:
    teller = Teller()
    cause = found()
    list(teller.news([cause], cause.id))
    teller.forget([cause.model_copy(update={"count": 4})])

    # Of the next round number the four are the greater part.
    assert list(teller.news([cause.model_copy(update={"count": 4})], cause.id, is_end=False)) == []
    (more,) = teller.news([cause.model_copy(update={"count": 5})], cause.id, is_end=True)
    assert (more.revision, more.count) == (2, 5)
    teller.forget([])
    (anew,) = teller.news([cause], cause.id)
    assert anew.revision == 1


def test_a_root_cause_that_must_wait_is_not_named_before_it_is_told() -> None:
    teller = Teller()
    cause, dead = found(), found(EARLY_DEATH)
    (first,) = teller.news([cause], cause.id, line=1)
    assert first.root_cause == cause.id

    # While it waits for a cause, the one that was told before stays.
    assert list(teller.news([dead, cause], dead.id, line=2)) == []
    (again,) = teller.news([dead], dead.id, line=3)
    assert (again.id, again.withdrawn, again.root_cause) == (cause.id, True, None)


def test_two_that_seem_to_cause_each_other_are_told_at_the_end() -> None:
    teller = Teller()
    dead = found(EARLY_DEATH)
    crash = dead.model_copy(update={"kind": Kind.ENGINE_CRASHED, "id": "b", "caused_by": dead.id})
    dead = dead.model_copy(update={"caused_by": "b"})

    assert list(teller.news([dead, crash], dead.id, line=1)) == []
    told = list(teller.news([dead, crash], dead.id, line=2, is_end=True))
    assert {one.id for one in told} == {dead.id, "b"}
