"""Shippers that are not started here: peers that speak to the filter as they do.

What each peer does is what its shipper's documentation and source say; what it is told it reads
from the documented file.
"""

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import regex

from tests import shippers
from tests.shippers import KINDS, ROOT, TRIAGE, WAIT_S, documented, until
from vllm_triage.kinds import Severity

Event = tuple[str, float, dict[str, Any]]
# Loki's default for max_line_size; filelog's max_log_size is four times that.
LOKI_MAX_LINE = 256 * 1024


class Child:
    """A program in a session of its own, its output read unbuffered by a thread."""

    def __init__(self, command: str | list[str], *, reads: int, is_fed: bool = False) -> None:
        self.process = subprocess.Popen(
            command,
            shell=isinstance(command, str),
            stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        self.lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._reads = reads
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def _read(self) -> None:
        rest = b""
        while data := self.output.read(self._reads):
            *lines, rest = (rest + data).split(b"\n") if b"\n" in data else [rest + data]
            for line in lines:
                self.lines.put(line)
        if rest:
            self.lines.put(rest)
        self.lines.put(None)

    def line(self) -> bytes | None:
        """The next line of the output, None at its end."""
        return self.lines.get(timeout=WAIT_S)

    def rest(self) -> list[bytes]:
        """All lines until the end of the output."""
        return list(iter(self.line, None))

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def close(self) -> None:
        """End it hard, wherever it is."""
        for pid in [*shippers.children(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(WAIT_S)
        self._thread.join(WAIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def section(text: str, name: str) -> dict[str, str]:
    """The parameters of the first section of a name in a Fluentd configuration, without those inside it."""
    found = regex.search(rf"<{name}[^>]*>\n(.*?)</{name}>", text, regex.DOTALL)
    assert found
    own = regex.sub(r"<(\w+)[^>]*>.*?</\1>", "", found[1], flags=regex.DOTALL)
    pairs = (line.split(None, 1) for line in own.split("\n") if line.strip(" #"))
    return {one[0]: one[1] for one in pairs if len(one) == 2 and one[0] != "#"}


class ExecFilter:
    """Fluentd's out_exec_filter with JSON both ways."""

    def __init__(self, text: str) -> None:
        self._match = section(text, "match")
        self._inject = section(text, "inject")
        blocks = regex.findall(r"<parse>\n(.*?)</parse>", text, regex.DOTALL)
        self._parse = section(f"<parse>\n{blocks[-1]}</parse>", "parse")
        self._extract = section(text, "extract")
        assert self._match["@type"] == "exec_filter"
        assert section(text, "format")["@type"] == self._parse["@type"] == "json"
        assert self._match["num_children"] == "1"
        assert self._match["child_respawn"] == "inf"
        self.child = self._start()

    def _start(self) -> Child:
        return Child(
            shlex.split(self._match["command"]),
            reads=int(self._parse.get("stream_buffer_size", "8192")),
            is_fed=True,
        )

    def write(self, chunk: list[Event]) -> None:
        """Write a chunk; to a new child, whole, where the pipe is broken."""
        data = b""
        for tag, time, record in chunk:
            injected = {self._inject["tag_key"]: tag, self._inject["time_key"]: time}
            data += json.dumps({**record, **injected}).encode() + b"\n"
        try:
            self.child.write(data)
        except BrokenPipeError:
            self.child.close()
            self.child = self._start()
            self.child.write(data)

    def emitted(self, line: bytes) -> Event:
        """An event as Fluentd makes it from a record of the program."""
        record = json.loads(line)
        # The parser takes its own time key first: "time", unless it is told another.
        time = record.pop(self._parse.get("time_key", "time"))
        tag = record.pop(self._extract["tag_key"])
        return f"{self._match['add_prefix']}.{tag}", time, record


@pytest.fixture
def fluentd(tmp_path: Path) -> Iterator[ExecFilter]:
    peer = ExecFilter(documented("fluentd.conf", tmp_path).read_text("utf-8"))
    try:
        yield peer
    finally:
        peer.child.close()


def events() -> list[Event]:
    return [
        ("vllm.server", 1777629640.25 + n, {"message": row, "file": "/var/log/vllm/a.log", "time": "kept"})
        for n, row in enumerate(shippers.thousand_lines())
    ]  # fmt: skip


def passed_on(given: list[Event]) -> list[Event]:
    return [(f"triaged.{tag}", time, record) for tag, time, record in given]


def without_incidents(received: list[Event]) -> tuple[list[Event], list[dict[str, Any]]]:
    found = [record.pop("vllm_triage") for _, _, record in received if "vllm_triage" in record]
    return received, found


def test_fluentd_gets_each_record_back_at_once_with_its_tag_and_time(fluentd: ExecFilter) -> None:
    given = events()
    received: list[Event] = []
    for one in given[:20]:
        fluentd.write([one])
        line = fluentd.child.line()
        assert line is not None
        received.append(fluentd.emitted(line))
    for start in range(20, len(given), 77):
        fluentd.write(given[start : start + 77])
    while len(received) < len(given):
        line = fluentd.child.line()
        assert line is not None
        received.append(fluentd.emitted(line))
    fluentd.child.process.send_signal(signal.SIGTERM)
    assert fluentd.child.rest() == []
    assert fluentd.child.process.wait(WAIT_S) == 0

    records, found = without_incidents(received)
    assert records == passed_on(given)
    assert {one["kind"] for one in found} == KINDS
    [root] = {one["root_cause"] for one in found if one["kind"] == ROOT}
    assert found[-1]["root_cause"] == root
    assert root.split(":")[1] == "/var/log/vllm/a.log"


def test_fluentd_starts_a_killed_child_again(fluentd: ExecFilter) -> None:
    given = events()
    fluentd.write(given[:100])
    first = [fluentd.child.line() for _ in range(100)]
    assert None not in first
    shippers.kill(fluentd.child.process.pid)
    fluentd.write(given[100:500])
    fluentd.write(given[500:])
    received: list[Event] = []
    while len(received) < len(given) - 100:
        line = fluentd.child.line()
        assert line is not None
        received.append(fluentd.emitted(line))

    records, found = without_incidents(received)
    assert records == passed_on(given[100:])
    assert {one["kind"] for one in found} == KINDS


def setting(text: str, name: str) -> str:
    """The value of the first line `name: value` of a YAML file."""
    found = regex.search(rf"^[ -]*{name}: (.+)$", text, regex.MULTILINE)
    assert found
    return str(found[1])


def grown(log: Path, rows: list[str]) -> None:
    """Write a log in pieces that end anywhere."""
    data = ("\n".join(rows) + "\n").encode()
    with log.open("ab", buffering=0) as file:
        for start in range(0, len(data), 5000):
            file.write(data[start : start + 5000])


def test_fluent_bit_reads_the_lines_from_a_pipe_and_the_incidents_from_their_file(
    tmp_path: Path,
) -> None:
    text = documented("fluent-bit.yaml", tmp_path).read_text("utf-8")
    (tmp_path / "vllm").mkdir()
    log, rows = tmp_path / "vllm" / "server.log", shippers.thousand_lines()
    log.touch()
    assert setting(text, "threaded") == "true"
    assert setting(text, "buf_size") == "1M"
    assert setting(text, "path") == str(tmp_path / "vllm-incidents.ndjson")
    # popen(): a shell, nobody on its standard input.
    child = Child(setting(text, "command"), reads=4096)
    try:
        grown(log, rows)
        received = [{"exec": (child.line() or b"").decode()} for _ in rows]
        until(lambda: shippers.is_told(tmp_path / "vllm-incidents.ndjson"), "incidents are there")
        assert received == [{"exec": row} for row in rows]
        assert max(map(len, rows)) < 1_000_000

        # Fluent Bit ends: nobody reads any more, and nobody kills.
        shippers.kill_reader(child.process)

        def have_ended() -> bool:
            grown(log, rows[:1])
            return not shippers.session(child.process.pid)

        until(have_ended, "the filter and tail have ended")
    finally:
        child.close()


def remapped(line: str) -> dict[str, Any]:
    """An event after the remap of vector.yaml."""
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict) and "revision" in found and "kind" in found:
            return {"message": found["title"], "vllm_triage": found}
    return {"message": line}


def test_vector_reads_lines_and_incidents_and_ends_the_filter_by_sigterm(tmp_path: Path) -> None:
    text = documented("vector.yaml", tmp_path).read_text("utf-8")
    (tmp_path / "vllm").mkdir()
    log, rows = tmp_path / "vllm" / "server.log", shippers.thousand_lines()
    found = regex.search(r"command:\n((?: +- .*\n)+)", text)
    assert found
    command = [line.split("- ", 1)[1] for line in found[1].rstrip("\n").split("\n")]
    assert setting(text, "mode") == "streaming"
    assert setting(text, "include_stderr") == "false"
    grown(log, rows)

    received: list[dict[str, Any]] = []
    # Killed once: Vector sees the end of the output and starts the command again.
    for how in (signal.SIGKILL, signal.SIGTERM):
        child = Child(command, reads=8192)
        try:
            received = [remapped((child.line() or b"").decode()) for _ in range(len(rows))]
            while sum("vllm_triage" not in one for one in received) < len(rows):
                received.append(remapped((child.line() or b"").decode()))
            child.process.send_signal(how)
            received += [remapped(line.decode()) for line in child.rest()]
            assert child.process.wait(WAIT_S) == (0 if how is signal.SIGTERM else -how)
            until(lambda: not shippers.session(child.process.pid), "tail has ended")  # noqa: B023
        finally:
            child.close()

    assert [one["message"] for one in received if "vllm_triage" not in one] == rows
    told = [one["vllm_triage"] for one in received if "vllm_triage" in one]
    assert {one["kind"] for one in told} == KINDS
    assert {one["root_cause"].split(":")[0] for one in told[-1:]} == {ROOT}


class Follower:
    """What file receivers do: whole lines only, through a rotation by renaming."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._rest = b""
        self.lines: list[bytes] = []

    def poll(self) -> list[bytes]:
        if self._file is None and self._path.exists():
            self._file = self._path.open("rb")
        while self._file is not None:
            while data := self._file.read(1000):
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.lines += lines
            here = os.fstat(self._file.fileno()).st_ino
            if not self._path.exists() or self._path.stat().st_ino == here:
                break
            assert self._rest == b""
            self._file.close()
            self._file = self._path.open("rb")
        return self.lines

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def followed(path: Path, *options: str) -> list[dict[str, Any]]:
    """The incidents of two servers, as a receiver reads them, with a rotation between them."""
    rows = shippers.thousand_lines()
    follower = Follower(path)
    child = Child(
        [str(TRIAGE), "filter", "--protocol", "json", "--idle", "0.1", "--incidents", str(path), *options],
        reads=8192, is_fed=True,
    )  # fmt: skip
    try:
        for pod in ("first", "second"):
            records = [{"message": row, "kubernetes": {"pod_name": pod}} for row in rows]
            child.write("".join(json.dumps(record) + "\n" for record in records).encode())
            until(lambda: any(pod.encode() in one for one in follower.poll()), f"{pod} is told")  # noqa: B023
            if pod == "first":
                path.rename(path.with_suffix(".1"))
        assert child.process.stdin is not None
        child.process.stdin.close()
        child.rest()
        assert child.process.wait(WAIT_S) == 0
        lines = follower.poll()
    finally:
        child.close()
        follower.close()
    assert max(map(len, lines)) < LOKI_MAX_LINE
    return [json.loads(line) for line in lines]


def test_alloy_finds_the_fields_that_it_labels(tmp_path: Path) -> None:
    text = documented("config.alloy", tmp_path).read_text("utf-8")
    path = tmp_path / "vllm-incidents.ndjson"
    assert f'"__path__" = "{path}"' in text
    block = regex.search(r"expressions = \{\n(.*?)\}", text, regex.DOTALL)
    assert block
    expressions = dict(regex.findall(r"(\w+) += \"(\w+)\"", block[1]))
    used = {name for values in regex.findall(r"values = \{(.*?)\}", text) for name in regex.findall(r"(\w+) =", values)}  # fmt: skip
    assert used == set(expressions)

    rows = followed(path)

    assert all(name in row for row in rows for name in expressions.values())
    assert all(isinstance(row[name], str) for row in rows for name in ("kind", "severity"))
    assert {row["kind"] for row in rows} == KINDS
    assert {row["id"].split(":")[1] for row in rows} == {"first", "second"}


def test_the_collector_finds_the_fields_that_it_maps(tmp_path: Path) -> None:
    text = documented("otelcol.yaml", tmp_path).read_text("utf-8")
    path = tmp_path / "vllm-incidents.ndjson"
    assert f"include: [{path}]" in text
    block = regex.search(r"mapping:\n((?: +\w+: \w+\n)+)", text)
    assert block
    mapping = dict(regex.findall(r"(\w+): (\w+)", block[1]))
    assert set(mapping.values()) == set(Severity)
    taken = regex.findall(r"(?:parse_from|from): attributes\.(\w+)", text)
    assert taken == ["severity", "title"]

    rows = followed(path)

    assert all(row[name] for row in rows for name in taken)
    assert {row["kind"] for row in rows} == KINDS


def test_the_collector_reads_otlp_lines_as_they_are(tmp_path: Path) -> None:
    text = documented("otelcol.yaml", tmp_path).read_text("utf-8")
    path = tmp_path / "vllm-incidents.otlp.json"
    assert f"include: [{path}]" in text
    assert "filter --format otel --incidents" in text

    rows = followed(path, "--format", "otel")

    records = [
        record
        for row in rows
        for resource in row["resourceLogs"]
        for scope in resource["scopeLogs"]
        for record in scope["logRecords"]
    ]
    assert len(records) == len(rows)
    kinds = {
        pair["value"]["stringValue"]
        for record in records
        for pair in record["attributes"]
        if pair["key"] == "vllm_triage.kind"
    }
    assert kinds == KINDS
    assert {record["severityText"] for record in records} == {"FATAL"}


def test_the_page_names_every_file() -> None:
    page = (shippers.DOCUMENTED / "README.md").read_text("utf-8")
    files = {one.name for one in shippers.DOCUMENTED.iterdir()} - {"README.md"}

    assert set(regex.findall(r"\]\(([^)/]+)\)", page)) == files
