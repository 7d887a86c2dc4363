"""A watch tells what is new, as the logs tell it, and nothing that was there before."""

from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from vllm_triage import Kind, Scanner, Severity, follow
from vllm_triage.kinds import Confidence, Risk
from vllm_triage.model import Evidence, FixStep, Update
from vllm_triage.reports.brief import Brief
from vllm_triage.watch import Watch

SCANNER = Scanner()
CRASH = (FIXTURES / "oom" / "kv-cache-too-small.log").read_text("utf-8")
BANNER = (
    "(APIServer pid=1) INFO 12-01 05:00:00 [api_server.py:1896] vLLM API server version 0.10.2\n"
    "(APIServer pid=1) INFO 12-01 05:00:00 [utils.py:328] non-default args: {'model': 'org/name', 'max_model_len': 8192}\n"
)
READY = "(APIServer pid=1) INFO:     Application startup complete.\n"
OOM = (
    "(EngineCore_DP0 pid=9) ERROR 12-01 05:01:00 [core.py:700] torch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free.\n"
)
DEAD = "(APIServer pid=8) ERROR 12-01 05:01:02 [core_client.py:600] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n"
QUIET = "(EngineCore_DP0 pid=9) INFO 12-01 05:01:01 [core.py:701] next\n"


class Told:
    """A watch of files with a clock of its own."""

    def __init__(self, *paths: Path, from_start: bool = False) -> None:
        self.updates: list[Update] = []
        self.said: list[str] = []
        self.now = 0.0
        self.watch = Watch(
            SCANNER, self.updates.append, self.said.append, from_start=from_start, idle_s=2.0
        )
        self.watch.add_files([str(path) for path in paths])
        self.run()

    def run(self) -> list[Update]:
        """What is told until nothing more comes and everybody has been silent for a while."""
        before = len(self.updates)
        for _ in range(3):
            while self.watch.step(self.now):
                pass
            self.now += 3.0
        return self.updates[before:]


def add(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vllm.log"


def kinds(updates: list[Update]) -> list[Kind]:
    return [one.kind for one in updates]


def test_what_was_there_is_not_told_but_said_where_it_is(path: Path) -> None:
    path.write_text(CRASH)
    told = Told(path)

    assert told.updates == []
    assert len(told.said) == 1
    assert "holds oom.kv_cache" in told.said[0]
    assert told.said[0].endswith("--from-start tells them")


def test_the_run_is_known_from_what_was_there(path: Path) -> None:
    path.write_text(BANNER + READY)
    told = Told(path)
    add(path, OOM + QUIET)
    (update,) = told.run()

    assert update.evidence[0].line == 4
    assert update.fix_steps[0].command is not None
    assert "org/name" in " ".join(step.command or "" for step in update.fix_steps)
    assert told.said == []


def test_a_kind_that_was_there_before_is_new_when_it_comes_again(path: Path) -> None:
    path.write_text(OOM * 3)
    told = Told(path)
    add(path, OOM + QUIET)
    (update,) = told.run()

    assert (update.revision, update.count) == (1, 1)


def test_a_crash_that_goes_on_while_the_watch_begins_is_told_with_its_cause(path: Path) -> None:
    path.write_text(BANNER + OOM + QUIET)
    told = Told(path)
    assert told.updates == []
    add(path, DEAD)
    cause, consequence = told.run()

    assert (cause.kind, cause.revision, cause.evidence[0].line) == (Kind.OOM_LOAD, 1, 3)
    assert (consequence.kind, consequence.caused_by) == (Kind.ENGINE_DEAD, cause.id)
    assert {one.root_cause for one in (cause, consequence)} == {cause.id}
    assert consequence.title == "The engine died"
    add(path, OOM.replace("05:01:00", "05:02:00") + QUIET)
    # One crash, one incident: what comes of it later is no new one.
    assert all(one.id in (cause.id, consequence.id) for one in told.run())


@pytest.mark.parametrize("then", [BANNER, READY, BANNER + READY])
def test_a_crash_before_the_watch_explains_nothing_of_the_next_run(path: Path, then: str) -> None:
    path.write_text(BANNER + OOM + QUIET)
    told = Told(path)
    add(path, then + DEAD)

    assert [(one.kind, one.caused_by) for one in told.run()] == [(Kind.ENGINE_DEAD, None)]


def test_a_crash_that_is_half_written_when_the_watch_begins_is_told(path: Path) -> None:
    rows = CRASH.splitlines(keepends=True)
    for at in range(29, 125, 5):
        path.write_text("".join(rows[:at]))
        told = Told(path)
        add(path, "".join(rows[at:]))
        told.run()

        assert told.updates[0].kind is Kind.OOM_KV_CACHE, at
        assert {one.root_cause for one in told.updates} == {told.updates[0].id}, at


def test_from_the_start_everything_is_told(path: Path) -> None:
    path.write_text(CRASH)
    told = Told(path, from_start=True)

    assert told.updates[0].kind is Kind.OOM_KV_CACHE
    assert told.said == []


def test_an_incident_that_ends_the_log_is_told_when_it_is_quiet(path: Path) -> None:
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM)
    while told.watch.step(told.now):
        pass
    assert told.updates == []
    told.watch.step(told.now + 1.0)
    assert told.updates == []
    told.watch.step(told.now + 2.5)

    assert len(told.updates) == 1


