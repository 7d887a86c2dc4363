"""What lies beside a log: each folder of `fixtures/artefacts/` is given in one call."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from vllm_triage.artefacts.formats import format_of
from vllm_triage.pipeline import triage_paths
from vllm_triage.reports import text

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
