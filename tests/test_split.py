"""Large files read by several processes tell what one process tells."""

import errno
import multiprocessing
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.traffic import FIXTURES, WRAPS, traffic
from vllm_triage import split
from vllm_triage.blocks import Blocks
from vllm_triage.model import Report
from vllm_triage.pipeline import triage_paths
from vllm_triage.scanner import Scanner
from vllm_triage.sieve import Sifted
from vllm_triage.stretches import Summary

pytestmark = pytest.mark.skipif(not split.can_split(), reason="processes cannot be forked here")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_triage.paths.LARGE_BYTES", 1)
    monkeypatch.setattr("vllm_triage.split.LARGE_BYTES", 2)
    monkeypatch.setattr("vllm_triage.split._CHUNK", 9_000)
    monkeypatch.setattr("vllm_triage.split._LEARNING", 27_000)


def both(path: Path, jobs: int = 3) -> tuple[Report, Report]:
    return triage_paths([path], jobs=jobs), triage_paths([path], jobs=1)


@pytest.mark.parametrize("wrap", WRAPS)
def test_traffic_with_a_crash_in_it(tmp_path: Path, wrap: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(row for seed in range(3) for row in traffic(seed, 600, wrap=wrap)))

    several, one = both(path)

    assert several == one
    assert one.incidents


def test_real_logs_one_after_another(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    logs = [log.read_bytes()[-20_000:] for log in sorted(FIXTURES.rglob("*.log"))[::3]]
    path.write_bytes(b"\n".join(logs))

    several, one = both(path)

    assert several == one


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbf", b""),
        (b"", b"no line end"),
        (b"\n" * 30_000, b"\n\n"),
        (b"", b"\xff\xfe\x00\n"),
    ],
)
def test_odd_beginnings_and_ends(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(before + b"".join(traffic(1, 800)) + after)

    several, one = both(path)

    assert several == one


def test_lines_longer_than_a_chunk_and_than_any_line_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sources", "split"):
        monkeypatch.setattr(f"vllm_triage.{module}.MAX_LINE", 20_000)
        monkeypatch.setattr(f"vllm_triage.{module}.CHUNK", 8_000)
    path = tmp_path / "x.log"
    rows = list(traffic(1, 1000))
    for place, size in ((900, 15_000), (700, 21_000), (650, 30_000), (500, 100_000)):
        rows.insert(place, b"x" * size + b"\n")
    path.write_bytes(b"".join(rows))

    several, one = both(path)

    assert several == one
    assert one.sources[0].truncated_lines == 3


def test_a_process_that_dies_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(traffic(1, 2000)))
    one = triage_paths([path], jobs=1)
    me = os.getpid()
    sift = Blocks.sift

    def deadly(self: Blocks, data: bytes) -> tuple[int, Sifted]:
        if os.getpid() != me:
            os.kill(os.getpid(), signal.SIGKILL)
        return sift(self, data)

    monkeypatch.setattr(Blocks, "sift", deadly)

    assert triage_paths([path], jobs=3) == one


