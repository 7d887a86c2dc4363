"""journald's export format, as the documentation describes it and as journalctl writes it."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import shippers
from tests.conftest import FIXTURES
from vllm_triage import Scanner, triage
from vllm_triage.envelopes import Unwrapper
from vllm_triage.journal import Export
from vllm_triage.model import Update
from vllm_triage.sources import decoded
from vllm_triage.stream import Filter, Protocol

COLOURED = FIXTURES / "oom" / "kv-cache-too-small.log"
REMOTE = "systemd-journal-remote"


def entry(message: bytes, n: int, unit: str = "vllm.service", *, is_last: bool = False) -> bytes:
    """An entry, its message as a line where journald writes it so, else with its length."""
    is_text = not any(byte < 32 and byte != 9 for byte in message)
    value = (
        b"MESSAGE=" + message
        if is_text
        else b"MESSAGE\n" + len(message).to_bytes(8, "little") + message
    )
    after = b"" if is_last else f"_PID=77\n_SYSTEMD_UNIT={unit}\n".encode()
    before = f"_PID=77\n_SYSTEMD_UNIT={unit}\n".encode() if is_last else b""
    return (
        f"__CURSOR=s=739ad463348b4ceca5a9e69c95a3c93f;i={n:x}\n"
        f"__REALTIME_TIMESTAMP={1_777_629_640_000_000 + n}\n"
        "__MONOTONIC_TIMESTAMP=6104277\n"
        "_BOOT_ID=4ece7c7d81cb4e4ab5d5e1ea5a1ee5fc\nPRIORITY=6\n"
    ).encode() + b"%b%b\n%b\n" % (before, value, after)


def read(data: bytes) -> list[str]:
    unwrapper = Unwrapper()
    rows = []
    for number, line in enumerate(data.split(b"\n"), 1):
        rows += [one.text for one in unwrapper.feed(number, decoded(line)) if one.text]
    return rows + [one.text for one in unwrapper.close()]


@given(
    st.lists(
        st.lists(st.text(st.sampled_from("abcK \té=\U0001f600"), min_size=1, max_size=300), min_size=1, max_size=6),
        max_size=6,
    ),
    st.booleans(),
)  # fmt: skip
def test_messages_of_any_length_come_back(messages: list[list[str]], is_last: bool) -> None:
    rows = [[f"x {row}" for row in message] for message in messages]
    data = b"".join(
        entry("\n".join(message).encode(), n, is_last=is_last) for n, message in enumerate(rows)
    )

    assert read(data) == [row for message in rows for row in message]


@pytest.mark.parametrize("length", [*range(3, 60), 127, 128, 200, 255, 256, 257, 266, 512, 2561, 2570, 2816, 8200, 33_506, 43_459, 65_536, 70_000])  # fmt: skip
def test_the_bytes_of_a_length_are_no_text(length: int) -> None:
    message = b"a\n" + b"b" * (length - 2)

    assert read(entry(message, 1)) == ["a", "b" * (length - 2)]


def test_a_message_with_blank_rows_and_rows_like_fields_is_one_message() -> None:
    message = b"one\n\nNCCL_DEBUG=INFO\nERROR\ntwo\n\n\nthree"

    assert read(entry(message, 1) + entry(b"next", 2)) == [
        *("one", "NCCL_DEBUG=INFO", "ERROR", "two", "three", "next"),
    ]


def test_bytes_that_are_no_text_in_a_message_do_not_hide_it() -> None:
    data = entry(b"\x1b[36mINFO\x1b[0m caf\xe9\nsecond", 1) + entry(b"next", 2)

    assert read(data) == ["INFO caf\ufffd", "second", "next"]


def test_other_binary_fields_are_passed_over() -> None:
    core = b"COREDUMP\n" + (6).to_bytes(8, "little") + b"ab\ncd\n\n"
    data = entry(b"first", 1)[:-1] + core + b"\n" + entry(b"next", 2)

    assert read(data) == ["first", "next"]


def test_text_after_an_export_is_text() -> None:
    assert read(entry(b"first", 1) + b"plain\n\nPRIORITY=6\n" + entry(b"a\nb", 2) + b"more\n") == [
        *("first", "plain", "PRIORITY=6", "a", "b", "more"),
    ]


def test_an_entry_is_bounded() -> None:
    export = Export()
    export.take(1, "__CURSOR=s=1")
    export.take(2, "MESSAGE")
    for number in range(3, 50_000):
        assert export.take(number, "x" * 1000) == []

    [(_, fields)] = export.close()
    assert len(fields["MESSAGE"]) < 1_100_000


def test_each_message_knows_when_and_by_whom_it_was_printed() -> None:
    unwrapper = Unwrapper()
    data = entry(b"a\nb", 1, "vllm-a.service") + entry(b"c", 2, "vllm-b.service")

    texts = [
        one
        for number, line in enumerate(data.split(b"\n"), 1)
        for one in unwrapper.feed(number, decoded(line))
    ]

    assert [(one.number, one.text, one.container, one.time) for one in texts if one.text] == [
        (6, "a", "vllm-a.service", "2026-05-01T10:00:40.000001Z"),
        (6, "b", "vllm-a.service", "2026-05-01T10:00:40.000001Z"),
        (17, "c", "vllm-b.service", "2026-05-01T10:00:40.000002Z"),
    ]


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_the_filter_hands_an_export_on_and_tells_its_incidents(size: int) -> None:
    rows = COLOURED.read_bytes().split(b"\n")
    data = b"".join(entry(row, n) for n, row in enumerate(rows) if row)
    told: list[Update] = []
    stream = Filter(Protocol.LINES, tell=told.append, scanner=Scanner("<stdin>"))
    out = b""
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        out += stream.pass_on(piece) + stream.feed(piece, 0.0)
    out += stream.close()

    assert out == data
    assert {one.kind for one in told} == {"oom.kv_cache", "engine.dead"}


def test_what_journalctl_exports_gives_what_the_log_gives(tmp_path: Path) -> None:
    journalctl = shippers.program("journalctl")
    remote = shippers.program(REMOTE, "/lib/systemd:/usr/lib/systemd")
    rows = [row for row in COLOURED.read_bytes().split(b"\n") if row]
    given = b"".join(entry(row, n) for n, row in enumerate(rows, 1))
    given += entry(b"a message\n\nof several rows\nNCCL_DEBUG=INFO", 9999)
    journal = tmp_path / "vllm.journal"
    subprocess.run([remote, "-o", journal, "-"], input=given, check=True, capture_output=True)
    exported = tmp_path / "vllm.export"
    with exported.open("wb") as file:
        subprocess.run(
            [journalctl, "--file", journal, "-o", "export"],
            stdout=file, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    report = triage(exported)

    assert b"MESSAGE\n" in exported.read_bytes()
    assert [source.format for source in report.sources] == ["journald"]
    assert [one.kind for one in report.incidents] == [
        one.kind for one in triage(COLOURED).incidents
    ]
    assert report.incidents[0].kind == "oom.kv_cache"
    assert report.incidents[0].facts == triage(COLOURED).incidents[0].facts
    assert read(exported.read_bytes())[-3:] == ["a message", "of several rows", "NCCL_DEBUG=INFO"]
    as_json = subprocess.run(
        [journalctl, "--file", journal, "-o", "json"], check=True, capture_output=True
    ).stdout
    assert len(as_json.splitlines()) == len(rows) + 1
    assert json.loads(as_json.splitlines()[0])["_SYSTEMD_UNIT"] == "vllm.service"
    other = tmp_path / "vllm.json"
    other.write_bytes(as_json)
    assert [one.kind for one in triage(other).incidents] == [one.kind for one in report.incidents]
