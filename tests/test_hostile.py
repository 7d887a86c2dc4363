"""What holds of logs and artefacts that are made to do harm.

`HYPOTHESIS_PROFILE=deep pytest tests/test_hostile.py` tries a hundred times as many, and the
inputs of 100 MB and more.
"""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest
import regex
from hypothesis import given

from tests import claims, hostile
from tests.conftest import FIXTURES
from tests.hostile import STREAMS, archives, beside, examples, logs
from vllm_triage.errors import SourceError
from vllm_triage.model import Report
from vllm_triage.pipeline import triage_paths
from vllm_triage.scanner import Scanner
from vllm_triage.split import can_split

deep = pytest.mark.skipif(not hostile.IS_DEEP, reason="takes minutes; HYPOTHESIS_PROFILE=deep")


@given(logs())
@examples(60)
def test_a_log_tells_the_same_in_blocks_and_line_by_line_with_true_evidence(data: bytes) -> None:
    claims.whole(data)


@given(logs())
@examples(30)
def test_a_filter_hands_on_all_it_gets(data: bytes) -> None:
    claims.stream(data)


@given(logs())
@examples(60)
def test_a_printed_line_has_the_number_of_one_that_was_there(data: bytes) -> None:
    claims.lines(data)


NUMBER = regex.compile(rb"\d+(?:\.\d+)?")
ODD = (b"9" * 400, b"9" * 4_301, b"0", b"-1", b"nan", b"1e999", "\u00b2\u00b3".encode(), "\u0663".encode())  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=[f"{one[:6]!r}*{len(one)}" for one in ODD])
def test_no_number_is_too_odd(odd: bytes) -> None:
    step = 1 if hostile.IS_DEEP else 3 if len(odd) < 9 else 24
    for data in hostile.windows()[::step]:
        claims.whole(NUMBER.sub(odd, data))
    for data in hostile.artefacts()[::step]:
        for number in range(11) if hostile.IS_DEEP else (0,):
            claims.artefact(bytes([number]) + NUMBER.sub(odd, data))


@given(archives())
@examples(60)
def test_an_archive_is_read_as_far_as_it_goes(data: bytes) -> None:
    claims.source(data)


@given(beside())
@examples(60)
def test_what_lies_beside_a_log_is_read_whatever_is_in_it(data: bytes) -> None:
    for number in (0, 3, 7) if not hostile.IS_DEEP else range(11):
        claims.artefact(bytes([number]) + data)


@given(beside() | logs())
@examples(30)
def test_a_file_of_any_sort_is_triaged(data: bytes) -> None:
    claims.files(data)


@given(logs())
@examples(15)
def test_a_file_a_pipe_and_several_processes_tell_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    # The beginning of a log, so that no artefact and no binary file is made of it.
    data = b"INFO 12-01 06:17:30 [x.py:1] start of a log\n" * 400 + data
    path = tmp_path_factory.mktemp("same") / "<stdin>"
    path.write_bytes(data)

    whole = _told(lambda: triage_paths([path]))

    assert _told(lambda: triage_paths(["-"], stdin=io.BytesIO(data))) == whole
    assert _told(lambda: triage_paths(["-"], stdin=_Dripping(data))) == whole
    if can_split():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vllm_triage.paths.LARGE_BYTES", 1)
            patch.setattr("vllm_triage.split.LARGE_BYTES", 2)
            patch.setattr("vllm_triage.split._CHUNK", 3_000)
            patch.setattr("vllm_triage.split._LEARNING", 9_000)
            assert _told(lambda: triage_paths([path], jobs=2)) == whole


def _told(call: Callable[[], Report]) -> object:
    try:
        report = call()
    except SourceError as error:
        return str(error)
    sources = [(one.lines, one.bytes, one.truncated_lines) for one in report.sources]
    names = {one.name: "log" for one in report.sources}
    text = repr((report.root_cause, report.incidents, report.runs, sources))
    for name in names:
        text = text.replace(name, "log")
    return text


class _Dripping(io.BytesIO):
    """A pipe that gives a little at a time."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 1, 777) if size and size > 0 else 777)


def operations(rows: Iterator[bytes]) -> int:
    """How many calls a scanner makes for lines; no clock, so that it is the same each time."""
    scanner = Scanner("log", like=claims.scanner())
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        scanner.feed_block(1, b"".join(rows))
        scanner.end_source()
        scanner.report()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("name", STREAMS)
def test_twice_the_lines_take_twice_the_work(name: str) -> None:
    # Of a traceback more than are remembered of earlier ones.
    few = {"json bombs": 200, "endless traceback": 6_000}.get(name, 2_000)
    operations(STREAMS[name](few))
    once, twice = (operations(STREAMS[name](count)) for count in (few, 2 * few))

    assert twice < 2.3 * once


@pytest.mark.parametrize("size", [10_000, 100_000])
@pytest.mark.parametrize(
    "text",
    ["a", "\\n", "%|", "&lt;", "\x1b[1m", "[", "{", '"', "'prompt': '", "ERROR ", "\r", "é", "/a.py:1:", "Error: "],
)  # fmt: skip
def test_a_long_line_takes_work_as_it_is_long(text: str, size: int) -> None:
    line = ("ERROR 12-01 06:17:30 [a.py:1] " + text * (size // len(text))).encode()

    # Some calls for each of the at most 2,000 pieces of a line, none for each character.
    assert operations(iter([line])) < 120_000


@pytest.mark.parametrize("depth", range(1, 16))
def test_records_in_records_come_apart_as_far_as_is_sensible(depth: int) -> None:
    claims.whole(b"x\n" + hostile.nested_json(depth) + b"\ny")


def peak_mib(tmp_path: Path, parts: Iterator[bytes]) -> float:
    """The memory of a process that triages them as one file, in MiB; it must end well."""
    path = tmp_path / "large.log"
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
    code = (
        "import resource, sys; from vllm_triage.pipeline import triage_paths\n"
        "report = triage_paths([sys.argv[1]])\n"
        "assert report.sources[0].problem is None\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
    )
    path.unlink()
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@deep
@pytest.mark.parametrize("name", STREAMS)
def test_millions_of_lines_take_little_memory(tmp_path: Path, name: str) -> None:
    count = 200_000 if name == "json bombs" else 1_000_000

    assert peak_mib(tmp_path, STREAMS[name](count)) < 150


@deep
@pytest.mark.parametrize("text", [b"x", b"\0", b"\\n", b"\xff", b'{"a":', b"%|\r", b"\x1b[1m"])
def test_a_line_of_100_mb_takes_little_memory(tmp_path: Path, text: bytes) -> None:
    # So much is looked at to tell a binary file.
    start = b"INFO 12-01 06:17:30 [a.py:1] start\n" * 400 + b"ERROR 12-01 06:17:30 [a.py:1] "
    line = (text * (1_000_000 // len(text)) for _ in range(100))

    assert peak_mib(tmp_path, chain([start], line, [b"\nERROR end\n"])) < 150


@deep
def test_a_log_of_200_mb_with_a_crash_in_it_takes_little_memory(tmp_path: Path) -> None:
    log = (FIXTURES / "oom" / "kv-cache-too-small.log").read_bytes()
    times = 200_000_000 // len(log)

    assert peak_mib(tmp_path, (log for _ in range(times))) < 150
