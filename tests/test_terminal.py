"""The command on a terminal, where it writes a report, and what it offers to a shell."""

import contextlib
import io
import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.test_cli import LOG, run
from vllm_triage import cli


class Terminal(io.StringIO):
    """What a terminal was sent."""

    def isatty(self) -> bool:
        return True


def ended(*args: str | Path) -> object:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(one) for one in args])
    return caught.value.code


def shown(monkeypatch: pytest.MonkeyPatch, *args: str | Path) -> str:
    """What a terminal of 60 columns gets."""
    terminal = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", terminal)
        patched.setenv("TERM", "xterm")
        patched.setenv("COLUMNS", "60")
        patched.setenv("LINES", "1000")
        assert ended(*args) == 1
    return terminal.getvalue()


def test_without_a_log_or_a_pipe_it_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stream in (Terminal(), None):
        monkeypatch.setattr("sys.stdin", stream)
        code = ended()
        said = capsys.readouterr()

        assert (code, said.out) == (2, "")
        assert said.err.startswith("vllm-triage: no log given: vllm-triage pod.log, or kubectl ")


def test_a_terminal_gets_colours_and_lines_of_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    colourful = shown(monkeypatch, LOG)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown(monkeypatch, LOG)

    assert "\x1b[1;31mFATAL" in colourful
    assert "\x1b[" not in plain
    assert "\x1b[" in shown(monkeypatch, LOG, "--color", "always")
    # Commands are never broken.
    assert [row for row in plain.splitlines() if len(row) > 60 and "vllm" not in row] == []


def test_a_file_gets_the_report_and_no_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = tmp_path / "report.txt"

    assert shown(monkeypatch, LOG, "--output", out) == ""
    assert "oom.kv_cache" in out.read_text()
    assert "\x1b[" not in out.read_text()


def test_a_report_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    assert ended(LOG, "-o", tmp_path / "none" / "x.txt") == 2
    assert "there is no such folder; make it first" in capsys.readouterr().err
    assert ended(LOG, "-o", tmp_path / "file" / "x.txt") == 2
    assert "cannot be written: Not a directory; choose another" in capsys.readouterr().err


def test_a_log_is_never_overwritten_by_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = tmp_path / "x.log", tmp_path / "y.txt"
    log.write_bytes(LOG.read_bytes())
    other.write_text("an older report")
    (tmp_path / "link").symlink_to(log)
    monkeypatch.chdir(tmp_path)

    assert ended(other, "no\0file", "x.log", "-o", tmp_path / "link") == 2
    assert capsys.readouterr().err == (
        f"vllm-triage: {tmp_path}/link: is one of the logs; choose another file for the report\n"
    )
    assert log.read_bytes() == LOG.read_bytes()
    assert ended(log, "-o", other) == 1
    assert "oom.kv_cache" in other.read_text()


