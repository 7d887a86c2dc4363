"""The filter hands on every byte in order and tells what a triage of the whole log tells."""

import json
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import FIXTURES, Fixture, fixtures, name_of
from tests.test_updates import content, latest, named
from vllm_triage import Scanner, triage
from vllm_triage.model import Incident, Update
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


def as_lines(rows: list[str]) -> bytes:
    return "\n".join(rows).encode()


def as_records(rows: list[str]) -> bytes:
    return b"".join(json.dumps({"message": row}).encode() + b"\n" for row in rows)


def as_messages(rows: list[str]) -> bytes:
    return b"".join(
        json.dumps({"msg": row, "hostname": "h", "programname": "p"}).encode() + b"\n"
        for row in rows
    )


FORMS = {
    Protocol.LINES: (as_lines, "<stdin>"),
    Protocol.JSON: (as_records, "<stdin>"),
    Protocol.RSYSLOG: (as_messages, "h/p"),
}


def answer(incidents: Iterable[Incident], name: str) -> list[dict[str, object]]:
    """All that is said of incidents, but under which source's name."""
    found = list(incidents)
    names = {one.id: named(one) for one in found}
    text = json.dumps(
        [content(one, names) for one in sorted(found, key=named)], default=str, sort_keys=True
    )
    answered: list[dict[str, object]] = json.loads(
        text.replace(json.dumps(name), '"SOURCE"').replace(f":{name}:", ":SOURCE:")
    )
    return answered


def texts(answered: list[dict[str, object]]) -> list[str]:
    """The evidence's texts, taken out of an answer."""
    rows = [row for one in answered for row in one["evidence"]]  # type: ignore[attr-defined]
    return [row.pop("text") for row in rows]


@pytest.mark.parametrize("fixture", [pytest.param(one, id=name_of(one)) for one in fixtures()])
@pytest.mark.parametrize("protocol", list(FORMS))
def test_a_log_in_chunks_of_any_size_gives_the_incidents_of_the_whole_log(
    fixture: Fixture, protocol: Protocol
) -> None:
    if protocol is Protocol.JSON and name_of(fixture) == "envelopes/journald-export":
        pytest.skip("an entry of several lines is no record a line")
    if protocol is Protocol.JSON and name_of(fixture) == "envelopes/kserve-pasted-with-blanks":
        pytest.skip("no logger puts a paste's blanks inside its records")
    content_ = fixture.log.read_bytes()
    rows = content_.decode("utf-8", "replace").split("\n")
    form, name = FORMS[protocol]
    data = content_ if protocol is Protocol.LINES else form(rows)
    chance = random.Random(len(data))
    sizes = [chance.choice((1, 7, 100, 3000, 70_000)) for _ in range(200)]

    out, told = passed(protocol, chunked(data, sizes))

    assert len(out.split(b"\n")) == len(data.split(b"\n"))
    if protocol is Protocol.LINES:
        assert out == data
    whole = triage(fixture.log)
    got, expected = (
        answer(latest(told).values(), name),
        answer(whole.incidents, str(fixture.log)),
    )
    if protocol is Protocol.JSON:
        # A record is an envelope: what was printed is shown without that which is inside it.
        for shown, printed in zip(texts(got), texts(expected), strict=True):
            # Both are cut at 2000 characters.
            assert shown.strip()[:1500] in printed
    assert got == expected


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


OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free."
BANNER = (
    "(APIServer pid=1) INFO 12-01 05:00:00 [api_server.py:1896] vLLM API server version 0.10.2"
)
READY = "(APIServer pid=1) INFO:     Application startup complete."
DEAD = (
    "(APIServer pid=1) ERROR 12-01 05:01:02 [core_client.py:600] "
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
)


def test_a_consequence_that_is_the_last_line_is_told_after_one_quiet_time() -> None:
    told: list[Update] = []
    stream = Filter(tell=told.append, scanner=Scanner("<stdin>", like=SCANNER), idle_s=2.0)
    stream.feed(as_lines([BANNER, DEAD]) + b"\n", now=1.0)
    stream.tick(2.5)
    assert told == []
    stream.tick(3.5)

    assert [one.kind for one in told] == ["engine.dead"]


@pytest.mark.parametrize("protocol", [Protocol.LINES, Protocol.JSON])
def test_a_fault_after_the_server_was_ready_again_is_a_new_incident(protocol: Protocol) -> None:
    """And what waited for its cause is told before its run is closed, though it was never quiet."""
    first = Scanner("<stdin>", like=SCANNER)
    first.forgets_past_runs = True
    told: list[Update] = []
    stream = Filter(protocol, tell=told.append, scanner=first)
    rows = [BANNER, READY, DEAD] * 3
    stream.feed(as_lines(rows) if protocol is Protocol.LINES else as_pod(rows), now=1.0)
    stream.close()

    assert [(one.id.rpartition(":")[2], one.revision, one.count) for one in told] == [
        ("3", 1, 1),
        ("6", 1, 1),
        ("9", 1, 1),
    ]


def as_pod(rows: list[str]) -> bytes:
    return b"".join(
        json.dumps({"log": row, "pod_name": "a", "container_name": "b"}).encode() + b"\n"
        for row in rows
    )


def test_a_consequence_whose_cause_is_known_does_not_say_that_it_is_missing() -> None:
    rows = [BANNER, f"ERROR 12-01 05:01:00 [core.py:7] torch.OutOfMemoryError: {OOM}", DEAD]
    _, told = passed(Protocol.LINES, [as_lines(rows)])

    assert [one.title for one in told if one.kind == "engine.dead"][-1] == "The engine died"
    _, alone = passed(Protocol.LINES, [as_lines([BANNER, DEAD])])
    assert [one.title for one in alone] == ["The engine died, and the cause is not in this log"]
