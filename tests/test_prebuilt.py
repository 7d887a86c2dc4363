"""The prebuilt form says what the TOML files say, and only while they say it."""

import copy
import os
import pickle
import shutil
import tomllib
from pathlib import Path

import pytest

from vllm_triage import catalogue, prebuilt, tables
from vllm_triage.plain import made
from vllm_triage.prebuilt import NAME, content, names, read, whole_content, write
from vllm_triage.rules import Rule
from vllm_triage.tables import folder

SECOND_NS = 10**9


@pytest.fixture
def patterns(tmp_path: Path) -> Path:
    """A checkout's files with what an editable build puts beside them."""
    copied = tmp_path / "patterns"
    shutil.copytree(folder(), copied, ignore=shutil.ignore_patterns(NAME))
    write(copied, copied / NAME, is_edited=True)
    return copied


def test_it_holds_every_file_as_toml_reads_it(patterns: Path) -> None:
    found = read(patterns)

    assert found is not None
    assert len(found) > 50
    assert {name: whole_content(data) for name, data in found.items()} == {
        name: tomllib.loads((patterns / name).read_text("utf-8")) for name in names(patterns)
    }


def test_the_catalogue_is_the_same_from_both(
    patterns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read(patterns)
    load = catalogue.built_in.__wrapped__
    monkeypatch.setattr(catalogue, "parsed", lambda: None)
    from_toml = load()
    monkeypatch.setattr(catalogue, "parsed", lambda: found)
    from_prebuilt = load()

    assert from_toml == from_prebuilt
    # The order of kinds decides between patterns that tie.
    assert [*from_toml.rules] == [*from_prebuilt.rules]
    # Equal numbers may be of two types, and so be printed in two ways.
    assert repr(from_toml) == repr(from_prebuilt)


def test_steps_and_examples_are_read_when_they_are_asked_for(patterns: Path) -> None:
    found = read(patterns)
    assert found is not None
    data = content(found["oom/load.toml"])
    rule = made(Rule, data)
    pattern = rule.pattern[0]

    assert "fix" not in vars(rule)
    assert "hits" not in vars(pattern)
    changed = pattern.model_copy(update={"hits": ("another",)})
    assert (changed.hits, changed.misses) == (("another",), pattern.misses)
    assert "out of memory" in pattern.hits[0]
    assert rule.fix[0].do
    assert copy.deepcopy(rule) == pickle.loads(pickle.dumps(rule)) == rule
    with pytest.raises(AttributeError, match="'Rule' object has no attribute 'steps'"):
        _ = rule.steps  # type: ignore[attr-defined]


def test_tables_are_the_same_from_both(patterns: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(patterns)
    for name in ("flags", "cards", "weights"):
        monkeypatch.setattr(tables, "parsed", lambda: None)
        from_toml = tables.table.__wrapped__(name)
        monkeypatch.setattr(tables, "parsed", lambda: found)

        assert tables.table.__wrapped__(name) == from_toml


def test_a_file_that_was_edited_passes_it_over(patterns: Path) -> None:
    path = patterns / "oom" / "load.toml"
    text = path.read_text("utf-8")
    before = path.stat()
    # The same length: only the time tells.
    path.write_text(text.replace("GPU", "CPU", 1), "utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + SECOND_NS))

    assert read(patterns) is None


@pytest.mark.parametrize("change", ["added", "removed", "longer"])
def test_other_files_pass_it_over(change: str, patterns: Path) -> None:
    write(patterns, patterns / NAME, is_edited=False)
    assert read(patterns) is not None
    path = patterns / "oom" / "load.toml"
    if change == "added":
        shutil.copy(path, patterns / "oom" / "more.toml")
    elif change == "removed":
        path.unlink()
    else:
        path.write_text(path.read_text("utf-8") + "\n", "utf-8")

    assert read(patterns) is None


def test_where_files_are_installed_their_times_say_nothing(patterns: Path) -> None:
    write(patterns, patterns / NAME, is_edited=False)
    os.utime(patterns / "flags.toml", (0, 0))

    assert read(patterns) is not None


@pytest.mark.parametrize("data", [None, b"", b"no marshal", "cut"])
def test_what_cannot_be_read_is_passed_over(data: bytes | str | None, patterns: Path) -> None:
    path = patterns / NAME
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data if isinstance(data, bytes) else path.read_bytes()[:5000])

    assert read(patterns) is None


def test_a_folder_without_files_has_none(tmp_path: Path) -> None:
    write(tmp_path, tmp_path / NAME, is_edited=True)

    assert prebuilt.read(tmp_path) == {}
