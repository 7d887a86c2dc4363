"""What can go wrong around the filter: signals, readers, disks, and what comes in."""

import contextlib
import errno
import json
import os
import pty
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from tests.conftest import FIXTURES
from vllm_triage.loop import Loop
from vllm_triage.model import Update
from vllm_triage.scanner import Scanner
from vllm_triage.sinks import FileSink
from vllm_triage.stream import MAX_RECORD, Filter, Protocol

LOG = (FIXTURES / "oom" / "kv-cache-too-small.log").read_bytes()
KIND = "oom.kv_cache"
OOM = (
    b"ERROR 01-02 03:04:05 [core.py:700] torch.OutOfMemoryError: CUDA out of memory. "
    b"Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free."
)
WAIT_S = 30.0


STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    """Close what a test left open."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.returncode is None:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def start(*args: str | Path, **more: object) -> subprocess.Popen[bytes]:
    settings: dict[str, object] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    settings["args"] = [sys.executable, "-m", "vllm_triage", "filter", *map(str, args)]
    process: subprocess.Popen[bytes] = subprocess.Popen(**(settings | more))  # type: ignore[call-overload]
    STARTED.append(process)
    return process


class Done(NamedTuple):
    """A filter that has ended."""

    returncode: int
    out: bytes
    err: bytes


def run(*args: str | Path, data: bytes = LOG, **more: object) -> Done:
    process = start(*args, **more)
    out, err = process.communicate(data, WAIT_S)
    return Done(process.returncode, out, err)


def some(pipe: IO[bytes] | None, count: int) -> bytes:
    """Read so many bytes of a running filter's output."""
    assert pipe is not None
    data = b""
    while len(data) < count:
        more = os.read(pipe.fileno(), count - len(data))
        assert more, f"ended after {data!r}"
        data += more
    return data


def kinds(path: Path) -> list[str]:
    return [json.loads(row)["kind"] for row in path.read_bytes().splitlines() if row]


