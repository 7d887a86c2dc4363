"""What containers, loggers and terminals put around a line, taken off."""

import json

import pytest

from vllm_triage.envelopes import Unwrapper
from vllm_triage.wrappings import Text


def unwrapped(*rows: str) -> list[Text]:
    unwrapper = Unwrapper()
    out: list[Text] = []
    for number, row in enumerate(rows, 1):
        out += unwrapper.feed(number, row)
    return [*out, *unwrapper.close()]


@pytest.mark.parametrize(
    "row",
    [
        "INFO 12-01 06:17:17 [core.py:1] msg",
        "(EngineCore_DP0 pid=1) ERROR 12-01 06:17:17 [core.py:1]   File",
        "[rank0]:   File",
        "[rank0]:[E1105 01:54:18.180109500 x.cpp:2068] a",
        'INFO:     1.2.3.4:5 - "GET / HTTP/1.1" 200 OK',
        "node:1:2 [0] NCCL INFO a",
        "    indented",
        "{not json}",
        "{" * 2000 + "}" * 2000,
    ],
)
def test_what_the_server_prints_stays_as_it_is(row: str) -> None:
    assert [item.text for item in unwrapped("first", row)] == ["first", row]


@pytest.mark.parametrize(
    ("row", "text", "container"),
    [
        ('{"log":"  a\\n","stream":"stderr","time":"2026-05-01T10:00:40Z"}', "  a", None),
        ("2026-05-01T10:00:40.1Z stderr F   a", "  a", None),
        ("vllm-1  |   a", "  a", "vllm-1"),
        ("[pod/vllm-0/server]   a", "  a", "vllm-0/server"),
        ("May  1 10:00:40 node1 vllm[4711]: a", "a", "vllm[4711]"),
        ("<34>1 2026-05-01T10:00:40Z node1 vllm 4711 - - a", "a", "vllm[4711]"),
        ("2023-12-31 14:17:24 | ERROR | stderr | a", "a", None),
        ("14633:/pytorch/aten/x.cu:16: a", "/pytorch/aten/x.cu:16: a", None),
        ("INFO 2025-11-14T15:41:11.09Z [resource.labels.containerName: vllm] a", "a", None),
        ("│ a │", "a", None),
        ("\x1b[36m(W pid=1)\x1b[0m a", "(W pid=1) a", None),
        ("#033[31mERROR#033[0m a", "ERROR a", None),
        ("^[[31mERROR^[[0m a", "ERROR a", None),
        ("a\r", "a", None),
    ],
)
def test_an_envelope_comes_off(row: str, text: str, container: str | None) -> None:
    item = unwrapped(row)[0]

    assert (item.text, item.container) == (text, container)


def test_partial_lines_of_a_container_runtime_are_joined() -> None:
    found = unwrapped(
        "2026-05-01T10:00:40.1Z stderr P Value", "2026-05-01T10:00:40.1Z stderr F Error: x"
    )

    assert [(item.text, item.number) for item in found] == [("ValueError: x", 1)]


def test_a_partial_line_at_the_end_is_not_lost() -> None:
    assert [item.text for item in unwrapped("2026-05-01T10:00:40.1Z stderr P half")] == ["half"]


def test_a_json_record_gives_its_message_and_its_traceback() -> None:
    row = json.dumps(
        {"level": "error", "message": "failed", "exc_info": "Traceback:\nValueError: x"}
    )

    found = unwrapped(row)

    assert [item.text for item in found] == ["failed", "Traceback:", "ValueError: x"]
    assert {item.number for item in found} == {1}
    assert {item.level for item in found} == {"error"}


def test_a_journal_message_may_be_bytes() -> None:
    row = json.dumps({"MESSAGE": list(b"caf\xc3\xa9"), "_SYSTEMD_UNIT": "vllm.service"})

    assert [(item.text, item.container) for item in unwrapped(row)] == [("café", "vllm.service")]


