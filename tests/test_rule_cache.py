"""What a folder's rules said is read again from the cache, and never when it might not be so."""

import json
import os
import stat
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.bench_rules import doubled
from vllm_triage import catalogue, rule_cache, rule_files
from vllm_triage.errors import RuleError
from vllm_triage.kinds import Kind
from vllm_triage.rule_cache import OFF_VARIABLE

RULE = """
[[pattern]]
name       = "frobnicator-lost"
keywords   = ["frobnicator"]
regex      = '''frobnicator (?P<path>\\S{1,80}) is lost'''
at_least   = { waiting = 1 }
times      = 2
confidence = "likely"
printed_by = "acme"
hits       = ["RuntimeError: frobnicator a is lost"]
misses     = ["INFO frobnicator a is found"]
"""
only_posix = pytest.mark.skipif(sys.platform == "win32", reason="files there have no modes")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own folder for caches, in use."""
    monkeypatch.delenv(OFF_VARIABLE)
    monkeypatch.setenv("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME", str(tmp_path / "home"))  # fmt: skip
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules" / "host" / "permission.toml"
    path.parent.mkdir(parents=True)
    path.write_text(RULE, "utf-8")
    return tmp_path / "rules"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each file that is held to what it may say."""
    found: list[str] = []
    real = rule_files.checked

    def counted(kind, data):  # type: ignore[no-untyped-def]
        found.append(kind.__name__)
        return real(kind, data)

    monkeypatch.setattr(rule_files, "checked", counted)
    return found


def kept(home: Path) -> list[Path]:
    return sorted((home / "vllm-triage").glob("*"))


def load(rules: Path) -> catalogue.Catalogue:
    return catalogue.load(rules)


def names(found: catalogue.Catalogue) -> set[str]:
    return {pattern.name for pattern in found.rules[Kind("host.permission")].pattern}


def test_the_second_time_they_are_not_checked_and_say_the_same(
    home: Path, rules: Path, checks: list[str]
) -> None:
    first = load(rules)
    second = load(rules)

    assert checks == ["Extension"]
    assert first == second
    # Equal numbers may be of two types, and an enumeration's member equals its text.
    assert repr(first) == repr(second)
    assert "frobnicator-lost" in names(second)


def test_all_that_the_built_in_rules_say_comes_back(home: Path, tmp_path: Path) -> None:
    folder = doubled(tmp_path / "doubled")

    assert repr(load(folder)) == repr(load(folder))
    assert len(kept(home)) == 1


@pytest.mark.parametrize("change", ["text", "name", "more"])
def test_other_rules_are_read(change: str, home: Path, rules: Path, checks: list[str]) -> None:
    load(rules)
    path = rules / "host" / "permission.toml"
    before = path.stat()
    if change == "text":
        path.write_text(RULE.replace("lost", "gone"), "utf-8")
        # Neither its length nor its time tells.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "name":
        path.rename(rules / "host" / "terminated.toml")
    else:
        (rules / "host" / "terminated.toml").write_text(RULE, "utf-8")

    found = load(rules)

    assert len(checks) == (3 if change == "more" else 2)
    assert ("frobnicator-gone" in names(found)) == (change == "text")