def test_lines_are_those_of_the_file_in_which_they_stand(path: Path) -> None:
    path.write_text(BANNER + "half a line")
    told = Told(path)
    path.rename(path.with_suffix(".1"))
    path.write_text("one\n" + OOM + QUIET)
    (update,) = told.run()

    assert update.evidence[0].line == 2
    assert update.evidence[0].text.startswith("(EngineCore_DP0 pid=9) ERROR")
    # The run goes on.
    assert "org/name" in " ".join(step.command or "" for step in update.fix_steps)


def test_lines_count_anew_in_a_file_that_follows_one_with_a_whole_last_line(path: Path) -> None:
    path.write_text(BANNER)
    told = Told(path)
    path.rename(path.with_suffix(".1"))
    path.write_text(QUIET)
    told.run()
    add(path, OOM + QUIET)
    (update,) = told.run()

    assert update.evidence[0].line == 2


def test_the_middle_of_a_long_past_is_only_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PAST_HEAD", 500)
    monkeypatch.setattr(follow, "PAST_END", 1000)
    monkeypatch.setattr(follow, "_CHUNK", 100)
    monkeypatch.setattr(follow, "_PER_POLL", 300)
    monkeypatch.setattr(follow, "_SKIPPED_PER_POLL", 700)
    text = BANNER + "".join(f"INFO 12-01 05:00:00 [a.py:{n}] line {n}\n" for n in range(500))
    path.write_text(text)
    told = Told(path)
    add(path, OOM + QUIET)
    (update,) = told.run()

    assert update.evidence[0].line == 503
    assert "org/name" in " ".join(step.command or "" for step in update.fix_steps)


def test_a_server_that_got_ready_again_closes_what_was_before(path: Path) -> None:
    path.write_text("")
    told = Told(path)
    add(path, BANNER + READY + OOM + QUIET)
    first = told.run()
    add(path, BANNER + READY)
    assert [one for one in told.run() if one.revision == 1] == []
    add(path, OOM + QUIET)
    second = told.run()

    assert [(one.kind, one.revision, one.count) for one in second] == [(first[0].kind, 1, 1)]
    assert second[0].id != first[0].id


def test_a_server_that_never_gets_ready_is_one_incident(path: Path) -> None:
    path.write_text("")
    told = Told(path)
    for _ in range(5):
        add(path, BANNER + OOM + QUIET)
        told.run()

    assert len({one.id for one in told.updates}) == 1
    assert [one.count for one in told.updates] == [1, 2, 5]


def test_several_logs_are_separate_sources(tmp_path: Path) -> None:
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    for one in paths:
        one.write_text(BANNER)
    told = Told(*paths)
    for one in paths:
        add(one, OOM + QUIET)
    found = told.run()

    assert {one.evidence[0].source for one in found} == {str(one) for one in paths}
    assert [one.count for one in found] == [1, 1]


def test_the_end_tells_what_is_open(path: Path) -> None:
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM.rstrip("\n"))
    told.watch.step(told.now)
    assert told.updates == []
    told.watch.close()

    assert len(told.updates) == 1
    assert told.watch.is_over


