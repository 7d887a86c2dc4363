"""What the README shows is what a reader gets."""

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


def test_the_page_of_kinds_is_the_catalogue() -> None:
    page = (FIXTURES.parent / "docs" / "kinds.md").read_text("utf-8")

    assert page == run("kinds", "--format", "markdown").stdout, "write it again: vllm-triage kinds --format markdown > docs/kinds.md"  # fmt: skip