def test_the_format_is_that_of_most_lines() -> None:
    unwrapper = Unwrapper()
    for number in range(3):
        list(unwrapper.feed(number, f"2026-05-01T10:00:4{number}Z stderr F a"))
    list(unwrapper.feed(4, "plain"))

    assert unwrapper.format == "cri"


def docker(text: str) -> str:
    return json.dumps({"log": text, "stream": "stderr", "time": "2026-05-01T10:00:40Z"})


def test_a_line_that_docker_cut_is_put_together() -> None:
    found = unwrapped(docker("first\n"), docker("a" * 20), docker("b" * 20), docker("c\n"), docker("last\n"))  # fmt: skip

    assert [item.text for item in found] == ["first", "a" * 20 + "b" * 20 + "c", "last"]
    assert [item.number for item in found] == [1, 2, 5]


def test_records_of_a_shipper_that_takes_all_newlines_off_stay_apart() -> None:
    assert [item.text for item in unwrapped(docker("a"), docker("b"))] == ["a", "b"]


def test_the_end_of_a_huge_line_in_pieces_is_no_line_of_its_own() -> None:
    rows = [f"2026-05-01T10:00:40Z stderr P {'x' * 16_000}"] * 100
    found = unwrapped(*rows, "2026-05-01T10:00:40Z stderr F the end", "2026-05-01T10:00:41Z stderr F next")  # fmt: skip

    assert [item.text[:4] for item in found] == ["xxxx", "next"]


def test_a_shippers_level_info_is_no_level_and_a_loggers_is() -> None:
    shipper = unwrapped('{"level": "info", "message": "a"}')[0]
    logger = unwrapped('{"level": "info", "name": "vllm", "message": "a"}')[0]

    assert (shipper.level, logger.level) == (None, "info")


def test_a_proxys_record_of_a_request_is_no_text() -> None:
    row = '{"method": "POST", "body": "CUDA out of memory", "status": 200}'

    assert [item.text for item in unwrapped(row)] == [""]


@pytest.mark.parametrize(
    "row",
    [
        'time=2026-05-01T10:00:40Z level=error msg="a \\"b\\"" pod=x',
        '    "message": "a \\"b\\"",',
        "a &quot;b&quot;",
    ],
)
def test_a_message_in_logfmt_pretty_json_or_html_is_read(row: str) -> None:
    assert unwrapped("first", row)[1].text == 'a "b"'


def test_rows_that_a_syslog_daemon_wrote_as_one_are_taken_apart() -> None:
    items = unwrapped(
        "May  1 10:00:40 node1 vllm[4711]: Traceback:#012#011  File#012ValueError: a"
    )

    assert [item.text for item in items] == ["Traceback:", "\t  File", "ValueError: a"]
    assert {item.container for item in items} == {"vllm[4711]"}


@pytest.mark.parametrize(
    ("row", "text", "container"),
    [
        ("2026-05-01T10:00:40.123+00:00 node1 vllm[4711]: a", "a", "vllm[4711]"),
        ("2026-05-01T10:00:40.123+00:00 node1 kernel: NVRM: Xid", "NVRM: Xid", "kernel"),
        # Words of the server that look like a host and a program are what it said.
        ("2026-05-01T10:00:40.123+00:00 Loading model: a", "Loading model: a", None),
    ],
)
def test_a_syslog_daemon_may_write_whole_times(row: str, text: str, container: str | None) -> None:
    (item,) = unwrapped(row)

    assert (item.text, item.container) == (text, container)
    assert item.time == "2026-05-01T10:00:40.123+00:00"


def test_of_very_many_halves_of_lines_the_oldest_is_given_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vllm_triage.envelopes._MAX_PARTIALS", 2)
    rows = [f"{word}-1  | 2026-05-01T10:00:40.1Z stdout P {word}" for word in "abc"]

    items = unwrapped(*rows)

    assert sorted(item.text for item in items) == ["a", "b", "c"]
    assert items[0].text == "a"
