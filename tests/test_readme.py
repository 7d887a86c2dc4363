"""What the README shows is what a reader gets."""

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import regex

from tests.conftest import FIXTURES
from tests.test_cli import run

README = (FIXTURES.parent / "README.md").read_text("utf-8")


def test_the_terminal_output_is_the_real_one() -> None:
    command, _, shown = README.partition("```console\n$ vllm-triage ")[2].partition("```")[0].partition("\n")  # fmt: skip
    done = run(*command.split(), cwd=FIXTURES.parent)

    assert shown.strip() == done.stdout.strip()


def test_the_example_rule_keeps_its_promises(tmp_path: Path) -> None:
    rule = README.partition("```toml\n")[2].partition("```")[0]
    tomllib.loads(rule)
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "permission.toml").write_text(rule, "utf-8")

    assert run("check-rules", tmp_path).returncode == 0


def test_the_python_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pod.log").write_bytes((FIXTURES / "oom" / "kv-cache-too-small.log").read_bytes())
    monkeypatch.chdir(tmp_path)
    for example in regex.findall(r"```python\n(.*?)```", README, flags=regex.DOTALL):
        exec(compile(example, "README.md", "exec"), {})
        assert "oom.kv_cache" in capsys.readouterr().out


def test_the_jq_example_prints_each_kind_with_its_first_step() -> None:
    (filtered,) = regex.findall(r"--format json \| jq -r '([^']+)'", README)
    log = FIXTURES / "oom" / "kv-cache-too-small.log"
    report = run(log, "--format", "json").stdout
    expected = [
        f"{one['kind']}: {one['fix_steps'][0]['command'] or one['fix_steps'][0]['do']}"
        for one in json.loads(report)["incidents"]
    ]

    assert [row.partition(":")[0] for row in expected] == ["oom.kv_cache", "engine.dead"]
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    done = subprocess.run(["jq", "-r", filtered], input=report, capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.splitlines() == expected


def test_the_page_of_kinds_is_the_catalogue() -> None:
    page = (FIXTURES.parent / "docs" / "kinds.md").read_text("utf-8")

    assert page == run("kinds", "--format", "markdown").stdout, "write it again: vllm-triage kinds --format markdown > docs/kinds.md"  # fmt: skip
