"""`vllm-triage watch` as a user runs it, with journalctl, docker and kubectl played by scripts."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_cli import run
from tests.test_watch import BANNER, OOM, QUIET, READY, add

WAIT_S = 30.0
# Long ago, and later than any test.
PAST, FUTURE = "2020-01-01T00:00:00.000000000Z", "2099-01-01T00:00:00.000000000Z"

_STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    yield
    while _STARTED:
        process = _STARTED.pop()
        if process.returncode is None:
            process.kill()
        process.communicate()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def play(tools: Path, name: str, text: str, then: str = "") -> None:
    """A program that notes its arguments and prints a text."""
    (tools / f"{name}.text").write_text(text)
    script = tools / name
    script.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" > {tools}/{name}.args\ncat {tools}/{name}.text\n{then}\n'
    )
    script.chmod(0o755)


def env(tools: Path) -> dict[str, str]:
    return {"PATH": f"{tools}:/usr/bin:/bin"}


def start(*args: str | Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm_triage", "watch", "--format", "ndjson", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _STARTED.append(process)
    return process


def row(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    found: dict[str, object] = json.loads(process.stdout.readline())
    return found


def until(path: Path) -> str:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if text := path.read_text():
                return text
        time.sleep(0.02)
    raise AssertionError(path)


def dated(text: str, moment: str, prefix: str = "") -> str:
    return "".join(f"{prefix}{moment} {line}\n" for line in text.splitlines())


def records(text: str, moment: int) -> str:
    return "".join(
        json.dumps({"__REALTIME_TIMESTAMP": str(moment), "_SYSTEMD_UNIT": "vllm.service", "MESSAGE": line})
        + "\n"
        for line in text.splitlines()
    )  # fmt: skip


def found(text: str) -> list[tuple[str, str, int]]:
    rows = [json.loads(line) for line in text.splitlines()]
    return [(one["kind"], one["evidence"][0]["source"], one["count"]) for one in rows]


def test_the_journal_is_followed_from_the_time_of_the_start(tools: Path) -> None:
    text = records(BANNER + OOM + QUIET, 1_577_836_800_000_000)
    text += records(BANNER + OOM + QUIET, 4_070_908_800_000_000)
    play(tools, "journalctl", text)
    done = run("watch", "--journal", "vllm", "--format", "ndjson", env=env(tools))

    assert found(done.stdout) == [("oom.load", "<journal vllm>", 1)]
    assert (tools / "journalctl.args").read_text() == (
        "--follow --unit vllm --output json --no-pager --lines 100000\n"
    )
    assert done.stderr.splitlines() == [
        "vllm-triage: <journal vllm>: holds oom.load (<journal vllm>:3) from before; --from-start tells them",
        "vllm-triage: <journal vllm>: journalctl ended with status 0",
    ]
    assert done.returncode == 0


def test_a_container_is_followed_on_both_of_its_streams(tools: Path) -> None:
    play(tools, "docker", dated(BANNER, PAST), f"cat {tools}/late >&2")
    (tools / "late").write_text(dated(OOM + QUIET, FUTURE))
    done = run("watch", "--docker", "vllm-1", "--format", "ndjson", env=env(tools))

    assert found(done.stdout) == [("oom.load", "<docker vllm-1>", 1)]
    assert "org/name" in done.stdout
    assert (tools / "docker.args").read_text() == (
        "logs --follow --timestamps --tail 100000 vllm-1\n"
    )


def test_a_pod_is_followed_in_all_its_containers(tools: Path) -> None:
    text = dated(BANNER, PAST, "[pod/vllm-0/server] ") + dated(
        OOM + QUIET, FUTURE, "[pod/vllm-0/server] "
    )
    play(tools, "kubectl", text)
    done = run(
        "watch", "--kube", "vllm-0", "--namespace", "llm", "--format", "ndjson", env=env(tools)
    )

    assert found(done.stdout) == [("oom.load", "<pod vllm-0>", 1)]
    assert "org/name" in done.stdout
    assert (tools / "kubectl.args").read_text() == (
        "logs --follow vllm-0 --all-containers --prefix --timestamps --tail=100000 --namespace=llm\n"
    )


def test_a_command_that_fails_says_why_and_makes_the_exit_code_2(tools: Path) -> None:
    play(tools, "kubectl", "", 'echo "Error from server (NotFound): pods \\"x\\" not found" >&2; exit 1')  # fmt: skip
    play(tools, "docker", "Error response from daemon: No such container: x\n", "exit 1")
    pod = run("watch", "--kube", "x", env=env(tools))
    container = run("watch", "--docker", "x", env=env(tools))

    assert (pod.returncode, container.returncode) == (2, 2)
    assert pod.stderr.splitlines() == [
        'Error from server (NotFound): pods "x" not found',
        "vllm-triage: <pod x>: kubectl ended with status 1",
    ]
    assert container.stderr.splitlines() == [
        "vllm-triage: <docker x>: docker ended with status 1: Error response from daemon: No such container: x"
    ]


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("watch", "--kube", "x", env={"PATH": str(tmp_path)})

    assert done.returncode == 2
    assert done.stderr.startswith("vllm-triage: kubectl: is not installed on this machine")


def test_nothing_to_watch_is_a_usage_error() -> None:
    done = run("watch")

    assert done.returncode == 2
    assert "nothing to watch: vllm-triage watch vllm.log" in done.stderr


def test_incidents_come_while_the_log_grows_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(BANNER)
    process = start(log, "--idle", "0.1", "--metrics-file", tmp_path / "vllm.prom")
    until(tmp_path / "vllm.prom")
    time.sleep(0.5)
    add(log, OOM)
    first = row(process)
    add(log, OOM.replace("05:01", "05:02").rstrip("\n"))
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=WAIT_S)

    assert (first["kind"], first["revision"]) == ("oom.load", 1)
    assert [json.loads(line)["count"] for line in rest.splitlines()] == [2]
    assert process.returncode == 130
    assert (
        'vllm_triage_incidents_total{kind="oom.load",severity="fatal",'
        in (tmp_path / "vllm.prom").read_text()
    )


def test_fail_fast_ends_with_1_at_a_fatal_incident(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(BANNER + OOM + QUIET)
    done = run("watch", log, "--from-start", "--fail-fast")

    assert done.returncode == 1
    assert done.stdout.startswith("FATAL  GPU out of memory")
    assert max(len(line) for line in run("watch", "--help").stdout.splitlines()) <= 80


def test_exec_gets_the_incident_on_its_standard_input(tmp_path: Path) -> None:
    log, out = tmp_path / "vllm.log", tmp_path / "out"
    log.write_text(BANNER + OOM + QUIET)
    hook = tmp_path / "hook"
    hook.write_text(f'#!/bin/sh\necho "$1" > {out}\ncat >> {out}\n')
    hook.chmod(0o755)
    done = run("watch", log, "--from-start", "--fail-fast", "--exec", f"{hook} 'two words'")

    words, _, content = out.read_text().partition("\n")
    assert words == "two words"
    assert json.loads(content)["kind"] == "oom.load"
    assert done.stderr == ""


def test_a_server_that_is_well_tells_nothing(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(BANNER + READY)
    process = start(log, "--idle", "0.1", "--from-start", "--metrics-file", tmp_path / "a.prom")
    until(tmp_path / "a.prom")
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=WAIT_S)

    assert (out, err, process.returncode) == ("", "", 0)


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(BANNER + OOM + QUIET)
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm_triage", "watch", str(log), "--from-start"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    _, err = process.communicate(timeout=WAIT_S)

    assert (process.returncode, err) == (0, "")