def test_the_others_do_their_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would compare one process with itself."""
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(traffic(1, 4000, crash=False)))
    taken: list[Sifted] = []
    feed_sifted = Blocks.feed_sifted

    def noting(self: Blocks, first: int, found: Sifted, data: object) -> None:
        taken.append(found)
        feed_sifted(self, first, found, data)  # type: ignore[arg-type]

    monkeypatch.setattr(Blocks, "feed_sifted", noting)
    triage_paths([path], jobs=2)

    assert len(taken) > 10
    assert sum(isinstance(piece, Summary) for found in taken for piece in found) > 10


def test_progress_counts_the_bytes_of_all_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    for path in paths:
        path.write_bytes(b"".join(traffic(1, 300)))
    artefact = FIXTURES / "artefacts" / "gpu-table-418" / "smi.txt"
    seen: list[int] = []

    triage_paths([*paths, artefact], jobs=2, progress=seen.append)

    assert seen == sorted(seen)
    assert seen[-1] >= sum(path.stat().st_size for path in paths)
    assert len(seen) > 10


@pytest.mark.parametrize("after", [3, 12])
def test_a_disk_that_fails_leaves_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(traffic(1, 800)))
    left = iter(range(after))
    real = os.pread

    def failing(*args: Any) -> bytes:
        if next(left, None) is None:
            raise OSError(errno.EIO, "Input/output error")
        return real(*args)

    monkeypatch.setattr("vllm_triage.split.os.pread", failing)
    (source,) = triage_paths([path], jobs=2).sources

    assert source.problem == (
        f"{path}: could be read only as far as line {source.lines}: Input/output error"
    )


def test_a_span_with_a_line_that_is_cut_is_not_sifted_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sources", "split"):
        monkeypatch.setattr(f"vllm_triage.{module}.MAX_LINE", 4_000)
        monkeypatch.setattr(f"vllm_triage.{module}.CHUNK", 1_000)
    path = tmp_path / "x.log"
    path.write_bytes(b"one\n" + b"x" * 5_000 + b"\ntwo\n")
    file = split.SplitFile(path, 2)
    file._scanner = Scanner()
    whole = split.Span(0, path.stat().st_size)

    assert file._sift(whole) is None
    file._take(whole, None)
    file.deliver(Scanner())

    assert (file.lines, file.truncated_lines) == (3, 1)


def test_work_is_left_when_all_has_been_claimed_and_waits_for_who_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop of the other processes, run in this one."""
    path = tmp_path / "x.log"
    path.write_bytes(b"one\ntwo\nthree\n")
    file = split.SplitFile(path, 2)
    spans = [split.Span(0, 4), split.Span(4, 8), split.Span(8, 14)]
    claims = iter([0, None, 1, 2, 3])
    sent: list[Any] = []
    pauses: list[float] = []
    monkeypatch.setattr("vllm_triage.split.signal.signal", lambda *_: None)
    monkeypatch.setattr("vllm_triage.split.time.sleep", pauses.append)
    monkeypatch.setattr(file, "_sift", lambda span: span)
    crew = SimpleNamespace(claim=lambda: next(claims))

    file.work(spans, crew, SimpleNamespace(send=sent.append))  # type: ignore[arg-type]

    assert sent == list(enumerate(spans))
    assert len(pauses) == 1
    file.deliver(Scanner())
    assert file.lines == 3


def test_what_the_others_have_claimed_is_waited_for_or_done_when_they_are_gone() -> None:
    crew = split._Crew(multiprocessing.get_context("fork"), 30)
    assert [crew.claim() for _ in range(26)] == [*range(24), None, None]
    crew.position.value = 7
    assert [crew.claim() for _ in range(8)] == [*range(24, 30), 30, 30]

    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
    crew.connections.append(ours)
    theirs.send((5, None))
    crew.wait()
    told: dict[int, Any] = {}
    assert crew.take(told)
    assert told == {5: None}
    theirs.close()
    assert crew.take(told)
    assert crew.connections == []


def test_a_program_that_reads_logs_gets_its_own_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.log"
    path.write_text("a\n")

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("vllm_triage.pipeline._opened", interrupted)

    with pytest.raises(KeyboardInterrupt):
        triage_paths([path])


def test_a_reader_that_is_interrupted_without_leave_tells_nothing() -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    reader: Any = SimpleNamespace(name="x.log", deliver=interrupted)

    with pytest.raises(KeyboardInterrupt):
        Scanner().read(reader)


def test_where_processes_cannot_be_forked_one_reads_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(traffic(1, 300)))
    whole = triage_paths([path], jobs=1)
    monkeypatch.setattr(split, "can_split", lambda: False)

    def never(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(split, "SplitFile", never)

    assert triage_paths([path], jobs=3) == whole
