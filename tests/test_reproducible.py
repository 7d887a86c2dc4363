"""The same input gives the same bytes, wherever and however the command is run."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
import regex

from tests.conftest import FIXTURES
from vllm_triage.reports import FORMATS

# A crash of several processes, one with text that is not ASCII, one whose steps are many, a healthy one.
LOGS = (
    "oom/kv-cache-too-small.log",
    "distributed",
    "config",
    "healthy",
)
COMMANDS = {
    **{f"logs as {form}": ("--format", form, "--all", "logs") for form in FORMATS},
    "logs as text by four processes": ("--jobs", "4", "logs"),
    "explain": ("explain", "oom.load", "--vllm", "0.6.3", "--vllm", "0.33"),
    "kinds": ("kinds", "--format", "markdown"),
    "schema": ("schema",),
    "bundle": ("report", "--no-system", "-o", "bundle.zip", "logs"),
    "issue": ("report", "--no-system", "--for-github", "logs"),
    "filter": ("filter", "--incidents", "-"),
}


class World(NamedTuple):
    """Where and how the command is run."""

    environ: Mapping[str, str] = MappingProxyType({})
    without: tuple[str, ...] = ()
    umask: int = 0o022
    first: str = ""
    """A statement that comes before the others."""
    is_reversed: bool = False
    """Whether the folder's files were made last name first."""


# Each command in one process: starting it takes longest.
PROGRAM = """
import json, sys
{first}
from vllm_triage.cli import main
for name, args in json.loads(sys.argv[1]).items():
    try:
        main(args)
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\\0%s ended with %d\\0" % (name.encode(), ended.code))
        sys.stdout.flush()
"""
WORLDS = {
    "another hash seed": World({"PYTHONHASHSEED": "1"}),
    "one more hash seed": World({"PYTHONHASHSEED": "4294967295"}),
    "the locale C": World({"LC_ALL": "C"}),
    "the locale POSIX without UTF-8": World({"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "a locale that is not there": World({"LC_ALL": "tr_TR.UTF-8", "LANGUAGE": "tr"}),
    "streams in Latin-1": World({"PYTHONIOENCODING": "latin-1"}),
    "another time zone": World({"TZ": "Asia/Kathmandu"}),
    "no home and no cache": World(without=("HOME", "VLLM_TRIAGE_NO_CACHE", "XDG_CACHE_HOME")),
    "a strict umask": World(umask=0o077),
    "files made in another order": World(is_reversed=True),
    "no hyperscan": World(first="sys.modules['hyperscan'] = None"),
    "optimised": World({"PYTHONOPTIMIZE": "1"}),
}  # fmt: skip


# What OpenTelemetry and ECS want to know of when it was told, and ids made of it.
_NOW = regex.compile(
    rb'(?<="(?:observedTimeUnixNano|created|@timestamp)":")[^"]+|[0-9a-f]{8}-[0-9a-f-]{27}'
)


def _files() -> Iterator[Path]:
    for name in LOGS:
        path = FIXTURES / name
        yield from sorted(path.glob("*.log"))[:3] if path.is_dir() else [path]


def _outputs(world: World, folder: Path) -> dict[str, bytes]:
    """Of each command what it wrote."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    for path in sorted(_files(), reverse=world.is_reversed):
        shutil.copy(path, logs / f"{path.parent.name}-{path.name}")
    (logs / "größe.log").write_text(
        "ERROR 12-01 10:00:00 [a.py:1] ValueError: größer – 大きい\n", "utf-8"
    )
    environ = {"PYTHONPATH": str(FIXTURES.parent), "PYTHONHASHSEED": "0", **os.environ}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=world.first), json.dumps(COMMANDS)],
        cwd=folder,
        env={k: v for k, v in environ.items() if k not in world.without} | {**world.environ},
        input=next(_files()).read_bytes(),
        capture_output=True,
        umask=world.umask,
        check=True,
    )
    place = str(folder).encode()
    *parts, rest = done.stdout.split(b"\0")
    found = {
        end.decode(): _NOW.sub(b"", out.replace(place, b""))
        for out, end in zip(parts[::2], parts[1::2], strict=True)
    }
    found["bundle.zip"] = (folder / "bundle.zip").read_bytes()
    assert (len(found), rest, done.stderr) == (len(COMMANDS) + 1, b"", b"")
    return found


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return _outputs(World(), tmp_path_factory.mktemp("usual") / "a")


@pytest.mark.parametrize("world", WORLDS)
def test_the_same_logs_give_the_same_bytes(
    world: str, usual: dict[str, bytes], tmp_path: Path
) -> None:
    assert _outputs(WORLDS[world], tmp_path / "some" / "other folder") == usual


def test_the_bundle_holds_no_time_of_its_making(tmp_path: Path) -> None:
    _outputs(World(), tmp_path / "a")
    entries = zipfile.ZipFile(tmp_path / "a" / "bundle.zip").infolist()

    assert len(entries) > 3
    assert {(one.date_time, one.create_system) for one in entries} == {((1980, 1, 1, 0, 0, 0), 3)}
