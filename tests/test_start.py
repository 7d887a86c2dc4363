"""What starting costs: modules are imported and regexes compiled when they are needed."""

import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vllm_triage
from tests.conftest import FIXTURES
from vllm_triage.expressions import Compiled, Expression, expression
from vllm_triage.globs import fits
from vllm_triage.prebuilt import NAME, write
from vllm_triage.tables import folder


def said(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout.strip()


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, vllm_triage; print({'regex', 'pydantic', 'click'} & {*sys.modules})"

    assert said(code) == "set()"


def test_public_names_are_listed_before_they_are_imported() -> None:
    code = "import vllm_triage; print({*vllm_triage.__all__} <= {*dir(vllm_triage)})"

    assert said(code) == "True"


def test_a_name_that_is_not_public_is_told_as_such() -> None:
    with pytest.raises(AttributeError, match="module 'vllm_triage' has no attribute 'triag'"):
        _ = vllm_triage.triag  # type: ignore[attr-defined]


def test_importing_every_module_compiles_no_regex() -> None:
    code = """
import pkgutil, regex
compiled = []
real = regex.compile
regex.compile = lambda text, *rest, **named: compiled.append(text) or real(text, *rest, **named)
import vllm_triage
for module in pkgutil.walk_packages(vllm_triage.__path__, "vllm_triage."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
print(compiled)
"""

    assert said(code) == "[]"


def test_an_expression_compiles_on_its_first_use_and_then_is_the_regex() -> None:
    digits = expression(r"(?P<digits>\d+)")
    kinds: list[type] = [type(digits)]

    found = digits.search("a 12 b")

    assert found is not None
    assert found["digits"] == "12"
    kinds.append(type(digits))
    assert kinds == [Expression, Compiled]
    assert digits.groupindex == {"digits": 1}
    assert digits.sub("n", "1 2") == "n n"
    assert expression(rb"a").match(b"ab") is not None


@given(st.text("ab*/", max_size=8), st.text("ab/", max_size=12))
def test_globs_are_told_as_the_standard_library_tells_them(glob: str, text: str) -> None:
    assert fits(text, glob) == fnmatchcase(text, glob)


def test_a_glob_of_a_user_may_have_classes() -> None:
    assert fits("vllm/v1/x.py", "vllm/v[01]/?.py")
    assert not fits("vllm/v2/x.py", "vllm/v[01]/?.py")


@pytest.mark.parametrize("arguments", [["-"], ["filter"]], ids=" ".join)
def test_a_log_is_read_without_what_takes_long_to_import(
    arguments: list[str], tmp_path: Path
) -> None:
    patterns = tmp_path / "patterns"
    shutil.copytree(folder(), patterns, ignore=shutil.ignore_patterns(NAME))
    write(patterns, patterns / NAME, is_edited=True)
    code = f"""
import contextlib, sys
before = {{*sys.modules}}
from pathlib import Path
from vllm_triage import tables
tables.folder = lambda: Path({str(patterns)!r})
from vllm_triage.cli import main
with contextlib.suppress(SystemExit):
    main({arguments!r})
slow = {{"pydantic", "tomllib", "importlib.metadata", "logging"}} & {{*sys.modules}} - before
print(slow or "none", file=sys.stderr)
"""
    log = next((FIXTURES / "healthy").glob("*.log"))
    done = subprocess.run(
        [sys.executable, "-c", code], input=log.read_bytes(), capture_output=True, check=True
    )

    assert done.stdout
    assert done.stderr.decode().strip() == "none"


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("", ""),
        ("import atexit; atexit.register(print, 'at exit')", "at exit\n"),
        (
            "from threading import Thread, main_thread\n"
            "Thread(target=lambda: (main_thread().join(), print('thread'))).start()",
            "thread\n",
        ),
    ],
    ids=["alone", "with-a-handler", "with-a-thread"],
)
def test_ending_the_process_at_once_loses_nothing(before: str, told: str) -> None:
    log = FIXTURES / "oom" / "kv-cache-too-small.log"
    code = f"""
import sys
sys.argv = ["vllm-triage", {str(log)!r}]
{before}
from vllm_triage.__main__ import run
run()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, text=True
    )

    assert done.returncode == 1
    assert done.stdout.startswith("FATAL  ")
    assert done.stdout.endswith(f" shows every incident in full\n{told}")
    assert done.stderr == ""