def test_another_release_checks_anew(
    home: Path, rules: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(rules)
    monkeypatch.setattr(rule_cache, "__version__", "99.0")
    load(rules)

    assert len(checks) == 2


def test_wrong_rules_are_not_kept(home: Path, rules: Path) -> None:
    (rules / "host" / "terminated.toml").write_text("[[pattern]]\nname = 1\n", "utf-8")
    for _ in range(2):
        with pytest.raises(RuleError, match="pattern 1"):
            load(rules)

    assert not kept(home)


@pytest.mark.parametrize(
    "damage", ["cut", "empty", "flipped", "no JSON", "a list", "numbers", "other files"]
)
def test_what_is_damaged_is_passed_over(
    damage: str, home: Path, rules: Path, checks: list[str]
) -> None:
    first = load(rules)
    (path,) = kept(home)
    data = path.read_bytes()
    body = data.partition(b"\n")[2]
    other = {
        "no JSON": b"{",
        "a list": b"[]",
        "numbers": b"[1, 2]",
        "other files": body.replace(b"permission", b"terminated"),
    }
    if damage in other:
        data = sha256(other[damage]).hexdigest().encode() + b"\n" + other[damage]
    path.write_bytes({"cut": data[:-9], "empty": b"", "flipped": data.replace(b"lost", b"gone")}.get(damage, data))  # fmt: skip

    assert repr(load(rules)) == repr(first)
    assert len(checks) == 2


def test_nothing_that_is_kept_is_run(home: Path, rules: Path, tmp_path: Path) -> None:
    first = load(rules)
    (path,) = kept(home)
    trap = tmp_path / "trap"
    touch = f"import pathlib; pathlib.Path({str(trap)!r}).touch()".encode()
    call = b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR."
    for body in (call, touch, b"[" * 100_000, b'{"__reduce__": ["os.system", "touch"]}'):
        path.write_bytes(sha256(body).hexdigest().encode() + b"\n" + body)
        for name in ("rules-x.py", "rules-x.pyc", "rules-x.pickle", "__init__.py", "regex.py"):
            (path.parent / name).write_bytes(body)

        assert repr(load(rules)) == repr(first)
    assert not trap.exists()


@only_posix
def test_it_is_the_users_alone(home: Path, rules: Path) -> None:
    load(rules)
    (path,) = kept(home)

    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@only_posix
@pytest.mark.parametrize("place", ["folder", "file", "link"])
def test_what_others_may_have_written_is_passed_over(
    place: str, home: Path, rules: Path, checks: list[str], tmp_path: Path
) -> None:
    load(rules)
    (path,) = kept(home)
    if place == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        (path if place == "file" else path.parent).chmod(0o777)
    load(rules)

    assert len(checks) == 2


@only_posix
def test_what_belongs_to_another_is_passed_over(
    home: Path, rules: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load(rules)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    load(rules)

    assert len(checks) == 2


def test_a_home_that_is_missing_is_not_made(
    rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(OFF_VARIABLE)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "nobody"))

    assert "frobnicator-lost" in names(load(rules))
    assert not (tmp_path / "nobody").exists()


def test_a_file_in_its_place_does_no_harm(home: Path, rules: Path) -> None:
    (home / "vllm-triage").write_text("", "utf-8")

    assert "frobnicator-lost" in names(load(rules))


def test_it_can_be_turned_off(
    home: Path, rules: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OFF_VARIABLE, "1")
    load(rules)
    load(rules)

    assert len(checks) == 2
    assert not kept(home)


def test_a_place_that_is_not_absolute_is_none(
    home: Path, rules: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("LOCALAPPDATA", "here")
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    load(rules)

    assert not (tmp_path / "here").exists()


def test_old_ones_go(home: Path, rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_cache, "_MAX_KEPT", 3)
    path = rules / "host" / "permission.toml"
    for number in range(5):
        path.write_text(RULE.replace("lost", f"lost-{number}", 1), "utf-8")
        load(rules)
        for age, one in enumerate(sorted(kept(home), key=lambda one: one.stat().st_mtime_ns)):
            os.utime(one, (age + number * 10, age + number * 10))

    assert len(kept(home)) == 3
    told = "".join(one.read_text("utf-8") for one in kept(home))
    assert [number for number in range(5) if f"frobnicator-lost-{number}" in told] == [2, 3, 4]


def test_what_is_kept_is_json(home: Path, rules: Path) -> None:
    load(rules)
    (path,) = kept(home)
    said, asked, unmet = json.loads(path.read_text("utf-8").partition("\n")[2])

    assert said["host/permission.toml"]["pattern"][0]["confidence"] == "likely"
    assert [*asked.values()] == [[["frobnicator ", " is lost"]]]
    assert unmet == []
