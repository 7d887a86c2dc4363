"""syslog-ng, started for real with the documented file."""

import contextlib
import shlex
from pathlib import Path

from tests import shippers
from tests.shippers import documented, lines_of, running, until


def test_the_filter_as_a_destination_and_as_a_source(tmp_path: Path) -> None:
    rows = shippers.thousand_lines()
    (tmp_path / "vllm").mkdir()
    log = tmp_path / "vllm" / "server.log"
    log.write_text("\n".join(rows) + "\n", "utf-8")
    port = shippers.free_port()
    config = documented(
        "syslog-ng.conf",
        tmp_path,
        **{
            "5140": str(port),
            # A container that prints the same log and goes on running.
            "docker logs --follow --since 1s vllm 2>&1": (
                f"cat {shlex.quote(str(log))}; sleep 3600"
            ),
        },
    )
    command: list[str | Path] = [
        *(shippers.program("syslog-ng"), "--foreground", "--stderr", "--no-caps"),
        *("--cfgfile", config, "--persist-file", tmp_path / "persist"),
        *("--control", tmp_path / "control", "--pidfile", tmp_path / "pid"),
    ]
    messages, incidents = tmp_path / "vllm-messages.log", tmp_path / "vllm-incidents.ndjson"
    container = tmp_path / "vllm-container.log"
    container_incidents = tmp_path / "vllm-container-incidents.ndjson"

    with running(command, tmp_path) as daemon:
        until(lambda: len(lines_of(messages)) >= len(rows), "every message of the file is there")
        until(lambda: shippers.is_told(incidents), "the incidents of the file are there")
        assert lines_of(messages) == rows
        found = shippers.root(incidents)
        assert found is not None
        assert found["evidence"][0]["source"].startswith(f"{log}/")
        assert "KV cache" in rows[found["evidence"][0]["line"] - 1]

        until(lambda: len(lines_of(container)) >= len(rows), "the container's messages are there")
        until(lambda: shippers.is_told(container_incidents), "the container's incidents are there")
        assert lines_of(container) == rows

        # The same lines as syslog, to a filter that is started again after a crash.
        [child] = fed_filters(daemon.pid)
        shippers.kill(child)
        until(lambda: fed_filters(daemon.pid), "the filter runs again")
        incidents.unlink()
        data = "".join(f"<13>Dec  2 15:00:00 node1 vllm[12]: {row}\n" for row in rows)
        shippers.send(port, data.encode())
        until(lambda: len(lines_of(messages)) >= 2 * len(rows), "every syslog message is there")
        until(
            lambda: shippers.is_told(incidents), "the incidents of the syslog messages are there"
        )
        assert lines_of(messages)[len(rows) :] == rows
        found = shippers.root(incidents)
        assert found is not None
        assert found["evidence"][0]["source"] == "node1/vllm"


def fed_filters(daemon: int) -> list[int]:
    """The filters that run as a destination."""
    found = []
    for child in shippers.children(daemon):
        with contextlib.suppress(OSError):
            if b"json" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                found.append(child)
    return found
