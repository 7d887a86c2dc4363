"""What lies beside a log: each folder of `fixtures/artefacts/` is given in one call."""

import gzip
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from vllm_triage import evidence
from vllm_triage.artefacts.formats import format_of
from vllm_triage.pipeline import triage_paths
from vllm_triage.reports import markdown, text

FOLDERS = sorted(path.parent for path in (FIXTURES / "artefacts").glob("*/expected.toml"))


def expected(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "expected.toml").read_text("utf-8"))


def files(folder: Path) -> list[Path]:
    """The files of a case, in the order of their names; `expected.toml` is none of them."""
    return sorted(one for one in folder.iterdir() if one.name != "expected.toml")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_case_gives_exactly_its_kinds(folder: Path) -> None:
    wanted = expected(folder)

    report = triage_paths(files(folder))
    root = report.root

    assert {one.kind.value for one in report.incidents} == set(wanted["kinds"])
    assert (root.kind.value if root else "none") == wanted["root"]
    if root is not None:
        for name, value in wanted.get("facts", {}).items():
            assert getattr(root.facts, name) == value, name
        first = root.evidence[0]
        assert (Path(first.source).name, first.line) == (wanted["file"], wanted["line"])
    for source in report.sources:
        name = Path(source.name).name
        assert source.format == wanted["formats"].get(name, source.format)
        problem = source.problem and source.problem.removeprefix(f"{source.name}: ")
        assert problem == wanted.get("problems", {}).get(name)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_order_of_the_files_does_not_matter(folder: Path) -> None:
    there, back = triage_paths(files(folder)), triage_paths(files(folder)[::-1])

    assert [one.kind for one in there.incidents] == [one.kind for one in back.incidents]


def test_no_log_is_taken_for_anything_else() -> None:
    logs = [path for path in FIXTURES.rglob("*.log") if "artefacts" not in path.parts]
    taken = {
        path.name: found.name
        for path in logs
        if (found := format_of(path.read_text("utf-8", "replace")[:65_536])) is not None
        and not found.is_log
    }

    assert len(logs) > 200
    assert taken == {}


def test_files_that_tell_nothing_alone_ask_for_the_log(tmp_path: Path) -> None:
    listing = tmp_path / "models.json"
    listing.write_text('{"version":"0.10.2"}', "utf-8")
    log = tmp_path / "pod.log"
    log.write_text("INFO 12-01 10:00:00 [x.py:1] fine\n", "utf-8")

    alone = text.render(triage_paths([listing]))
    beside = text.render(triage_paths([listing, log]))

    assert "models.json (api-answer)" in " ".join(alone.split())
    assert "give its log" in " ".join(alone.split())
    assert "give its log" not in beside


@pytest.mark.parametrize("name", ["bench-serve-saved-0.32.0/runs.jsonl", "gpu-query-xml/gpu.xml", "healthy-scrape-0.32.0/metrics.txt",
                                  "gpu-table-590/smi.txt", "environ-and-ifconfig/environ"])  # fmt: skip
def test_a_log_that_follows_an_artefact_in_its_file_is_read(tmp_path: Path, name: str) -> None:
    artefact = (FIXTURES / "artefacts" / name).read_bytes()
    log = (FIXTURES / "oom" / "kv-cache-too-small.log").read_bytes()
    both = tmp_path / "pod.log"
    # Beyond what is looked at to tell a format.
    both.write_bytes((artefact + b"\n") * (70_000 // len(artefact) + 1) + log)

    root = triage_paths([both]).root

    assert root is not None
    assert root.kind.value == "oom.kv_cache"


def test_of_a_config_before_a_log_only_the_config_is_taken_for_json(tmp_path: Path) -> None:
    weights = {f"model.layers.{number}.weight": "model.safetensors" for number in range(3000)}
    index = json.dumps({"metadata": {"total_size": 1000}, "weight_map": weights}, indent=2)
    both = tmp_path / "pod.log"
    both.write_text(f"{index}\nINFO 12-01 10:00:00 [x.py:1] fine\n", "utf-8")

    assert len(index) > 70_000
    assert triage_paths([both]).incidents == ()


def test_what_is_held_of_a_file_is_bounded_by_its_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # fmt: skip
    monkeypatch.setattr(evidence, "_MAX_CHARS", 5000)
    variables = tmp_path / "env.txt"
    variables.write_text("".join(f"VLLM_X{number}={'a' * 1000}\n" for number in range(9)), "utf-8")

    found = triage_paths([variables]).sources[0]

    # The fifth line makes it more than 5,000 characters.
    assert found.problem == f"{variables}: only its first 5 lines were read"


def test_a_command_cannot_break_out_of_its_block(tmp_path: Path) -> None:
    whole = FIXTURES / "artefacts" / "docker-inspect-too-few-gpus" / "inspect.json"
    inspected = tmp_path / "inspect.json"
    hostile = "Qwen\\u001b[31m\\u202e\\n```\\n# Heading"
    text_of_it = whole.read_text("utf-8").replace("Qwen/Qwen2.5-7B-Instruct", hostile)
    inspected.write_text(text_of_it, "utf-8")

    shown = markdown.render(triage_paths([inspected]))

    assert "# Heading" in shown
    assert not any(row.startswith("# Heading") for row in shown.splitlines())
    assert "\x1b" not in shown
    assert "\u202e" not in shown


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "CRLF": lambda data: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
    "UTF-16": lambda data: data.decode("utf-8").encode("utf-16"),
    "UTF-8 with a mark": lambda data: b"\xef\xbb\xbf" + data,
    "no line end": lambda data: data.rstrip(b"\n"),
}  # fmt: skip


@pytest.mark.parametrize("pack", PACKED)
def test_a_case_gives_the_same_however_its_files_are_written(tmp_path: Path, pack: str) -> None:
    wrong = {}
    for folder in FOLDERS:
        place = tmp_path / folder.name
        place.mkdir()
        for path in files(folder):
            (place / path.name).write_bytes(PACKED[pack](path.read_bytes()))

        reports = [triage_paths(files(one)) for one in (folder, place)]

        plain, packed = (
            [
                (one.kind, one.severity, [row.line for row in one.evidence])
                for one in report.incidents
            ]
            for report in reports
        )
        if plain != packed:
            wrong[folder.name] = plain, packed
    assert wrong == {}
