"""A contributor's mistakes, each explained with the file, the pattern and the text that breaks it."""

from pathlib import Path

import pytest

from tests.test_cli import run

RULE = """
title    = "No space left on the disk"
severity = "fatal"
summary  = "Writing {path:a file} failed."
cause    = "The disk is full."

[[fix]]
do      = "Look for what fills it."
command = "df -h {path:/}"

[[pattern]]
name       = "our-quota"
keywords   = ["QUOTA-1"]
regex      = 'QUOTA-1 on (?P<path>/[^ \\n]+)'
printed_by = "storage"
hits       = ["QUOTA-1 on /models is over"]
misses     = ["QUOTA-1 will be checked"]
"""

MISTAKES = {
    "a key that does not exist": ('severity = "fatal"', 'severty = "fatal"', ("severty",)),
    "a severity that does not exist": ('severity = "fatal"', 'severity = "bad"', ("severity", "bad")),
    "a regex that does not compile": ("(?P<path>/[^ \\n]+)", "(?P<path>/[^ \\n]+", ("our-quota", "compile")),
    "a hit that is not matched": ("QUOTA-1 on /models is over", "QUOTA-1 at /models", ("our-quota", "QUOTA-1 at /models")),
    "a miss that is matched": ("QUOTA-1 will be checked", "QUOTA-1 on /a is fine", ("our-quota", "QUOTA-1 on /a is fine")),
    "a keyword that a hit lacks": ('keywords   = ["QUOTA-1"]', 'keywords   = ["QUOTA-2"]', ("our-quota", "QUOTA-2")),
    "no keyword": ('keywords   = ["QUOTA-1"]', "keywords   = []", ("our-quota", "keywords")),
    "a group that is no fact": ("?P<path>", "?P<pfad>", ("our-quota", "pfad")),
    "a placeholder without fallback": ("{path:a file}", "{path}", ("summary", "{path}")),
    "a placeholder that nothing fills": ("{path:a file}", "{pfad:a file}", ("summary", "pfad")),
    "a title that may be empty": ('title    = "No space left on the disk"', 'title    = "No space on {path:}"', ("title", "fallback")),
    "a summary that may be empty": ("{path:a file}", "{path:}", ("summary", "fallback")),
    "a title too long": ("No space left on the disk", "No space " * 12, ("title", "70")),
    "a regex that backtracks": ("QUOTA-1 on ", "(?:QUOTA-1 ?)+(?:QUOTA-1 ?)+(?:QUOTA-1 ?)+on ", ("our-quota", "regex (?:QUOTA-1 ?)+", "bounded")),
    "a regex that calls itself": ("'QUOTA-1 on ", "'(?:Q(?R)?)?QUOTA-1 on ", ("our-quota", "(?R)", "without it")),
    "a regex that is approximate": ("'QUOTA-1 on ", "'(?:QUOTA-1){e<=1} on ", ("our-quota", "{e<=1}", "without it")),
    "a regex with a slow backreference": ("'QUOTA-1 on ", r"'(?:(\w+) \1 )?QUOTA-1 on ", ("our-quota", "linear", "bounded")),
    "a regex nested too deep to compile": ("'QUOTA-1 on (?P<path>/[^ \\n]+)'", "'" + "(" * 3000 + "QUOTA-1 on (?P<path>/)" + ")" * 3000 + "'", ("our-quota", "nested")),
    "flags that do not go together": ("'QUOTA-1 on ", "'(?u)(?a)QUOTA-1 on ", ("our-quota", "compile", "flags")),
    "broken TOML": ('title    = "No', "title    = No", ("TOML", "line 2")),
    "a flag that no release has": ('command = "df -h {path:/}"', 'command = "vllm serve MODEL --disable-flash-attn"', ("fix 1", "--disable-flash-attn")),
    "a flag that not all claimed releases have": ('command = "df -h {path:/}"', 'since = "0.4.3"\nchange = { "--speculative-model" = "DRAFT" }', ("fix 1", "--speculative-model", "0.8.5")),
    "a value that the flag does not take": ('command = "df -h {path:/}"', 'command = "vllm serve MODEL --dtype float17"', ("fix 1", "float17")),
    "a condition on what is no fact": ('command = "df -h {path:/}"', 'where = { signall = ["SIGKILL"] }', ("fix 1", "signall")),
    "a need of what is no fact": ('command = "df -h {path:/}"', 'needs = ["pfad=/x"]', ("fix 1", "pfad")),
    "a size that is none": ("?P<path>/[^ \\n]+", "?P<requested_bytes>/[^ \\n]+", ("our-quota", "requested_bytes")),
}  # fmt: skip


def test_the_rule_itself_is_right(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "disk_full.toml").write_text(RULE)

    assert run("check-rules", tmp_path).stdout == ""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained(mistake: str, tmp_path: Path) -> None:
    right, wrong, told = MISTAKES[mistake]
    assert right in RULE
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "disk_full.toml").write_text(RULE.replace(right, wrong))
    done = run("check-rules", tmp_path)
    said = done.stdout + done.stderr

    assert done.returncode == 2
    assert "disk_full.toml" in said
    assert all(text in said for text in told), said
    assert len(said.splitlines()) <= 3, said


def test_a_regex_that_is_slow_on_its_own_hit_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    slow = RULE.replace("'QUOTA-1 on (", "'QUOTA-1 on (?:[^!]|[^!])*!(").replace(
        "/models is over", "/models is over by " + "1" * 60
    )
    (tmp_path / "host" / "disk_full.toml").write_text(slow)
    done = run("check-rules", tmp_path)

    assert done.returncode == 2
    assert "our-quota: takes over 1 s on its hit 'QUOTA-1 on /models" in done.stdout
    assert "our-quota: regex QUOTA-1 on (?:[^!]|[^!])*" in done.stdout
