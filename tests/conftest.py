"""What the tests share: the catalogue and the fixture logs."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from vllm_triage.rules import Catalogue, load

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
    """Every `NAME.log` under `fixtures/` with its `NAME.toml`."""
    for path in sorted(FIXTURES.rglob("*.log")):
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
