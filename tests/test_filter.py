"""The filter hands on every byte in order and tells what a triage of the whole log tells."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import FIXTURES
from tests.test_updates import latest, named
from vllm_triage import Scanner, triage
from vllm_triage.model import Update
from vllm_triage.stream import Filter, Protocol

SCANNER = Scanner()


def passed(protocol: Protocol, chunks: list[bytes]) -> tuple[bytes, list[Update]]:
    told: list[Update] = []
    stream = Filter(protocol, tell=told.append, scanner=Scanner("<stdin>", like=SCANNER))
    out = b""
    for chunk in chunks:
        out += stream.pass_on(chunk) + stream.feed(chunk, 0.0)
    return out + stream.close(), told


def chunked(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks = []
    for size in sizes:
        chunks.append(data[:size])
        data = data[size:]
    return [*chunks, data]


@given(st.lists(st.binary(max_size=200), max_size=20), st.sampled_from(["lines", "json"]))
def test_bytes_that_are_no_incident_come_out_as_they_came_in(
    chunks: list[bytes], protocol: str
) -> None:
    out, told = passed(Protocol(protocol), chunks)

    assert told == []
    assert out == b"".join(chunks)


@given(st.data())
def test_a_log_in_chunks_of_any_size_gives_the_incidents_of_the_whole_log(
    data: st.DataObject,
) -> None:
    path = data.draw(st.sampled_from(sorted((FIXTURES / "oom").glob("*.log"))))
    content = path.read_bytes()
    sizes = data.draw(st.lists(st.integers(0, 3000), max_size=30))

    out, told = passed(Protocol.LINES, chunked(content, sizes))

    assert out == content
    whole = triage(path)
    assert {named(one) for one in latest(told).values()} == {named(one) for one in whole.incidents}


@given(st.lists(st.integers(0, 3000), max_size=30))
def test_only_the_records_that_complete_incidents_get_the_field(sizes: list[int]) -> None:
    rows = (FIXTURES / "oom").glob("*.log")
    text = max(rows, key=lambda path: path.stat().st_size).read_text("utf-8", "replace")
    records = [json.dumps({"log": row, "n": n}) for n, row in enumerate(text.split("\n"))]
    data = ("\n".join(records) + "\n").encode()

    out, told = passed(Protocol.JSON, chunked(data, sizes))

    lines = out.decode().splitlines()
    assert len(lines) == len(records)
    found = []
    for line, record in zip(lines, records, strict=True):
        if line != record:
            read = json.loads(line)
            found.append(read.pop("vllm_triage"))
            assert read == json.loads(record)
    assert [one["id"] for one in found] == [one.id for one in told][: len(found)]
    assert found


def test_rsyslog_gets_one_reply_a_message() -> None:
    rows = (FIXTURES / "oom").glob("*.log")
    data = max(rows, key=lambda path: path.stat().st_size).read_bytes()

    out, told = passed(Protocol.RSYSLOG, [data])

    replies = [json.loads(line) for line in out.splitlines()]
    assert len(replies) == data.count(b"\n") + (not data.endswith(b"\n"))
    assert [one["$!"]["vllm_triage"]["id"] for one in replies if one] == [one.id for one in told][
        : sum(map(bool, replies))
    ]


def test_interleaved_pods_are_runs_of_their_own() -> None:
    text = max((FIXTURES / "oom").glob("*.log"), key=lambda path: path.stat().st_size)
    rows = text.read_text("utf-8", "replace").split("\n")
    data = "".join(
        json.dumps({"message": row, "kubernetes": {"pod_name": pod, "namespace_name": "ns"}})
        + "\n"
        for row in rows
        for pod in ("a", "b")
    ).encode()

    _, told = passed(Protocol.JSON, [data])

    last = latest(told)
    by_pod = {
        pod: {named(one) for one in last.values() if one.evidence[0].source == f"ns/{pod}"}
        for pod in ("a", "b")
    }
    assert by_pod["a"] == by_pod["b"] != set()
    assert len(last) == len(by_pod["a"]) * 2
