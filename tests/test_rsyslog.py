"""rsyslog, started for real with the documented files."""

import json
import subprocess
from pathlib import Path

import pytest

from tests import shippers
from tests.conftest import FIXTURES
from tests.shippers import KINDS, TRIAGE, documented, lines_of, running, until
from vllm_triage.model import Update
from vllm_triage.stream import Filter, Protocol


def rsyslog(config: Path, folder: Path) -> list[str | Path]:
    return [shippers.program("rsyslogd"), "-n", "-f", config, "-i", folder / "pid"]


def tagged(rows: list[str]) -> bytes:
    """Rows as a syslog sender of RFC 3164 sends them."""
    return "".join(f"<13>Dec  2 15:00:00 node1 vllm[12]: {row}\n" for row in rows).encode()


def received(rows: list[str]) -> list[str]:
    """Rows as rsyslog keeps them: the space after the tag is the message's, control characters are spelt out."""
    return [" " + row.replace("\t", "#011").replace("\x1b", "#033") for row in rows]


def test_mmexternal_adds_the_incident_to_rsyslogs_own_message(tmp_path: Path) -> None:
    rows = shippers.thousand_lines()
    (tmp_path / "rsyslog").mkdir()
    (tmp_path / "vllm").mkdir()
    log = tmp_path / "vllm" / "server.log"
    log.write_text("\n".join(rows) + "\n", "utf-8")
    config = documented("rsyslog-mmexternal.conf", tmp_path)
    messages, incidents = tmp_path / "vllm-messages.log", tmp_path / "vllm-incidents.ndjson"

    with running(rsyslog(config, tmp_path), tmp_path):
        until(lambda: len(lines_of(messages)) >= len(rows), "every message is there")
        until(lambda: shippers.is_told(incidents), "the incidents are there")

    assert lines_of(messages) == rows
    found = shippers.root(incidents)
    assert found is not None
    place = found["evidence"][0]
    assert place["source"] == str(log)
    assert "KV cache" in rows[place["line"] - 1]


def test_mmexternal_reads_syslog_messages_and_restarts_a_filter_that_was_killed(
    tmp_path: Path,
) -> None:
    rows = shippers.thousand_lines()
    port = shippers.free_port()
    (tmp_path / "rsyslog").mkdir()
    config = documented("rsyslog-mmexternal.conf", tmp_path)
    with config.open("a", encoding="utf-8") as file:
        file.write('module(load="imtcp")\n')
        file.write(f'input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="vllm")\n')
    messages, incidents = tmp_path / "vllm-messages.log", tmp_path / "vllm-incidents.ndjson"

    with running(rsyslog(config, tmp_path), tmp_path) as daemon:
        shippers.send(port, tagged(rows[:5]))
        until(lambda: len(lines_of(messages)) >= 5, "the first messages are there")
        [child] = shippers.children(daemon.pid)
        shippers.kill(child)
        shippers.send(port, tagged(rows))
        until(lambda: len(lines_of(messages)) >= 5 + len(rows), "every message is there")
        until(lambda: shippers.is_told(incidents), "the incidents are there")

    assert lines_of(messages) == received(rows[:5] + rows)


def test_omprog_feeds_the_filter_and_its_incidents_land_in_a_file(tmp_path: Path) -> None:
    rows = shippers.thousand_lines()
    port = shippers.free_port()
    (tmp_path / "rsyslog").mkdir()
    config = documented("rsyslog-omprog.conf", tmp_path, **{"5140": str(port)})
    messages, incidents = tmp_path / "vllm-messages.log", tmp_path / "vllm-incidents.ndjson"

    with running(rsyslog(config, tmp_path), tmp_path):
        shippers.send(port, tagged(rows))
        until(lambda: len(lines_of(messages)) >= len(rows), "every message is there")
        until(lambda: shippers.is_told(incidents), "the incidents are there")

    assert lines_of(messages) == received(rows)


# As rsyslog 8.2302 writes `fulljson`: the raw message, its text, whose first character of RFC 3164 is a space.
@pytest.mark.parametrize(
    ("raw", "space", "version"),
    [
        ("<13>Dec  2 15:00:00 node1 vllm[12]: {}", " ", "0"),
        ("<13>1 2026-12-02T15:00:00Z node1 vllm 12 - - {}", "", "1"),
        ("{}", "", "0"),
    ],
    ids=["rfc3164", "rfc5424", "imfile"],
)
@pytest.mark.parametrize("protocol", [Protocol.RSYSLOG, Protocol.JSON])
def test_a_traceback_keeps_its_indentation(
    raw: str, space: str, version: str, protocol: Protocol
) -> None:
    rows = (FIXTURES / "loading" / "report-load-001.log").read_text("utf-8").split("\n")
    records = [
        json.dumps(
            {
                "msg": space + row,
                "rawmsg": raw.format(row),
                "hostname": "node1",
                "syslogtag": "vllm[12]:",
                "programname": "vllm",
                "protocol-version": version,
                "$!": None,
            }
        )
        for row in rows
    ]

    assert ("loading.model_not_found", 7) in told(protocol, records)
    assert told(protocol, records) == told(Protocol.LINES, rows)


def told(protocol: Protocol, lines: list[str]) -> set[tuple[str, int | None]]:
    updates: list[Update] = []
    stream = Filter(protocol, tell=updates.append)
    stream.feed(("\n".join(lines) + "\n").encode(), 0.0)
    stream.close()
    return {(one.kind, one.evidence[0].line) for one in updates}


def test_a_warning_is_no_reply_to_a_message() -> None:
    """Mmexternal has standard error and standard output on one pipe."""
    rows = shippers.thousand_lines()

    done = subprocess.run(
        [TRIAGE, "filter", "--protocol", "rsyslog", "--incidents", "/dev/full"],
        input=("\n".join(rows) + "\n").encode(),
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )

    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(replies) == len(rows)
    assert {one["$!"]["vllm_triage"]["kind"] for one in replies if one} == KINDS


@pytest.mark.parametrize("target", ["-", "stderr"])
def test_replies_have_no_room_for_incidents(target: str) -> None:
    done = subprocess.run(
        [TRIAGE, "filter", "--protocol", "rsyslog", "--incidents", target],
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )

    assert done.returncode == 2
    assert b"name a file" in done.stderr
