"""What the tests share: the catalogue and the fixture logs."""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

from vllm_triage.catalogue import Catalogue, load
from vllm_triage.rule_cache import OFF_VARIABLE

# What an earlier run kept must not decide a later one.
os.environ[OFF_VARIABLE] = "1"
# Tests of hostile input try a hundred times as many in it.
settings.register_profile("deep", deadline=None)
if os.environ.get("HYPOTHESIS_PROFILE") == "deep":
    settings.load_profile("deep")
FIXTURES = Path(__file__).parent.parent / "fixtures"


class Fixture(NamedTuple):
    """A log and what is expected of it."""

    log: Path
    origin: str
    root: str
    line: int | None
    kinds: frozenset[str]
    todo: str | None


def fixtures() -> Iterator[Fixture]:
    """Every `NAME.log` under `fixtures/` with its `NAME.toml`, but for what lies beside logs."""
    for path in sorted(FIXTURES.rglob("*.log")):
        if "artefacts" in path.parts:
            continue
        label = tomllib.loads(path.with_suffix(".toml").read_text("utf-8"))
        yield Fixture(
            log=path,
            origin=label["origin"],
            root=label["root"],
            line=label.get("line"),
            kinds=frozenset(label["kinds"]),
            todo=label.get("todo"),
        )


def name_of(fixture: Fixture) -> str:
    """`area/name`, the id of a fixture's tests."""
    return fixture.log.relative_to(FIXTURES).with_suffix("").as_posix()


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return load()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how many of the known messages are told as their kind."""
    for state in ("passed", "failed"):
        for report in terminalreporter.stats.get(state, ()):
            for name, value in getattr(report, "user_properties", ()):
                if name == "messages":
                    terminalreporter.write_line(value)
