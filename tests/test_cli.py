"""The command as a user runs it: a process, its streams and its exit code."""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from vllm_triage import cli, pipeline
from vllm_triage.model import Report

LOG = FIXTURES / "oom" / "kv-cache-too-small.log"
HEALTHY = next((FIXTURES / "healthy").glob("*.log"))


def run(
    *args: str | Path,
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "vllm_triage", *map(str, args)],
        input=stdin,
        capture_output=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def test_a_broken_log_exits_with_1_and_says_what_broke() -> None:
    done = run(LOG)

    assert done.returncode == 1
    assert "oom.kv_cache" in done.stdout
    assert done.stderr == ""


def test_a_healthy_log_exits_with_0() -> None:
    done = run(HEALTHY)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No incident found")


@pytest.mark.parametrize(("severity", "code"), [("fatal", 1), ("notice", 1), ("never", 0)])
def test_fail_on_sets_the_exit_code(severity: str, code: int) -> None:
    assert run(LOG, "--fail-on", severity).returncode == code


def test_standard_input_is_read_without_arguments_and_as_a_dash() -> None:
    for args in ((), ("-",)):
        done = run(*args, "--format", "json", stdin=LOG.read_bytes())
        report = json.loads(done.stdout)
        assert report["incidents"][0]["kind"] == "oom.kv_cache"
        assert report["sources"][0]["name"] == "<stdin>"


def test_a_missing_file_is_one_sentence_with_a_near_name(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("x\n")

    done = run(tmp_path / "servr.log")

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no such file; did you mean server.log?" in done.stderr


def test_a_folder_without_logs_is_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path)

    assert done.returncode == 2
    assert "no logs in this folder" in done.stderr


def test_a_binary_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(range(256)) * 64)

    done = run(path)

    assert done.returncode == 2
    assert "looks like a binary file" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_file_among_others_is_named(tmp_path: Path) -> None:
    empty, log = tmp_path / "empty.log", tmp_path / "pod.log"
    empty.write_text("", "utf-8")
    log.write_text("INFO 12-01 10:00:00 [x.py:1] fine\n", "utf-8")

    assert "empty.log is empty." in run(empty.name, log.name, cwd=tmp_path).stdout
    assert "is empty." not in run(log.name, cwd=tmp_path).stdout


