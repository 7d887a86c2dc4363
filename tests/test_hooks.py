"""A user's command is run once an incident, within its limits, and its failure is a warning."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_metrics import update
from vllm_triage import Severity, SourceError, hooks
from vllm_triage.hooks import Hook
from vllm_triage.model import Update

WAIT_S = 30.0


class Clock:
    """A clock that stands until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def one(number: int, **changes: Any) -> Update:
    return update().model_copy(update={"id": f"oom.load:a.log:{number}", **changes})


def settle(hook: Hook, is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < end
        hook.tick()
        time.sleep(0.01)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def lines(out: Path) -> int:
    return out.read_text().count("\n") if out.exists() else 0


def test_it_runs_once_an_incident_and_again_when_that_turns_fatal(
    tmp_path: Path, out: Path
) -> None:
    hook = Hook(script(tmp_path, f"cat >> {out}"), print)
    tellings: tuple[dict[str, Any], ...] = (
        {"severity": Severity.DEGRADED},
        {"severity": Severity.DEGRADED, "count": 2},
        {"severity": Severity.FATAL, "count": 3},
        {"severity": Severity.FATAL, "count": 5},
        {"severity": Severity.FATAL, "withdrawn": True},
    )
    for number, changes in enumerate(tellings, 1):
        hook(one(1, revision=number, **changes))
    hook.close()

    assert lines(out) == 3


def test_one_runs_at_a_time_and_so_many_a_minute(tmp_path: Path, out: Path) -> None:
    clock, said = Clock(), list[str]()
    hook = Hook(script(tmp_path, f"echo >> {out}"), said.append, most=2, clock=clock)
    for number in range(12):
        hook(one(number))
    settle(hook, lambda: lines(out) == 2)
    for _ in range(20):
        hook.tick()
        time.sleep(0.01)
    assert lines(out) == 2
    clock.now = 61.0
    settle(hook, lambda: lines(out) == 4)
    hook.close(is_hurried=True)

    # Of twelve one ran at once, eight waited, three were skipped; four of the waiting ran out of time.
    assert said[0] == "--exec: too many incidents for 2 runs a minute; skipping"
    assert said[-1].endswith("incidents were skipped")
    assert int(said[-1].split()[1]) == 12 - 4


def test_one_that_runs_too_long_is_killed_with_its_children(tmp_path: Path, out: Path) -> None:
    clock, said = Clock(), list[str]()
    hook = Hook(
        script(tmp_path, f"echo begun; echo $$ > {out}; sleep 1000 & sleep 1000"),
        said.append,
        timeout_s=5.0,
        clock=clock,
    )
    hook(one(1))
    settle(hook, lambda: lines(out) == 1)
    clock.now = 5.0
    hook.tick()

    assert said == [f"--exec: {tmp_path}/hook ran over 5 s and was killed: begun"]
    group = int(out.read_text())
    end = time.monotonic() + WAIT_S
    while any(
        f" {group} " in stat.read_text().rpartition(")")[2][:40]
        for stat in Path("/proc").glob("[0-9]*/stat")
        if _alive(stat)
    ):
        assert time.monotonic() < end


def _alive(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_its_failure_is_a_warning_with_the_beginning_of_what_it_said(tmp_path: Path) -> None:
    said: list[str] = []
    hook = Hook(script(tmp_path, "yes 'no route' | head -c 1000000; exit 3"), said.append)
    hook(one(1))
    hook.close()

    assert len(said) == 1
    assert said[0].startswith(f"--exec: {tmp_path}/hook exited with 3: no route no route")
    assert len(said[0]) < 700


def test_one_that_does_not_read_does_not_hold_up_the_watch(tmp_path: Path, out: Path) -> None:
    hook = Hook(script(tmp_path, f"echo >> {out}"), print, render=lambda _: "x" * 1_000_000)
    hook(one(1))
    hook.close()

    assert lines(out) == 1


def test_a_signal_ends_what_runs(tmp_path: Path) -> None:
    said: list[str] = []
    hook = Hook(script(tmp_path, "sleep 1000"), said.append)
    hook(one(1))
    hook.close(is_hurried=True)

    assert said == [f"--exec: {tmp_path}/hook was killed, as the watch ended"]


@pytest.mark.parametrize("command", ["", "no-such-command-here", "'open"])
def test_what_is_no_command_is_said_at_once(command: str) -> None:
    with pytest.raises(SourceError, match="--exec"):
        Hook(command, print)


def test_no_shell_reads_it(tmp_path: Path, out: Path) -> None:
    hook = Hook(script(tmp_path, f'printf "%s\\n" "$1" > {out}') + " '$(id);`id`'", print)
    hook(one(1))
    hook.close()

    assert out.read_text() == "$(id);`id`\n"


def test_what_was_skipped_is_counted_when_nothing_waits_any_more(
    tmp_path: Path, out: Path
) -> None:
    said: list[str] = []
    go = tmp_path / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.01; done; echo >> {out}"
    hook = Hook(script(tmp_path, wait), said.append, most=100)
    for number in range(11):
        hook(one(number))
    assert len(said) == 1
    go.touch()
    settle(hook, lambda: len(said) == 2)

    # One ran at once and eight waited.
    assert lines(out) == 9
    assert said[-1] == "--exec: 2 incidents were skipped"
    hook(one(99))
    hook.close()
    assert (lines(out), len(said)) == (10, 2)


def test_the_end_does_not_wait_for_the_next_minute(tmp_path: Path, out: Path) -> None:
    said: list[str] = []
    hook = Hook(script(tmp_path, f"echo >> {out}"), said.append, most=2, clock=Clock())
    for number in range(5):
        hook(one(number))
    hook.close()

    assert lines(out) == 2
    assert said == ["--exec: 3 incidents were skipped"]


def test_a_program_that_does_not_start_is_a_warning_and_the_next_is_tried(tmp_path: Path) -> None:
    said: list[str] = []
    command = script(tmp_path, "true")
    Path(command).write_text("#!/no/such/shell\n")
    hook = Hook(command, said.append)
    hook(one(1))
    hook(one(2))
    hook.close()

    assert said == [f"--exec: {command} cannot be run: No such file or directory"] * 2


def test_a_command_that_a_signal_ends_is_a_warning(tmp_path: Path) -> None:
    said: list[str] = []
    hook = Hook(script(tmp_path, "kill -TERM $$"), said.append)
    hook(one(1))
    hook.close()

    assert said == [f"--exec: {tmp_path}/hook was ended by signal 15"]


def test_what_was_told_longest_ago_is_forgotten(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_MAX_KNOWN", 2)
    hook = Hook(script(tmp_path, f"echo >> {out}"), print, most=100)
    for number in (1, 2, 1, 3, 1, 2):
        hook(one(number))
    hook.close()

    # Of the second, which was told before the first was told again, nothing was known any more.
    assert lines(out) == 4
