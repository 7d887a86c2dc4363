"""Real log shippers for the tests: their documented files, started in a folder of the test's own."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.conftest import FIXTURES

DOCUMENTED = Path(__file__).parent.parent / "docs" / "shippers"
TRIAGE = Path(sys.executable).with_name("vllm-triage")
WAIT_S = 60.0
T = TypeVar("T")

ROOT = "oom.kv_cache"
KINDS = {ROOT, "engine.dead"}
_HEALTHY = FIXTURES / "healthy" / "0_32_0-healthy-serve.log"
_CRASH = FIXTURES / "oom" / "kv-cache-too-small.log"


def thousand_lines() -> list[str]:
    """Healthy servers' lines, a crash, and the start of the next server: over 1000 real lines.

    Without the empty ones and the carriage returns that no syslog daemon keeps.
    """
    healthy = _rows(_HEALTHY)
    rows = [*healthy, *healthy, *_rows(_CRASH), *healthy[:40]]
    assert len(rows) > 1000
    return rows


def _rows(path: Path) -> list[str]:
    rows = path.read_text("utf-8").replace("\r", "").split("\n")
    return [row for row in rows if row.strip()]


def program(name: str, folders: str = "/usr/sbin:/sbin") -> str:
    """The path of a shipper's program; without it the test is skipped, in CI it fails."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{folders}")
    if found is None:
        reason = f"{name} is not installed; .ci/shippers FOLDER gets it on Debian"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def documented(name: str, folder: Path, **more: str) -> Path:
    """A copy of a file of docs/shippers, with its paths in the test's folder.

    Replaced are /var/log, /var/spool, the path of vllm-triage, and what `more` names by its
    value; nothing else. What `more` names must be in the file.
    """
    text = (DOCUMENTED / name).read_text("utf-8")
    for old, new in more.items():
        assert old in text, f"{name} has no {old}"
        text = text.replace(old, new)
    text = text.replace("/usr/local/bin/vllm-triage", str(TRIAGE))
    for old in ("/var/log", "/var/spool"):
        text = text.replace(old, str(folder))
    copy = folder / name
    copy.write_text(text, "utf-8")
    return copy


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def send(port: int, data: bytes) -> None:
    """Send to a program that is about to listen."""
    with until(lambda: _connected(port), f"port {port} is open") as connection:
        connection.sendall(data)


def _connected(port: int) -> socket.socket | None:
    with contextlib.suppress(ConnectionRefusedError):
        return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    return None


def until(condition: Callable[[], T | None], what: str) -> T:
    """Wait until a condition holds; give its value."""
    end = time.monotonic() + WAIT_S
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"after {WAIT_S:.0f} s still not: {what}")
        time.sleep(0.02)
    return value


def lines_of(path: Path) -> list[str]:
    """The whole lines that a file has by now."""
    if not path.exists():
        return []
    return path.read_text("utf-8").split("\n")[:-1]


def latest(path: Path) -> dict[str, dict[str, Any]]:
    """The last revision of each incident in an NDJSON file, by id."""
    return {row["id"]: row for row in map(json.loads, lines_of(path))}


def kinds(path: Path) -> set[object]:
    """The kinds of the incidents in an NDJSON file."""
    return {row["kind"] for row in latest(path).values()}


def root(path: Path) -> dict[str, Any] | None:
    """The incident in an NDJSON file that the last line calls the root cause."""
    rows = latest(path)
    return rows.get(json.loads(lines_of(path)[-1])["root_cause"]) if rows else None


def is_told(path: Path) -> bool:
    """Tell whether a file shows the incidents of `thousand_lines`, and which is the root cause."""
    found = root(path)
    return kinds(path) == KINDS and found is not None and found["kind"] == ROOT


@contextlib.contextmanager
def running(
    command: list[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon in a session of its own; it must end on SIGTERM, and leave nobody behind."""
    log = folder / "daemon.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        yield process
        assert process.poll() is None, f"it ended: {log.read_text('utf-8', 'replace')}"
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)
        until(lambda: not session(process.pid), "the programs that it started have ended")
    except BaseException:
        sys.stderr.write(log.read_text("utf-8", "replace")[-4000:])
        raise
    finally:
        for pid in session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def session(leader: int) -> list[int]:
    """The living processes of a session."""
    found: list[int] = []
    for entry in Path("/proc").glob("*"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # After the name in brackets: state, parent, group, session.
            fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            if fields[0] not in "ZX" and int(fields[3]) == leader:
                found.append(int(entry.name))
    return found


def children(pid: int) -> list[int]:
    """The processes that a process of a session of its own started."""
    return [one for one in session(pid) if one != pid]


def kill_reader(process: subprocess.Popen[bytes]) -> None:
    """Close a program's output as its reader's end does, while another thread may be reading it."""
    assert process.stdout is not None
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, process.stdout.fileno())
    os.close(null)


def kill(pid: int) -> None:
    """Kill a shipper's program, and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not _is_alive(pid), f"process {pid} is gone")


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