def test_an_empty_file_is_no_incident(tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.touch()

    done = run(path)

    assert done.returncode == 0
    assert "empty" in done.stdout


def test_the_readable_rest_is_triaged(tmp_path: Path) -> None:
    done = run(tmp_path / "missing.log", LOG, "--format", "json")

    assert done.returncode == 2
    assert json.loads(done.stdout)["incidents"][0]["kind"] == "oom.kv_cache"
    assert "missing.log: no such file" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.log"
    path.write_text("x\n")
    path.chmod(0)

    done = run(path)

    assert done.returncode == 2
    assert "secret.log: cannot be read: Permission denied" in done.stderr


def test_a_truncated_archive_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "pod.log.gz"
    data = gzip.compress(LOG.read_bytes() * 50)
    path.write_bytes(data[: len(data) * 3 // 4])

    done = run(path)

    assert done.returncode == 2
    assert "oom.kv_cache" in done.stdout
    assert "could be read only as far as line" in done.stderr


@pytest.mark.parametrize("content", ["title = 1", "not toml [", 'title = "x"\nseverity = "bad"'])
def test_a_bad_rule_folder_names_the_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "oom").mkdir()
    (tmp_path / "oom" / "load.toml").write_text(content)

    done = run("--rules", tmp_path, LOG)

    assert done.returncode == 2
    assert "oom/load.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rule_folder_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    done = run("--rules", tmp_path / "none", LOG)

    assert done.returncode == 2
    assert "no such folder" in done.stderr


def test_a_users_rule_replaces_the_built_in_one(tmp_path: Path) -> None:
    (tmp_path / "oom").mkdir()
    (tmp_path / "oom" / "kv_cache.toml").write_text(
        'title = "Ours"\nseverity = "fatal"\nsummary = "s"\ncause = "c"\n'
        '[[fix]]\ndo = "Call us."\n'
        '[[pattern]]\nname = "ours"\nkeywords = ["KV cache is needed"]\nregex = "KV cache is needed"\n'
        'printed_by = "vllm"\nhits = ["ValueError: KV cache is needed"]\nmisses = ["KV cache is full"]\n'
    )

    by_option = run("--rules", tmp_path, LOG)
    by_variable = run(LOG, env={"VLLM_TRIAGE_RULES": str(tmp_path)})

    assert "Ours" in by_option.stdout
    assert by_option.stdout == by_variable.stdout


def test_wrong_usage_is_one_sentence() -> None:
    done = run(LOG, "--format", "yaml")

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_file_named_like_a_command_is_reachable(tmp_path: Path) -> None:
    (tmp_path / "kinds").write_bytes(LOG.read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "vllm_triage", "./kinds"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "oom.kv_cache" in done.stdout


def test_a_closed_pipe_ends_quietly() -> None:
    done = subprocess.run(
        f"{sys.executable} -m vllm_triage {LOG} --format json --all | head -c 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("{", "")


def test_explain_shows_a_kind_and_a_topic_and_suggests_near_names() -> None:
    kind, topic, wrong = (
        run("explain", "oom.load"),
        run("explain", "memory-budget"),
        run("explain", "oom.lod"),
    )

    assert "--gpu-memory-utilization 0.7" in kind.stdout
    assert "4x A100" in topic.stdout
    assert wrong.returncode == 2
    assert "did you mean oom.load" in wrong.stderr


def test_steps_follow_the_release() -> None:
    old = run("explain", "performance.slow_decode", "--vllm", "0.6.3").stdout
    new = run("explain", "performance.slow_decode", "--vllm", "0.33.0").stdout

    assert "--speculative-model DRAFT_MODEL --num-speculative-tokens 5" in old
    assert "--spec-method ngram" in new
    assert "vllm serve MODEL --speculative-model" not in new


def test_kinds_lists_every_kind() -> None:
    from vllm_triage import Kind

    listed = run("kinds").stdout

    assert [kind.value for kind in Kind if kind.value not in listed] == []


def test_the_json_schema_is_pinned() -> None:
    pinned = Path(__file__).with_name("schema.json").read_text("utf-8")

    assert _same_schema(json.loads(run("schema").stdout)) == json.loads(pinned)


def _same_schema(value: Any) -> Any:
    """The schema as later releases of pydantic write it: the oldest say some of it twice."""
    if isinstance(value, list):
        return [_same_schema(one) for one in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"allOf": [{"$ref": name}], **rest}:
            value = {"$ref": name, **rest}
        case {"const": one, "enum": [other], **rest} if one == other:
            value = {"const": one, **rest}
    return {name: _same_schema(one) for name, one in value.items()}


def test_check_rules_is_silent_on_the_built_in_rules(tmp_path: Path) -> None:
    (tmp_path / "oom").mkdir()
    (tmp_path / "oom" / "load.toml").write_text(
        'title = "t"\nseverity = "fatal"\nsummary = "s"\ncause = "c"\n[[fix]]\ndo = "Look."\n'
        '[[pattern]]\nname = "x"\nkeywords = ["zzz"]\nregex = "nothing"\nprinted_by = "x"\n'
        'hits = ["a zzz line"]\nmisses = ["a line"]\n'
    )

    done = run("check-rules", tmp_path)

    assert done.returncode == 2
    assert "oom/load.toml, x: does not match its hit" in done.stdout


EXTENSION = """
[[fix]]
do = "Ask the storage team."

[[pattern]]
name       = "our-storage-layer"
keywords   = ["STORAGE-17"]
regex      = "STORAGE-17: (?P<path>/[^ \\\\n]+)"
printed_by = "storage"
hits       = ["STORAGE-17: /models/a is offline"]
misses     = ["INFO STORAGE-18"]
"""


@pytest.fixture
def extension(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    (folder / "host").mkdir(parents=True)
    (folder / "host" / "permission.toml").write_text(EXTENSION)
    return folder


def test_a_rule_without_title_adds_to_the_built_in_one(extension: Path) -> None:
    assert run("check-rules", extension).returncode == 0
    ours = run("--rules", extension, "--format", "json", stdin=b"STORAGE-17: /models/a is offline\n")  # fmt: skip
    theirs = run("--rules", extension, "--format", "json", stdin=b"PermissionError: [Errno 13] Permission denied: '/root/.cache'\n")  # fmt: skip

    found = json.loads(ours.stdout)["incidents"][0]
    assert found["patterns"] == ["host.permission:our-storage-layer"]
    assert found["fix_steps"][0]["do"] == "Ask the storage team."
    assert json.loads(theirs.stdout)["incidents"][0]["kind"] == "host.permission"


def test_rule_folders_come_from_the_environment_and_from_packages(
    extension: Path, tmp_path: Path
) -> None:
    package = tmp_path / "site"
    (package / "ours-1.0.dist-info").mkdir(parents=True)
    (package / "ours-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")  # fmt: skip
    (package / "ours-1.0.dist-info" / "entry_points.txt").write_text("[vllm_triage.rules]\nours = ours:RULES\n")  # fmt: skip
    (package / "ours.py").write_text(f"RULES = {str(extension)!r}\n")

    for env in ({"VLLM_TRIAGE_RULES": str(extension)}, {"PYTHONPATH": str(package)}):
        done = run(stdin=b"STORAGE-17: /models/a is offline\n", env=env)
        assert (done.returncode, done.stderr) == (1, "")
        assert "host.permission" in done.stdout


def test_a_kind_that_does_not_exist_is_told_with_near_ones(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "permissions.toml").write_text(EXTENSION)
    done = run("--rules", tmp_path, LOG)

    assert done.returncode == 2
    assert "did you mean host.permission" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [("vllm-triage ki", "kinds"), ("vllm-triage explain oom.l", "oom.load"), ("vllm-triage a.log --fail", "--fail-on")],
)  # fmt: skip
def test_shells_complete_commands_kinds_and_options(words: str, expected: str) -> None:
    env = {"_VLLM_TRIAGE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}  # fmt: skip
    assert f"plain,{expected}" in run(env=env).stdout.splitlines()


def test_an_unreadable_release_is_wrong_usage() -> None:
    done = run("explain", "oom.load", "--vllm", "banana")

    assert done.returncode == 2
    assert "banana" in done.stderr


def _ended(*args: Path) -> object:
    with pytest.raises(SystemExit) as ended:
        cli.main([*map(str, args), "--no-pager"])
    return ended.value.code


def test_ctrl_c_that_python_drops_still_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def read(names: Sequence[str], **options: Any) -> Report:
        Interrupted()
        return pipeline.triage_paths(names, **options)

    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    monkeypatch.setattr(cli, "triage_paths", read)
    # Who runs the suite in the background may have it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert _ended(LOG) == 130
        assert "oom.kv_cache" in capsys.readouterr().out
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("stretch", ["_opened", "_prepared"])
def test_ctrl_c_between_two_files_keeps_what_was_found(
    stretch: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = getattr(pipeline, stretch)

    def interrupt(first: Any, *args: Any) -> Any:
        if HEALTHY.name in str(getattr(first, "name", first)):
            raise KeyboardInterrupt
        return original(first, *args)

    monkeypatch.setattr(pipeline, stretch, interrupt)

    assert _ended(LOG, HEALTHY) == 130
    assert "oom.kv_cache" in capsys.readouterr().out
    assert _ended(HEALTHY, LOG) == 130
    assert capsys.readouterr().out == ""


def test_ctrl_c_prints_what_was_found_and_exits_with_130() -> None:
    # A process that was started in the background may have been told to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [sys.executable, "-m", "vllm_triage"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:  # fmt: skip
        assert process.stdin is not None
        # More than a pipe holds: once it is written, the beginning has been read.
        process.stdin.write(LOG.read_bytes() + b"\nfiller" * 100_000)
        process.stdin.flush()
        signal.signal(signal.SIGINT, before)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()

    assert process.returncode == 130
    assert b"oom.kv_cache" in out
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["kind"], "did you mean vllm-triage kinds?"),
        (["explan", "oom.load"], "did you mean vllm-triage explain oom.load?"),
        (["oom.load"], "vllm-triage explain oom.load shows that kind"),
    ],
)
def test_a_command_that_is_nearly_right_is_told(
    args: list[str], said: str, tmp_path: Path
) -> None:
    done = run(*args, cwd=tmp_path)

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_named_nearly_like_a_command_is_a_log(tmp_path: Path) -> None:
    (tmp_path / "kind").write_bytes(LOG.read_bytes())

    assert run("kind", cwd=tmp_path).returncode == 1
    assert "did you mean" not in run("podlog", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("0.99", "vLLM 0.99 is newer than 0.33.0, the newest release known here"),
        ("0.1.0", "vLLM 0.1.0 is older than 0.2.7, the oldest release known here"),
        ("0.8.4", ""),
        ("v0.10.2rc1", ""),
        ("0.33", ""),
    ],
)
def test_steps_of_a_release_that_is_not_known_are_shown_and_told(release: str, said: str) -> None:
    done = run("explain", "oom.load", "--vllm", release)

    assert done.returncode == 0
    assert "GPU out of memory" in done.stdout
    assert done.stderr.count("\n") == (1 if said else 0)
    assert said in done.stderr


@pytest.mark.parametrize("release", ["0.10.2banana", "latest", "0", "0.10.2 and more"])
def test_what_is_no_release_is_refused(release: str) -> None:
    done = run("explain", "oom.load", "--vllm", release)

    assert done.returncode == 2
    assert "not a release" in done.stderr


UNMET = """
[[pattern]]
name       = "our-storage-layer"
keywords   = ["STORAGE-17"]
regex      = 'STORAGE-17 (?P<path>/[^ \\n]+)'
printed_by = "storage"
hits       = ["(Worker pid=1) ERROR 05-04 10:00:09 [store.py:1] STORAGE-17: /models/a is offline"]
misses     = ["INFO STORAGE-18: /models/a is online"]
"""


@pytest.mark.parametrize("kept", [True, False])
def test_a_users_rule_that_misses_its_own_hit_is_told_in_a_run(tmp_path: Path, kept: bool) -> None:
    path = tmp_path / "rules" / "host" / "permission.toml"
    path.parent.mkdir(parents=True)
    path.write_text(UNMET)
    env = {"XDG_CACHE_HOME": str(tmp_path), "VLLM_TRIAGE_NO_CACHE": "" if kept else "1"}
    said = f"host/permission.toml: our-storage-layer misses a hit of its own; vllm-triage check-rules {tmp_path}/rules says why"

    for _ in range(2):
        done = run("--rules", tmp_path / "rules", LOG, env=env)
        assert done.stderr == f"vllm-triage: {said}\n"
        assert done.returncode == 1
    assert said in run("filter", "--rules", tmp_path / "rules", stdin=b"a\n", env=env).stderr

    path.write_text(UNMET.replace("STORAGE-17 (", "STORAGE-17: ("))
    assert run("--rules", tmp_path / "rules", LOG, env=env).stderr == ""
