"""What another command prints is followed until it ends, and told apart from its past."""

import select
import time
from collections.abc import Callable, Iterator

import pytest

from vllm_triage import pipes
from vllm_triage.follow import Piece
from vllm_triage.pipes import Pipe

WAIT_S = 30.0
# 2020-01-01: what is dated before it is the past.
START_NS = 1_577_836_800_000_000_000
OLD, NEW = "2019-12-31T23:59:59.000000000Z", "2020-01-01T00:00:01.000000000Z"

Made = Callable[[str], Pipe]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def made(said: list[str]) -> Iterator[Made]:
    pipes: list[Pipe] = []

    def make(script: str) -> Pipe:
        pipes.append(Pipe("<x>", ["sh", "-c", script], said.append, start_ns=START_NS))
        return pipes[-1]

    yield make
    for pipe in pipes:
        pipe.close()


def until(pipe: Pipe, now: float, end: Callable[[list[Piece]], bool]) -> list[Piece]:
    """What it gives at one moment of its clock until there is enough."""
    pieces: list[Piece] = []
    last = time.monotonic() + WAIT_S
    while not end(pieces):
        assert time.monotonic() < last
        pieces += pipe.poll(now)
    return pieces


def test_a_command_that_is_silent_for_two_seconds_has_printed_its_past(made: Made) -> None:
    pipe = made("echo 'no time'; sleep 100")
    first = until(pipe, 0.0, bool)

    assert first == [Piece(b"no time\n", is_past=True)]
    assert list(pipe.poll(1.9)) == []
    assert list(pipe.poll(2.0)) == [Piece(ends_past=True)]
    assert list(pipe.poll(9.0)) == []


def test_half_a_line_at_the_end_of_the_past_is_new(made: Made) -> None:
    pipe = made(f"printf '{OLD} one\\n{OLD} tw'; sleep 100")
    until(pipe, 0.0, bool)

    assert list(pipe.poll(2.0)) == [Piece(ends_past=True), Piece(f"{OLD} tw".encode())]


def test_the_first_late_line_ends_the_past(made: Made) -> None:
    pipe = made(f"printf '{NEW} one\\n{OLD} two\\nthree'")
    pieces = until(pipe, 0.0, lambda _: pipe.is_over)

    assert pieces == [Piece(ends_past=True), Piece(f"{NEW} one\n{OLD} two\nthree".encode())]


def test_a_past_line_without_end_is_passed_on_in_parts(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "MAX_LINE", 1_000)
    pipe = made("printf '%05000d' 0; sleep 100")
    pieces = until(pipe, 0.0, lambda found: sum(len(one.data) for one in found) > 4_000)

    assert all(one.is_past for one in pieces)
    assert pieces == [*pieces, *pipe.poll(0.0)]
    rest = b"".join(one.data for one in pipe.poll(2.0))
    assert b"".join(one.data for one in pieces) + rest == b"0" * 5_000


def test_one_look_takes_a_bounded_part(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "_PER_POLL", 100)
    monkeypatch.setattr(pipes, "_CHUNK", 100)
    pipe = made("printf '%01000d' 0; echo; sleep 100")
    other = made("printf '%0100d\\n%0200d\\n' 0 0; sleep 100")
    last = time.monotonic() + WAIT_S
    for one in (pipe, other):
        while select.select([one.file], [], [], 1)[0] == []:
            assert time.monotonic() < last

    # A line of the past is held back until it has ended.
    assert list(pipe.poll(0.0)) == []
    assert [len(one.data) for one in until(pipe, 0.0, bool)] == [1_001]
    assert [len(one.data) for one in until(other, 0.0, bool)] == [101]


def test_a_command_that_does_not_end_is_ended(
    made: Made, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "_END_S", 0.1)
    pipe = made("trap '' TERM; echo ready; while :; do sleep 1; done")
    until(pipe, 0.0, bool)
    pipe.close()

    assert pipe.is_over
    assert pipe.status == -9
    # Who ends the watch knows that the command was ended.
    assert said == []


def test_a_command_that_closes_its_output_and_goes_on_is_ended(
    made: Made, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "_END_S", 0.1)
    pipe = made("exec >&-; exec sleep 100")
    until(pipe, 0.0, lambda _: pipe.is_over)

    assert said == ["<x>: sh ended with status -9"]
