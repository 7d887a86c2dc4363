"""The bench measures what it says: its logs, its rows, its figures. Nothing here is timed."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import regex

from tests import bench_logs
from tests.bench import PAGE, page, with_table
from tests.bench_measure import Command, in_turn, took
from tests.bench_rows import NAMES, Setting, measure
from tests.bench_rules import doubled
from vllm_triage import Report, triage
from vllm_triage.catalogue import load

Make = Callable[[int, int], Iterator[bytes]]
LOGS = (bench_logs.healthy, bench_logs.busy, bench_logs.dense)


def report(make: Make, size: int, path: Path) -> Report:
    path.write_bytes(b"".join(make(size, 1)))
    return triage(path)


@pytest.mark.parametrize("make", LOGS)
def test_a_seed_always_gives_the_same_log(make: Make) -> None:
    first, again, other = (b"".join(make(300_000, seed)) for seed in (1, 1, 2))

    assert first == again != other
    assert 300_000 <= len(first) < 302_000


def test_a_healthy_log_has_nothing_to_tell(tmp_path: Path) -> None:
    assert report(bench_logs.healthy, 1_000_000, tmp_path / "a.log").incidents == ()


def test_a_busy_log_has_the_crash_at_its_end(tmp_path: Path) -> None:
    """Told as of the real log that it was taken from: the engine died of a killed worker."""
    path = tmp_path / "a.log"
    found = report(bench_logs.busy, 300_000, path)
    cause = found.incidents[0]

    assert [one.kind for one in found.incidents] == [
        "engine.dead",
        "distributed.nccl_system_error",
    ]
    assert found.root_cause == cause.id
    assert "VllmWorker-1 died unexpectedly" in cause.evidence[0].text
    assert cause.evidence[0].line > 0.8 * len(path.read_bytes().splitlines())
    assert len(found.runs) == 1


def test_a_dense_log_has_one_cause(tmp_path: Path) -> None:
    found = report(bench_logs.dense, 1_000_000, tmp_path / "a.log")

    assert [one.kind for one in found.incidents] == ["oom.inference", "engine.dead"]
    assert found.root_cause == found.incidents[0].id
    assert found.incidents[1].caused_by == found.root_cause
    assert len(found.incidents[0].processes) >= 8


def test_most_lines_of_a_healthy_log_are_access_lines() -> None:
    rows = list(bench_logs.healthy(2_000_000))

    assert 0.84 < sum(b" HTTP/1.1" in row for row in rows) / len(rows) < 0.88
    prompts = [row for row in rows if b"Received request" in row]
    assert len(set(prompts)) == len(prompts) > 500
    assert any(b"error" in row for row in prompts)
    assert any(b"error" not in row for row in prompts)


def test_every_line_of_a_dense_log_belongs_to_a_worker_that_dies() -> None:
    rows = list(bench_logs.dense(2_000_000))
    start = next(number for number, row in enumerate(rows) if b"startup complete" in row) + 1
    found = [regex.match(rb"\(Worker_TP(\d) pid=(\d+)\) ERROR ", row) for row in rows[start:]]
    assert all(found)
    who = [match.groups() for match in found if match is not None]
    by_rank = Counter(rank for rank, _ in set(who))
    assert len(by_rank) == 8
    assert min(by_rank.values()) >= 4, "new processes after each death"
    turns = sum(one != other for one, other in pairwise(who))
    assert turns > 0.8 * len(who), "line by line"


def test_each_program_of_a_dense_log_prints_chains_that_grow() -> None:
    rows = list(bench_logs.dense(600_000))
    pid = next(
        row for row in rows if row.startswith(b"(Worker_TP0 ") and b"hit an" in row
    ).split()[1]
    of_one = b"".join(row for row in rows if pid in row.split()[:2]).split(
        b"WorkerProc hit an exception."
    )

    assert [part.count(b"OutOfMemoryError") for part in of_one[1:4]] == [1, 2, 3]


def test_memory_is_that_of_the_command_alone() -> None:
    held = bytearray(120_000_000)
    small, large = (
        took(Command((sys.executable, "-I", "-S", "-c", f"x = bytearray({size})")))
        for size in (1, 60_000_000)
    )

    assert len(held) > large.peak_bytes >= 60_000_000
    assert small.peak_bytes < 40_000_000
    assert large.wall_s > 0


def test_commands_run_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    some = [Command(("sh", "-c", f"echo {name} >>{path}")) for name in "ab"]

    found = in_turn(some, 2)

    assert path.read_text().split() == list("ab" * 3), "the first pair warms up"
    assert [len(one) for one in found] == [2, 2]


def test_grep_counts_to_the_end(tmp_path: Path) -> None:
    """It stops at its first hit where it sees that nobody reads its output."""
    seen = tmp_path / "seen"
    took(Command(("sh", "-c", f"test -f /dev/stdout && echo file >{seen}")))

    assert seen.read_text() == "file\n"


def test_a_command_that_fails_is_no_figure() -> None:
    with pytest.raises(RuntimeError, match="ended with 3: lost"):
        took(Command(("sh", "-c", "echo lost >&2; exit 3"), (0, 1)))


def test_doubled_rules_are_rules_that_are_found(tmp_path: Path) -> None:
    once = load()
    twice = load(doubled(tmp_path))

    for kind, rule in once.rules.items():
        assert len(twice.rules[kind].worded) == 2 * len(rule.worded)
    assert once.rules.keys() == twice.rules.keys()


@pytest.mark.parametrize("name", NAMES)
def test_each_row_runs(name: str, tmp_path: Path) -> None:
    found = list(measure(Setting(tmp_path, 60_000, rounds=1), [name]))

    assert found
    for row in found:
        assert row.ratio or "not installed" in (row.ours, row.theirs)
        assert (row.is_met is None) == (not row.ratio or not row.bar)


def test_a_program_that_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    lines = list(page(Setting(tmp_path, 60_000, rounds=1), ["busy-grep", "busy-fail2ban"]))

    assert lines[-2].split(" | ")[3:] == ["not installed", "", "at least 1x", " |"]
    assert len(lines) == 8
    assert "no grep" in lines[1]


def test_the_table_goes_between_the_marks_of_the_page() -> None:
    text = PAGE.read_text("utf-8")
    written = with_table(text, ["first", "second"])

    assert "figures -->\n\nfirst\nsecond\n\n<!-- end of figures -->" in written
    assert with_table(written, ["other"]) == with_table(text, ["other"])
    assert text.split("<!--")[0] == written.split("<!--")[0]
    assert text.split("-->")[-1] == written.split("-->")[-1]