def records(data: bytes) -> bytes:
    return b"".join(
        json.dumps({"message": row.decode()}).encode() + b"\n" for row in data.splitlines()
    )


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)],
    ids=["term", "int", "hup"],
)
def test_a_signal_in_the_middle_of_a_line_flushes_text(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    told = tmp_path / "told"
    # Who runs the tests may ignore it.
    process = start("--incidents", told, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    data = LOG.rstrip() + b"\nhalf a li"
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()
    assert some(process.stdout, len(data)) == data

    process.send_signal(number)

    assert process.wait(WAIT_S) == code
    assert process.communicate()[0] == b""
    assert KIND in kinds(told)


@pytest.mark.parametrize("protocol", ["json", "rsyslog"])
def test_a_signal_in_the_middle_of_a_record_flushes_records(tmp_path: Path, protocol: str) -> None:
    told = tmp_path / "told"
    process = start("--protocol", protocol, "--incidents", told)
    data = records(LOG)
    if protocol == "rsyslog":
        data = data.replace(b'"message"', b'"msg"')
    half = b'{"message": "ha'
    assert process.stdin is not None
    process.stdin.write(data + half)
    process.stdin.flush()
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(data.count(b"\n"))]

    process.send_signal(signal.SIGTERM)

    rest = process.communicate(timeout=WAIT_S)[0]
    assert process.returncode == 0
    assert len(first) == data.count(b"\n")
    assert rest == (half if protocol == "json" else b"{}\n")
    assert KIND in kinds(told)


def test_input_that_ends_without_newline_ends_without_newline(tmp_path: Path) -> None:
    done = run("--incidents", tmp_path / "told", data=LOG + OOM)

    assert done.out == LOG + OOM
    assert done.returncode == 0


def test_a_reader_that_leaves_ends_it_quietly_with_all_told(tmp_path: Path) -> None:
    told = tmp_path / "told"
    process = start("--incidents", told)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(LOG)
    process.stdin.flush()
    some(process.stdout, len(LOG))
    process.stdout.close()
    process.stdin.write(OOM + b"\n")
    process.stdout = None

    assert process.communicate(timeout=WAIT_S)[1] == b""
    assert process.returncode == 0
    assert KIND in kinds(told)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_loses_incidents_and_no_line() -> None:
    done = run("--incidents", "/dev/full", data=LOG * 3)

    assert done.returncode == 0
    assert done.out == LOG * 3
    err = done.err.decode()
    assert err.count("incidents cannot be written: No space left on device; the log goes on") == 1
    assert err.count("\n") == 1


def test_a_file_that_may_not_grow_keeps_whole_lines_only(tmp_path: Path) -> None:
    told = tmp_path / "told"
    limit = 20_000
    logs = b"".join(
        path.read_bytes() + b"\n" for path in sorted((FIXTURES / "loading").glob("0_*.log"))
    )

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = run("--incidents", told, data=logs, preexec_fn=few)

    assert done.returncode == 0
    assert done.out == logs
    assert done.err.count(b"cannot be written: File too large") >= 1
    assert told.stat().st_size <= limit
    assert told.read_bytes().endswith(b"\n")
    assert kinds(told)


def test_incidents_are_written_again_once_there_is_room(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    process = start("--incidents", folder / "told", "--idle", "0.1")
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.flush()
    while not (folder / "told").exists():
        time.sleep(0.01)
    (folder / "told").unlink()
    folder.rmdir()
    process.stdin.write(LOG)
    process.stdin.flush()
    assert b"incidents cannot be written" in process.stderr.readline()

    folder.mkdir()
    process.stdin.write((FIXTURES / "oom" / "crash-loop-of-five.log").read_bytes() * 3)
    process.stdin.close()

    assert process.wait(WAIT_S) == 0
    assert b"can be written again" in process.stderr.read()
    assert kinds(folder / "told")


@pytest.mark.parametrize("name", ["", "missing/told", "told/x"])
def test_a_place_that_cannot_be_written_is_said_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "told").write_text("")

    done = run("--incidents", tmp_path / name)

    assert done.returncode == 2
    err = done.err.decode()
    assert err.startswith(f"vllm-triage: {tmp_path / name}: cannot be written: ")
    assert err.count("\n") == 1


def test_a_fifo_that_nobody_reads_does_not_hold_the_log(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    done = run("--incidents", fifo)

    assert done.returncode == 0
    assert done.out == LOG
    assert b"nobody reads the pipe" in done.err


def test_a_fifo_whose_reader_sleeps_does_not_hold_the_log(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    logs = b"".join(path.read_bytes() for path in sorted((FIXTURES / "loading").glob("*.log")))

    done = run("--incidents", fifo, data=logs)

    held = b""
    with contextlib.suppress(BlockingIOError):
        while more := os.read(reader, 65536):
            held += more
    os.close(reader)
    assert done.out == logs
    assert json.loads(held.split(b"\n")[0])["id"]
    assert b"its reader does not read" in done.err


def test_standard_error_that_nobody_reads_does_not_hold_the_log() -> None:
    logs = b"".join(path.read_bytes() for path in sorted((FIXTURES / "loading").glob("*.log")))
    process = start()
    assert process.stdin is not None

    def write() -> None:
        assert process.stdin is not None
        process.stdin.write(logs)
        process.stdin.close()

    thread = threading.Thread(target=write)
    thread.start()

    assert some(process.stdout, len(logs)) == logs
    assert process.wait(WAIT_S) == 0
    thread.join()


def test_a_full_pipe_that_does_not_block_gets_every_byte() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    data = b"INFO 01-01 00:00:00 [a.py:1] %d\n" % 7 * 20_000
    process = start(stdout=writer)
    os.close(writer)
    assert process.stdin is not None
    thread = threading.Thread(target=process.communicate, args=(data,))
    thread.start()

    with os.fdopen(reader, "rb") as pipe:
        first = pipe.read(10)
        time.sleep(0.2)
        assert first + pipe.read() == data
    thread.join()
    assert process.returncode == 0


def test_standard_input_that_does_not_block_is_waited_for() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    process = start(stdin=reader)
    os.close(reader)
    os.write(writer, b"one\n")
    assert some(process.stdout, 4) == b"one\n"
    os.write(writer, b"two\n")
    os.close(writer)

    assert process.communicate(timeout=WAIT_S)[0] == b"two\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("redirect", "said"),
    [
        ("<&-", "no log on standard input"),
        (">&- <log", "standard output is closed"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, redirect: str, said: str) -> None:
    (tmp_path / "log").write_bytes(LOG)
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m vllm_triage filter {redirect}', sys.executable],
        capture_output=True,
        cwd=tmp_path,
        timeout=WAIT_S,
        check=False,
    )

    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_a_terminal_is_no_log() -> None:
    parent, child = pty.openpty()
    process = start(stdin=child)
    os.close(child)

    assert process.wait(WAIT_S) == 2
    assert process.communicate()[1].startswith(b"vllm-triage: no log on standard input")
    os.close(parent)


def test_a_file_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(LOG)
    with path.open("rb") as file:
        done = start(stdin=file, stderr=subprocess.DEVNULL)
        assert done.communicate(timeout=WAIT_S)[0] == LOG


def test_a_rule_that_takes_too_long_is_told_once_and_skipped(tmp_path: Path) -> None:
    rule = tmp_path / "host" / "permission.toml"
    rule.parent.mkdir()
    hit = "slowly: aaaa!"
    rule.write_text(
        'title = "Slow"\nseverity = "fatal"\nrole = "cause"\nsummary = "Slow."\ncause = "Slow."\n'
        '[[pattern]]\nname = "slow"\nprinted_by = "vllm"\nkeywords = ["slowly"]\n'
        f"regex = '''slowly: (?:a|aa|a?)+!'''\nhits = ['''{hit}''']\nmisses = ['''quick''']\n"
        '[[fix]]\ndo = "Wait."\n'
    )
    line = b"ERROR 01-01 00:00:00 [a.py:1] slowly: " + b"a" * 60 + b"\n"
    data = line * 3 + LOG

    done = run("--rules", tmp_path, data=data)

    assert done.out == data
    err = done.err.decode()
    assert err.count("is skipped from now on") == 1, err
    assert KIND in err


def test_after_kill_9_and_a_restart_nothing_is_lost_but_what_was_read() -> None:
    """A supervisor starts it again on the same pipes."""
    reader, writer = os.pipe()
    out_reader, out_writer = os.pipe()
    rows = [b"row %d\n" % number for number in range(2000)]
    got = b""

    def filtered() -> subprocess.Popen[bytes]:
        return start(stdin=reader, stdout=out_writer, stderr=subprocess.DEVNULL)

    process = filtered()
    os.write(writer, b"".join(rows[:1000]))
    while not got.endswith(rows[999]):
        got += os.read(out_reader, 65536)
    process.kill()
    process.wait(WAIT_S)
    # Written while nothing ran: the pipe keeps it.
    os.write(writer, b"".join(rows[1000:]))
    process = filtered()
    os.close(writer)
    os.close(out_writer)
    while more := os.read(out_reader, 65536):
        got += more

    assert process.wait(WAIT_S) == 0
    assert got == b"".join(rows)
    os.close(reader)
    os.close(out_reader)


# The kernel counts the memory of whoever started a process as that process's own: it tells itself.
MEASURED = """
import atexit, os, runpy, sys
target = int(sys.argv.pop(1))
atexit.register(lambda: os.write(target, open("/proc/self/status", "rb").read()))
runpy.run_module("vllm_triage", run_name="__main__", alter_sys=True)
"""


def peak(status: bytes) -> int:
    """The most memory that a process took since it began, in bytes."""
    [line] = [line for line in status.split(b"\n") if line.startswith(b"VmHWM:")]
    return int(line.split()[1]) * 1024


def poured(data: Callable[[], bytes], count: int, *args: str) -> tuple[int, int]:
    """Pour so many chunks through a filter; give the bytes that came out and its peak of memory."""
    status, target = os.pipe()
    command = [sys.executable, "-c", MEASURED, str(target), "filter", *args]
    process = start(args=command, stderr=subprocess.DEVNULL, pass_fds=(target,))
    os.close(target)
    assert process.stdin is not None
    assert process.stdout is not None
    passed = [0]

    def read() -> None:
        assert process.stdout is not None
        while more := os.read(process.stdout.fileno(), 1_048_576):
            passed[0] += len(more)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(count):
        process.stdin.write(data())
    process.stdin.close()
    thread.join()
    process.stdout.close()
    assert process.wait(WAIT_S) == 0
    with os.fdopen(status, "rb") as file:
        return passed[0], peak(file.read())


@pytest.mark.parametrize("protocol", ["lines", "json", "rsyslog"])
def test_a_line_of_100_mb_passes_in_little_memory(protocol: str) -> None:
    chunk = b"x" * 1_000_000

    size, memory = poured(lambda: chunk, 100, "--protocol", protocol)

    assert size == (3 if protocol == "rsyslog" else 100_000_000)
    assert memory < 150_000_000


HOSTILE = [
    b"\x00NUL\x00 in \x00\n",
    b"\xff\xfe\xfa bad UTF-8 \xc3\n",
    b"carriage return\r\n",
    b"\r\n",
    b"\n",
    b"{\n",
    b"}\n",
    b'{"message": \n',
    b'{"message": "cut of',
    b"\n",
    b"3\n",
    b'"text"\n',
    b"null\n",
    b'[{"message": "in a list"}]\n',
    b"[" * 10_000 + b"]" * 10_000 + b"\n",
    b'{"message":' * 10_000 + b"1" + b"}" * 10_000 + b"\n",
    b'{"message": "one", "message": "two"}\n',
    b'{"vllm_triage": {"mine": true}, "message": "has the field"}\n',
    b'{"message": ' + b"9" * 10_000 + b"}\n",
    b'{"message": 1e999, "n": NaN}\n',
    b'{"message": "half \\ud800 a character", "pod": "\\udfff"}\n',
    b'{"message": "\\u0000\\u001b[31m"}\n',
    b'{"message": null, "log": 7, "pod": {"a": 1}, "container_name": ["x"]}\n',
    b'{"message": "padded"} \r\n',
    b"{}\n",
    b'\xef\xbb\xbf{"message": "with a mark"}\n',
    b'{"message": "bad \xff byte"}\n',
    '{"message": "wide"}\n'.encode("utf-16"),
    "wide text\n".encode("utf-16-le"),
]


@pytest.mark.parametrize("protocol", ["lines", "json", "rsyslog"])
def test_whatever_comes_in_comes_out_and_the_incident_between_is_told(
    tmp_path: Path, protocol: str
) -> None:
    key = b"msg" if protocol == "rsyslog" else b"message"
    incident = b'{"%b": %b, "pod": "p"}\n' % (key, json.dumps(OOM.decode()).encode())
    rows = [*HOSTILE, incident, *HOSTILE]
    told = tmp_path / "told"

    done = run("--protocol", protocol, "--incidents", told, data=b"".join(rows))

    assert done.returncode == 0
    assert done.err == b""
    assert any(kind.startswith("oom.") for kind in kinds(told))
    data = b"".join(rows)
    # rsyslog gets a reply also for what comes after the last newline.
    data += b"\n" if protocol == "rsyslog" else b""
    lines = done.out.split(b"\n")
    assert len(lines) == data.count(b"\n") + 1
    if protocol == "lines":
        assert done.out == data
    elif protocol == "json":
        changed = [
            (before, after)
            for before, after in zip(data.split(b"\n"), lines, strict=True)
            if before != after
        ]
        for before, after in changed:
            field = after.index(b',"vllm_triage":')
            assert before.startswith(after[:field])
    else:
        assert all(isinstance(json.loads(line), dict) for line in lines[:-1])


@pytest.mark.parametrize("protocol", list(Protocol))
def test_shuffled_and_cut_rubbish_never_stops_it(protocol: Protocol) -> None:
    chance = random.Random(7)
    scanner = Scanner()
    failed: list[str] = []
    for _ in range(8):
        rows = [*HOSTILE, OOM + b"\n", *LOG.splitlines(keepends=True)]
        chance.shuffle(rows)
        data = bytearray(b"".join(rows))
        for _ in range(30):
            data[chance.randrange(len(data))] = chance.randrange(256)
        stream = Filter(protocol, scanner=Scanner(like=scanner), warn=failed.append)
        out = b""
        rest = bytes(data)
        while rest:
            size = chance.randrange(1, 4000)
            out += stream.pass_on(rest[:size]) + stream.feed(rest[:size], 0.0)
            rest = rest[size:]
        out += stream.close()
        assert out.count(b"\n") == data.count(b"\n") + (
            protocol is Protocol.RSYSLOG and data[-1:] != b"\n"
        )
    assert failed == []


def test_a_record_over_the_limit_is_handed_on_unread() -> None:
    record = json.dumps({"message": OOM.decode() + "x" * MAX_RECORD}).encode() + b"\n"
    told: list[object] = []
    stream = Filter(Protocol.JSON, tell=told.append)
    out = b"".join(
        stream.feed(record[start : start + 65536], 0.0) for start in range(0, len(record), 65536)
    )

    assert out + stream.close() == record
    assert told == []


@pytest.mark.parametrize(
    ("keys", "record", "source"),
    [
        ((), {"container_id": 7}, "7"),
        (("kubernetes.pod",), {"kubernetes": {"pod": "a"}}, "a"),
        (("kubernetes.pod",), {"kubernetes.pod": "a"}, "a"),
        (("kubernetes.pod", "host"), {"kubernetes": "none", "host": "h"}, "h"),
        (("pod",), {"pod": ["a"]}, "<stdin>"),
        (("pod",), {"pod": None}, "<stdin>"),
        (("pod",), {"pod": ""}, "<stdin>"),
        (("pod",), {"pod": "\ud800"}, "?"),
    ],
)
def test_a_record_names_its_source(
    keys: tuple[str, ...], record: dict[str, object], source: str
) -> None:
    told: list[str] = []
    stream = Filter(
        Protocol.JSON,
        tell=lambda update: told.append(update.evidence[0].source),
        scanner=Scanner("<stdin>"),
        source_keys=keys,
    )
    row = json.dumps({"text": {"said": OOM.decode()}, "message": OOM.decode(), **record})
    stream.feed(row.encode() + b"\n", 0.0)
    stream.close()

    assert told == [source]


@pytest.mark.parametrize("key", ['with "quotes"', "a\\b", "", "ключ", "a.b"])
def test_the_field_has_the_name_that_was_asked_for(key: str) -> None:
    stream = Filter(Protocol.JSON, key=key)
    row = json.dumps({"message": OOM.decode()}).encode() + b"\n"
    out = stream.feed(row * 3, 0.0)

    found = [json.loads(line) for line in out.splitlines()]
    assert any(one.get(key, {}).get("kind", "").startswith("oom.") for one in found if key in one)


def test_a_message_of_several_lines_is_read_as_lines() -> None:
    told: list[str] = []
    stream = Filter(Protocol.JSON, tell=lambda update: told.append(update.kind.value))
    stream.feed(json.dumps({"message": LOG.decode()}).encode() + b"\n", 0.0)
    stream.close()

    assert KIND in told


def test_a_fault_of_ours_is_told_once_and_the_log_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Scanner.feed

    def broken(self: Scanner, line: str) -> object:
        if "bad" in line:
            raise KeyError("oops")
        return feed(self, line)

    monkeypatch.setattr(Scanner, "feed", broken)
    warned: list[str] = []
    told: list[object] = []
    stream = Filter(Protocol.JSON, warn=warned.append, tell=told.append)
    data = b"bad\nbad\n" + OOM + b"\n"

    assert stream.feed(data, 0.0) + stream.close() == data
    assert len(warned) == 1
    assert "KeyError" in warned[0]
    assert told


def test_after_a_fault_of_ours_the_lines_that_came_with_the_bad_one_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Scanner._read

    def broken(self: Scanner, number: int, raw: bytes) -> None:
        if b"bad" in raw:
            raise KeyError("oops")
        read(self, number, raw)

    monkeypatch.setattr(Scanner, "_read", broken)
    warned: list[str] = []
    told: list[Update] = []
    stream = Filter(Protocol.LINES, warn=warned.append, tell=told.append)
    stream.feed(b"good\nbad\nbad\n" + OOM + b"\ngood\nbad\n", 0.0)
    stream.feed(b"more\n", 0.0)
    stream.close()

    assert len(warned) == 1
    assert [one.evidence[0].line for one in told] == [4]


def test_a_source_that_comes_back_goes_on_counting_its_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vllm_triage.stream.MAX_SOURCES", 1)
    told: list[str] = []
    stream = Filter(Protocol.JSON, source_keys=["pod"], tell=lambda update: told.append(update.id))
    for pod in ("a", "b", "a", "b"):
        stream.feed(json.dumps({"pod": pod, "message": OOM.decode()}).encode() + b"\n", 0.0)
    stream.close()

    assert len(set(told)) == len(told) == 4


def test_a_burst_passes_before_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"INFO 01-01 00:00:00 [a.py:1] busy\n" * 30_000
    (tmp_path / "log").write_bytes(data)
    passed: list[int] = []
    feed = Filter.feed

    def watched(self: Filter, data: bytes, now: float) -> bytes:
        passed.append((tmp_path / "out").stat().st_size)
        return feed(self, data, now)

    monkeypatch.setattr(Filter, "feed", watched)
    with (tmp_path / "log").open("rb") as source, (tmp_path / "out").open("wb") as target:
        Loop(Filter(), source.fileno(), target.fileno()).run()

    assert (tmp_path / "out").read_bytes() == data
    assert min(passed) == len(data)


def test_what_waits_to_be_looked_at_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_triage.loop._MAX_BEHIND", 100_000)
    data = b"INFO 01-01 00:00:00 [a.py:1] busy\n" * 30_000
    (tmp_path / "log").write_bytes(data)
    behind: list[int] = []
    feed = Filter.feed
    looked = [0]

    def watched(self: Filter, data: bytes, now: float) -> bytes:
        behind.append((tmp_path / "out").stat().st_size - looked[0])
        looked[0] += len(data)
        return feed(self, data, now)

    monkeypatch.setattr(Filter, "feed", watched)
    with (tmp_path / "log").open("rb") as source, (tmp_path / "out").open("wb") as target:
        Loop(Filter(), source.fileno(), target.fileno()).run()

    assert (tmp_path / "out").read_bytes() == data
    assert max(behind) <= 100_000 + 65_536


def test_a_burst_of_a_million_lines_passes_in_little_memory(tmp_path: Path) -> None:
    told = tmp_path / "told"
    rows = iter(range(100))
    chunk = b"INFO: busy\n" * 10_000

    size, memory = poured(
        lambda: chunk + LOG if next(rows) == 99 else chunk, 100, "--incidents", str(told)
    )

    assert size == len(chunk) * 100 + len(LOG)
    assert memory < 150_000_000
    assert KIND in kinds(told)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--idle", "inf"), "'--idle': inf is not in the range 0.05<=x<=86400."),
        (("--idle", "nan"), "'--idle': 'nan' is not a valid float."),
        (("--key", ""), "'--key': is empty"),
        (("--source", "pod", "--source", ""), "'--source': is empty"),
        (("--incidents", ""), "'--incidents': is empty"),
        (("a b.log",), "a b.log: filter reads standard input; to follow a file: vllm-triage watch 'a b.log'"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_said_in_one_sentence(args: tuple[str, ...], said: str) -> None:
    done = run(*args)

    assert done.returncode == 2
    assert said in done.err.decode()
    assert done.err.decode().endswith("(vllm-triage filter --help shows the options)\n")
    assert done.err.count(b"\n") == 1


@pytest.mark.parametrize("meanwhile", [b"", b'{"kind":"of another filter"}\n'])
def test_a_torn_line_is_taken_back_unless_another_filter_has_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: bytes
) -> None:
    path = tmp_path / "told"
    scanner = Scanner()
    update = [*scanner.feed(OOM.decode()), *scanner.close()][-1]
    really, calls = os.write, [0]

    def full(file: int, data: bytes) -> int:
        """The disk takes ten bytes and no more."""
        calls[0] += 1
        if calls[0] == 1:
            return really(file, data[:10])
        with path.open("ab") as other:
            other.write(meanwhile)
        raise OSError(errno.ENOSPC, "No space left on device")

    said: list[str] = []
    sink = FileSink(path, said.append)
    with monkeypatch.context() as patched:
        patched.setattr("vllm_triage.sinks.os.write", full)
        sink(update)
    sink.close()

    assert path.read_bytes() == (b'{"id":"oom' + meanwhile if meanwhile else b"")
    assert len(said) == 1


def test_an_input_that_cannot_be_read_is_one_sentence() -> None:
    with Path(os.devnull).open("wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "vllm_triage", "filter"],
            stdin=closed,
            capture_output=True,
            check=False,
        )

    assert done.returncode == 2
    assert done.stderr.decode() == (
        "vllm-triage: <stdin>: cannot be read: Bad file descriptor; pipe a log into it\n"
    )


def test_incidents_that_no_record_took_are_bounded_and_told_as_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vllm_triage.stream._MAX_WAITING", 1)
    missed: list[Update] = []
    stream = Filter(Protocol.JSON, missed=missed.append)
    for text in (
        OOM,
        b"ERROR 01-02 03:04:06 [x.py:1] OSError: [Errno 28] No space left on device",
    ):
        row = json.dumps({"message": text.decode()}).encode() + b"\n"
        assert stream.feed(row, 0.0).count(b"\n") == 1
    rest = stream.close()

    assert rest == b""
    assert [one.kind.value for one in missed] == ["oom.load", "host.disk_full"]