def paged(tmp_path: Path, *args: str | Path, rows: int = 24, **env: str) -> str:
    """What a terminal of that many rows shows of a report; a pager says so, and how it was asked."""
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "PAGED with $LESS"\nexec cat\n')
    pager.chmod(0o755)
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (rows, 80))
    surroundings = {**os.environ, "PAGER": str(pager), "TERM": "xterm", **env}
    for name in ("LESS", "LINES", "COLUMNS", "NO_COLOR"):
        surroundings.pop(name, None)
    with subprocess.Popen(
        [sys.executable, "-m", "vllm_triage", *map(str, args)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=surroundings,
    ):
        os.close(slave)
        content = b""
        # A terminal ends with an error when nobody is left at its other side.
        with contextlib.suppress(OSError):
            while data := os.read(master, 65_536):
                content += data
    os.close(master)
    return content.decode()


def test_a_report_longer_than_the_screen_is_paged_from_its_top(tmp_path: Path) -> None:
    shown = paged(tmp_path, LOG)

    # A slow machine may have shown how far it was.
    before, _, content = shown.partition("PAGED with FRX\r\n")
    assert "oom.kv_cache" not in before
    assert "oom.kv_cache" in content
    assert "\x1b[" in shown


def test_a_report_that_fits_or_that_a_pager_cannot_show_is_not_paged(tmp_path: Path) -> None:
    for shown in (
        paged(tmp_path, LOG, rows=1000),
        paged(tmp_path, LOG, TERM="dumb"),
        paged(tmp_path, LOG, "--no-pager"),
    ):
        assert "PAGED" not in shown
        assert "oom.kv_cache" in shown


def test_work_over_a_second_shows_how_far_it_is_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            self.now += 0.12
            return self.now

    errors = Terminal()
    monkeypatch.setattr("sys.stderr", errors)
    monkeypatch.setattr("vllm_triage.cli.time.monotonic", Clock())
    log = tmp_path / "x.log"
    log.write_bytes(b"123456789\n" * 10_000)
    monkeypatch.setattr("vllm_triage.sources.CHUNK", 5_000)

    assert ended(log) == 0
    told = errors.getvalue().split("\x1b[K\r")[:-1]
    # Of twenty looks the first eight are within a second, and of the others every second one is too soon.
    assert len(told) == 6
    assert all(one.startswith("\r") and " MB read, " in one for one in told)
    seconds = [int(one.split()[-2]) for one in told]
    assert seconds[0] == 1
    assert seconds == sorted(seconds)


def test_output_to_a_full_disk_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", full)
        code = ended(LOG)
        # What is left in its buffer can go nowhere.
        with contextlib.suppress(OSError):
            full.close()

    assert code == 2
    assert capfd.readouterr().err == (
        "vllm-triage: standard output: cannot be written: No space left on device\n"
    )


def test_closed_streams_leave_the_exit_code() -> None:
    command = f"exec {sys.executable} -m vllm_triage {LOG} >&- 2>&-"

    assert subprocess.run(["sh", "-c", command], check=False).returncode == 1


def test_help_shows_the_options_and_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    code = ended("--help")
    said = capsys.readouterr().out

    assert not code
    assert said.startswith("Usage: vllm-triage [OPTIONS] [LOG]...")
    for words in ("--fail-on", "Commands:", "check-rules", "Exit code: 0 nothing found"):
        assert words in said
    assert "triage " not in [row.strip() + " " for row in said.splitlines()]


def test_wrong_usage_names_the_command_whose_help_helps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended("explain", "--no-such") == 2
    assert "(vllm-triage explain --help shows the options)" in capsys.readouterr().err
    assert ended("--no-such") == 2
    assert "(vllm-triage --help shows the options)" in capsys.readouterr().err


def test_a_shell_is_offered_files_but_not_for_options() -> None:
    def offered(words: str) -> list[str]:
        env = {"_VLLM_TRIAGE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "1"}
        return run(env=env).stdout.splitlines()

    assert "file,x" in offered("vllm-triage x")
    options = offered("vllm-triage --")
    assert "plain,--fail-on" in options
    assert not [one for one in options if one.startswith("file")]


def test_what_the_other_commands_cannot_do_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("watch", "-") == 2
    assert "standard input is for the filter" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdout", Terminal())
    assert ended("report", "-o", "-", LOG) == 2
    assert "a zip is nothing for a terminal; name a file" in capsys.readouterr().err


def test_what_was_started_is_ended_when_another_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "journalctl"
    tool.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    tool.chmod(0o755)
    (tmp_path / "sleep").symlink_to("/bin/sleep")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert ended("watch", "--journal", "vllm", "--kube", "vllm-0") == 2
    assert "kubectl: is not installed on this machine" in capsys.readouterr().err
    # The signal may have come before it wrote its number.
    if (tmp_path / "pid").exists() and (number := (tmp_path / "pid").read_text().strip()):
        assert not Path("/proc", number).exists()