def test_the_brief_form_has_proof_and_steps_and_tells_what_is_new(path: Path) -> None:
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM + QUIET)
    (update,) = told.run()
    brief = Brief()
    rows = brief(update).split("\n")

    assert rows[0].startswith(f"FATAL  {update.title} ({update.kind.value})")
    assert "vllm.log:3" in rows[1]
    assert "CUDA out of memory" in rows[2]
    assert rows[3].startswith("  1. ")
    later = update.model_copy(
        update={"revision": 2, "severity": Severity.DEGRADED, "count": 5, "caused_by": "x:y:1"}
    )
    assert brief(later).endswith("now known: caused by x:y:1, now degraded, 5 times")
    gone = later.model_copy(update={"revision": 3, "withdrawn": True})
    assert brief(gone).endswith("no incident after all; the server went on")


def test_the_brief_form_of_an_incident_with_a_known_cause_is_one_line(path: Path) -> None:
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM + DEAD + QUIET)
    cause, consequence = told.run()
    brief = Brief()
    brief(cause)

    assert consequence.caused_by == cause.id
    assert (
        brief(consequence)
        == f"ALSO  engine.dead ({path.parent.name}/vllm.log:4): caused by oom.load"
    )


@pytest.mark.parametrize(
    ("changes", "news"),
    [
        ({"confidence": Confidence.POSSIBLE}, "now possible"),
        ({"severity": Severity.NOTICE}, "now notice"),
        ({"count": 3}, "3 times"),
        ({}, "more of it was printed"),
        ({"processes": ("Worker_TP1",)}, "more of it was printed"),
        ({"caused_by": None}, "a cause of its own"),
    ],
)
def test_the_brief_form_says_only_what_has_changed(
    path: Path, changes: dict[str, object], news: str
) -> None:
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM + QUIET)
    (update,) = told.run()
    before = update.model_copy(update={"caused_by": "x:y:1"} if "caused_by" in changes else {})
    brief = Brief()
    brief(before)

    said = brief(before.model_copy(update=changes))

    assert said.startswith(f"UPDATE  {update.title} (oom.load, ")
    assert said.endswith(f"vllm.log:3): {news}")


def test_the_brief_form_shows_a_line_that_states_the_cause_better(path: Path) -> None:
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM + QUIET)
    (update,) = told.run()
    brief = Brief()
    brief(update)
    better = Evidence(source=update.evidence[0].source, line=9, text=" RuntimeError: \x07why ")

    said = brief(update.model_copy(update={"evidence": (better,)}))

    assert said.endswith("vllm.log:9): better seen in RuntimeError: \N{REPLACEMENT CHARACTER}why")


def test_the_brief_form_of_repeats_and_of_one_that_came_back_is_whole(path: Path) -> None:
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM + QUIET)
    (update,) = told.run()
    many = update.model_copy(update={"count": 8, "confidence": Confidence.LIKELY})
    brief = Brief()

    first = brief(many)
    brief(many.model_copy(update={"withdrawn": True}))

    assert first.split("\n")[0] == f"FATAL  {update.title} (oom.load), likely, 8 times"
    assert brief(many) == first


def test_the_brief_form_has_three_steps_and_says_where_the_rest_is(path: Path) -> None:
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM + QUIET)
    (update,) = told.run()
    step = FixStep(number=1, do="Look.", change={}, risk=Risk.READ)
    many = [step.model_copy(update={"number": number}) for number in range(1, 6)]
    rows = {
        count: Brief()(update.model_copy(update={"fix_steps": tuple(many[:count])})).split("\n")
        for count in (0, 3, 4, 5)
    }

    assert [len(found) for found in rows.values()] == [3, 6, 7, 7]
    assert rows[4][-1] == "  one more step: vllm-triage explain oom.load"
    assert rows[5][-1] == "  2 more steps: vllm-triage explain oom.load"


def test_the_brief_form_knows_the_incidents_told_last(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_triage.reports.brief._MAX_KNOWN", 2)
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM + QUIET)
    (update,) = told.run()
    brief = Brief()
    words = [
        brief(update.model_copy(update={"id": name})).split()[0]
        for name in ("a", "b", "c", "b", "a")
    ]

    assert words == ["FATAL", "FATAL", "FATAL", "UPDATE", "FATAL"]


def test_the_brief_form_keeps_control_characters_out(path: Path) -> None:
    path.write_text(BANNER)
    told = Told(path)
    add(path, OOM.replace("Tried", "\x1b]0;owned\x07 \u202e Tried") + QUIET)

    text = Brief()(told.run()[0])

    assert not [char for char in text if (ord(char) < 32 and char != "\n") or char == "\u202e"]
