"""A precompiled regex is the very regex, and is used only where it was made for."""

import marshal
from pathlib import Path
from typing import Any

import pytest
import regex

from vllm_triage import precompiled
from vllm_triage.catalogue import Catalogue
from vllm_triage.expressions import every
from vllm_triage.precompiled import compiled, read, write

WORD = (r"(?i)(?P<name>\p{Lu}\w+)|\d{1,3}", int(regex.MULTILINE))


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of which the regexes are used; what has to be compiled fails."""
    path = tmp_path / "regexes"
    monkeypatch.setattr(precompiled, "_ready", lambda: read(path))
    return path


def forbidden(text: str | bytes, flags: int = 0) -> regex.Pattern[str]:
    message = f"compiles {text!r}"
    raise AssertionError(message)


def test_each_built_in_regex_is_what_compiling_gives(
    use: Path, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = catalogue.rules.values()
    texts = [(one.regex, int(regex.MULTILINE)) for rule in rules for one in rule.worded]
    wanted: list[tuple[Any, int]] = [*texts, *every()]
    fresh = [regex.compile(text, flags) for text, flags in wanted]
    write(use, wanted)
    precompiled._rebuild()
    monkeypatch.setattr(regex, "compile", forbidden)
    restored = [compiled(text, flags) for text, flags in wanted]

    assert len(wanted) > 1_000
    for one, other in zip(restored, fresh, strict=True):
        assert precompiled._reduce(one) == precompiled._reduce(other)
        assert (one.pattern, one.flags, one.groupindex) == (
            other.pattern, other.flags, other.groupindex,
        )  # fmt: skip


def test_it_finds_what_the_regex_finds(use: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(use, [WORD])
    monkeypatch.setattr(regex, "compile", forbidden)
    found = compiled(*WORD).search("12 Äpfel", pos=2, timeout=1.0)

    assert found is not None
    assert found.groupdict() == {"name": "Äpfel"}


def test_other_flags_are_another_regex(use: Path) -> None:
    write(use, [("a.b", int(regex.DOTALL))])

    assert compiled("a.b", regex.DOTALL).search("a\nb") is not None
    assert compiled("a.b", 0).search("a\nb") is None


def test_another_release_of_the_regex_package_compiles_anew(
    use: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(use, [WORD])
    assert read(use) != {}
    monkeypatch.setattr(regex, "__version__", "2001.1.1")

    assert read(use) == {}
    assert compiled(*WORD).search("Ab") is not None


@pytest.mark.parametrize("data", [None, b"", b"nothing", marshal.dumps(("x", 1, 2), 4)])
def test_without_a_readable_file_all_is_compiled(data: bytes | None, use: Path) -> None:
    if data is not None:
        use.write_bytes(data)

    assert read(use) == {}
    assert compiled(*WORD).search("Ab") is not None


@pytest.mark.parametrize("data", [b"", marshal.dumps(("x",), 4), marshal.dumps(5, 4)])
def test_a_regex_that_cannot_be_restored_is_compiled(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "_ready", lambda: {WORD: data})

    assert compiled(*WORD).search("Ab") is not None


def test_what_the_build_has_compiled_is_what_compiling_gives_here() -> None:
    """Also on another Python than that of the build."""
    for (text, flags), data in precompiled._ready().items():
        fresh: Any = regex.compile(text, flags)
        built = _unordered(precompiled._reduce(precompiled._rebuild()(text, *marshal.loads(data))))

        assert built == _unordered(precompiled._reduce(fresh))


def _unordered(reduced: tuple[Any, tuple[Any, ...]]) -> list[Any]:
    """With the program's parts in any order: characters of which one must come are written as a set has them."""
    return [sorted(one) if isinstance(one, bytes) else one for one in reduced[1]]
