"""The file for node_exporter's textfile collector."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_triage import Scanner, SourceError, __version__
from vllm_triage.kinds import Severity
from vllm_triage.metrics import MAX_SOURCES, MetricsFile
from vllm_triage.model import Update

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free."


def update(source: str = "a.log", **changes: Any) -> Update:
    scanner = Scanner(source)
    return [*scanner.feed(OOM), *scanner.close()][-1].model_copy(update=changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vllm.prom"


def metrics(path: Path, said: list[str] | None = None) -> MetricsFile:
    unheard: list[str] = []
    return MetricsFile(path, (unheard if said is None else said).append, now=lambda: 1000.25)


def rows(path: Path) -> list[str]:
    return [row for row in path.read_text().splitlines() if not row.startswith("#")]


def test_the_file_is_there_before_the_first_incident(path: Path) -> None:
    metrics(path)

    assert rows(path) == [f'vllm_triage_build_info{{version="{__version__}"}} 1']
    assert path.read_text().endswith("\n")


def test_repeats_are_counted_by_what_a_revision_has_more(path: Path) -> None:
    file = metrics(path)
    one = update()
    for revision, count in enumerate((1, 2, 5, 5), 1):
        file(one.model_copy(update={"revision": revision, "count": count}))

    kind = one.kind.value
    assert rows(path)[1:] == [
        f'vllm_triage_incidents_total{{kind="{kind}",severity="fatal",source="a.log"}} 5',
        f'vllm_triage_last_incident_timestamp_seconds{{kind="{kind}"}} 1000.25',
    ]
    assert "# TYPE vllm_triage_incidents_total counter\n" in path.read_text()


def test_a_counter_never_falls_when_the_severity_does(path: Path) -> None:
    file = metrics(path)
    one = update()
    file(one.model_copy(update={"count": 2}))
    file(one.model_copy(update={"count": 3, "severity": Severity.DEGRADED, "revision": 2}))
    file(one.model_copy(update={"count": 3, "withdrawn": True, "revision": 3}))

    values = {row.split('severity="')[1].split('"')[0]: row[-2:] for row in rows(path)[1:3]}
    assert values == {"fatal": " 2", "degraded": " 1"}


def test_what_was_there_before_is_not_counted(path: Path) -> None:
    file = metrics(path)
    file.know(update(count=7))
    file(update(count=8, revision=2))

    assert rows(path)[1].endswith(" 1")


def test_sources_beyond_the_limit_are_counted_together(path: Path) -> None:
    file = metrics(path)
    one = update()
    for number in range(MAX_SOURCES + 5):
        first = one.evidence[0].model_copy(update={"source": f"pod-{number}"})
        file(one.model_copy(update={"evidence": (first,)}))

    found = [row for row in rows(path) if "incidents_total" in row]
    assert len(found) == MAX_SOURCES + 1
    assert [row for row in found if row.endswith(" 5")] == [
        row for row in found if 'source="other"' in row
    ]


def test_labels_are_escaped(path: Path) -> None:
    metrics(path)(update('a"b\\c'))

    assert 'source="a\\"b\\\\c"' in path.read_text()


def test_it_is_replaced_in_one_step_and_readable_by_all(path: Path) -> None:
    file = metrics(path)
    with path.open() as before:
        file(update())
        assert "incidents_total" not in before.read()
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_a_name_that_the_collector_does_not_read_is_warned_of(tmp_path: Path) -> None:
    said: list[str] = []
    metrics(tmp_path / "vllm.txt", said)

    assert said == [f"{tmp_path}/vllm.txt: node_exporter reads only files that end in .prom"]


def test_a_folder_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be written: No such file or directory"):
        metrics(tmp_path / "none" / "vllm.prom")


def test_when_writing_fails_it_is_said_once_and_lines_flow(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    said: list[str] = []
    file = metrics(folder / "vllm.prom", said)
    folder.rename(tmp_path / "away")
    file(update(count=1))
    file(update(count=2, revision=2))
    (tmp_path / "away").rename(folder)
    file(update(count=5, revision=3))

    assert len(said) == 2
    assert "metrics cannot be written" in said[0]
    assert "can be written again" in said[1]
    assert rows(folder / "vllm.prom")[1].endswith(" 5")


def test_the_filter_goes_on_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "vllm.prom"
    script = (
        "import resource, sys\n"
        # A file of no more than 180 bytes: the empty one fits, one with an incident does not.
        "resource.setrlimit(resource.RLIMIT_FSIZE, (180, 180))\n"
        "from vllm_triage.cli import main\n"
        f"main(['filter', '--metrics-file', {str(path)!r}])"
    )
    log = f"{OOM}\nINFO 03-01 12:00:00 [a.py:1] one\n{OOM}\nINFO 03-01 12:00:00 [a.py:1] two\n"

    done = subprocess.run(
        [sys.executable, "-c", script], input=log, capture_output=True, text=True, check=True
    )

    assert done.stdout == log
    assert done.stderr.count("metrics cannot be written: File too large; the log goes on") == 1
    assert rows(path) == [f'vllm_triage_build_info{{version="{__version__}"}} 1']
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    device = tmp_path / "null.prom"
    os.mkfifo(device)

    with pytest.raises(SourceError, match="cannot be written: Not a regular file"):
        metrics(device)
    assert device.is_fifo()


def test_a_link_goes_on_pointing_to_its_file(tmp_path: Path) -> None:
    link, path = tmp_path / "link.prom", tmp_path / "real.prom"
    link.symlink_to(path.name)
    metrics(link)(update())

    assert link.is_symlink()
    assert len(rows(path)) == 3
