"""What each format shows and what it keeps out."""

import json
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Fixture, fixtures, name_of
from vllm_triage import Report, triage
from vllm_triage.reports import FORMATS, text
from vllm_triage.reports.clean import clean

LOG = FIXTURES / "oom" / "kv-cache-too-small.log"
HOSTILE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. \x1b]0;owned\x07\x1b[2J `x` <img src=x> @team [a](http://evil) ::error::x \u202e api_key='s3cr3tvalue'"


@pytest.fixture(scope="module")
def report() -> Report:
    return triage(LOG)


@pytest.fixture(scope="module")
def hostile() -> Report:
    return triage(iter([HOSTILE]))


@pytest.mark.parametrize(
    "fixture", [one for one in fixtures() if one.root != "none"][::4], ids=name_of
)
def test_the_answer_is_on_the_first_screen(fixture: Fixture) -> None:
    found = triage(fixture.log)
    screen = text.render(found, width=80).split("\n")[:24]

    assert found.root is not None
    assert found.root.title.split()[0] in screen[0]
    assert any(
        f"line {found.root.evidence[0].line} " in row or f":{found.root.evidence[0].line} " in row
        for row in screen
    )
    assert any(row.startswith("  1. ") for row in screen)


def test_text_wraps_at_the_width_except_for_commands(report: Report) -> None:
    rows = text.render(report, width=80).split("\n")

    assert [row for row in rows if len(row) > 80 and "vllm serve" not in row] == []


def test_colour_only_where_it_is_asked_for(report: Report) -> None:
    assert "\x1b[" not in text.render(report)
    assert "\x1b[1;31mFATAL" in text.render(report, colour=True)


@pytest.mark.parametrize("form", FORMATS)
def test_no_control_character_and_no_secret_leaves(hostile: Report, form: str) -> None:
    out = FORMATS[form](hostile)

    assert "s3cr3tvalue" not in out
    assert not [
        char
        for char in out
        if (ord(char) < 32 and char != "\n")
        or (char == "\u202e" and form != "json" and form != "ndjson" and form != "github")
    ]


def test_markdown_cannot_be_broken_out_of(hostile: Report) -> None:
    out = FORMATS["markdown"](hostile)
    outside = "".join(part for index, part in enumerate(out.split("```")) if index % 2 == 0)

    assert "<img" not in outside
    assert "](http://evil" not in outside


def test_github_annotations_are_one_command_a_line(hostile: Report, report: Report) -> None:
    for found in (hostile, report):
        rows = FORMATS["github"](found).rstrip("\n").split("\n")
        assert len(rows) == len(found.incidents)
        assert all(row.startswith(("::error ", "::warning ", "::notice ")) for row in rows)


def test_ndjson_is_one_incident_a_line(report: Report) -> None:
    rows = [json.loads(row) for row in FORMATS["ndjson"](report).splitlines()]

    assert [row["kind"] for row in rows] == [incident.kind.value for incident in report.incidents]


def test_json_holds_the_contract(report: Report) -> None:
    found = json.loads(FORMATS["json"](report))

    assert found["schema_version"] == "1"
    assert found["root_cause"] == found["incidents"][0]["id"]
    assert found["incidents"][0]["facts"]["needed_bytes"] == 3 * 1024**3
    assert found["runs"][0]["arguments"]["max_model_len"] == 65536


def test_the_suggested_command_differs_only_in_the_step(report: Report) -> None:
    assert report.root is not None
    assert report.root.suggested_command == (
        "vllm serve /srv/models/medium-llama --host 127.0.0.1 --port 12515 --max-model-len 21760 "
        "--enforce-eager --hf-overrides '{\"max_position_embeddings\": 65536}'"
    )


def test_clean_takes_what_moves_the_cursor() -> None:
    assert clean("a\x1b[2Jb\u202ec\td\x9b") == "a\ufffd[2Jb\ufffdc d\ufffd"


def test_several_logs_are_said_to_be_read_as_one_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = [Path("node0.log"), Path("node1.log")]
    for log in logs:
        log.write_bytes((FIXTURES / "oom" / "kv-cache-too-small.log").read_bytes())

    said = f"Read as one deployment: {logs[0]}, {logs[1]}. If they are not, triage each alone."
    assert said in " ".join(text.render(triage(logs)).split())
    assert "one deployment" not in text.render(triage(logs[0]))


def test_what_lies_beside_a_log_is_no_second_log(tmp_path: Path) -> None:
    log, listing = tmp_path / "pod.log", tmp_path / "gpus.csv"
    log.write_bytes((FIXTURES / "oom" / "kv-cache-too-small.log").read_bytes())
    listing.write_text("name, memory.total [MiB]\nNVIDIA L4, 23034 MiB\n")

    assert "one deployment" not in text.render(triage([log, listing]))
