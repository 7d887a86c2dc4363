"""What a regex asks for stands in all that it matches: nothing is passed over that would match."""

import marshal
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage import prefilter
from vllm_triage.catalogue import Catalogue
from vllm_triage.necessary import necessary
from vllm_triage.prefilter import built_in, holds, write

Pair = tuple[str, str]
"""A regex, and a text that it matches."""
PLAIN = st.text("abc :'", min_size=1, max_size=6).map(lambda text: (regex.escape(text), text))
OTHER = st.sampled_from([
    (r"\d", "7"), (r"[^\n]", "x"), (".", "abc"[0]), (r"[ab]", "b"), (r"\s", " "), (r"\.", "."), ("3", "3"),
    (r"\b", ""), ("^", ""), (r"(?!zzz)", ""), (r"(?=.?)", ""), (r"(?<!zzz)", ""), (r"\x41", "A"), (r"\(", "("),
])  # fmt: skip


def row(pairs: list[Pair]) -> Pair:
    return "".join(text for text, _ in pairs), "".join(found for _, found in pairs)


def group(pair: Pair) -> Pair:
    return f"(?:{pair[0]})", pair[1]


def named(pair: Pair) -> Pair:
    return f"(?P<name>{pair[0]})x(?P=name)", f"{pair[1]}x{pair[1]}"


def repeated(pair: Pair, mark: tuple[str, int]) -> Pair:
    return f"(?:{pair[0]}){mark[0]}", pair[1] * mark[1]


MARKS = st.sampled_from([
    ("?", 0), ("?", 1), ("*", 0), ("*+", 2), ("+", 1), ("+?", 2), ("{2}", 2), ("{0,3}", 0), ("{1,3}", 2), ("{,2}", 0),
])  # fmt: skip


def larger(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(row),
        inner.map(group),
        st.builds(repeated, inner, MARKS),
        st.lists(inner, min_size=1, max_size=4).flatmap(
            lambda pairs: st.sampled_from(pairs).map(
                lambda one: (f"(?:{'|'.join(text for text, _ in pairs)})", one[1])
            )
        ),
    )


REGEXES = st.recursive(PLAIN | OTHER, larger, max_leaves=12)


@given(REGEXES | REGEXES.map(named))
def test_what_matches_holds_it(pair: Pair) -> None:
    text, found = pair

    assert holds(found, necessary(text))


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (r"CUDA error: \w+", (("CUDA error: ",),)),
        ("(?:No|Not) space left", ((" space left",),)),
        (
            "NIXL (?:handshake (?:failed|timed out)|agent)",
            (
                ("handshake ", "failed", "NIXL "),
                ("handshake ", "timed out", "NIXL "),
                ("NIXL ", "agent"),
            ),
        ),
        (r"\[Errno 98\] Address", (("] Address", "[Errno "),)),
        (r"(?P<name>abc)(?:def)+", (("abc", "def"),)),
        (r"abc?def", (("def",),)),
        # Surely nothing, or what is sure tells little.
        ("abc|[^a]", ()),
        ("(?:abc)?", ()),
        (r"ab\d{1,3}", ()),
        # What the parser of regexes tells nothing of.
        ("(?i)error", ()),
        ("(?i:error) found", ()),
        (r"error \x{41}|\N{BULLET} error", ()),
        (r"(?P<a>error)? (?(a)one|two)", ()),
        (r"(error) \1", ()),
        (r"(?<a>error)(?&a)", ()),
        ("abc(", ()),
    ],
)
def test_it_is_read_from_the_regex(text: str, asked: prefilter.Ways) -> None:
    assert necessary(text) == asked


def test_what_each_pattern_matches_in_its_hits_holds_what_it_asks(catalogue: Catalogue) -> None:
    count = sharp = 0
    for rule in catalogue.rules.values():
        for pattern in rule.worded:
            ways = necessary(pattern.regex)
            sharp += bool(ways)
            assert not any(char.isdigit() for way in ways for word in way for char in word)
            for hit in pattern.hits:
                found = regex.search(pattern.regex, hit, regex.MULTILINE)
                if found is not None:
                    count += 1
                    assert holds(found[0], ways), pattern.name

    assert count > 1_300
    assert sharp > 850


def test_one_way_is_enough_and_all_of_it_is_needed() -> None:
    ways = (("one", "two"), ("three",))

    assert holds("two, one", ways)
    assert holds("three", ways)
    assert not holds("one", ways)
    assert not holds("", ways)
    assert holds("anything", ())


def test_what_the_build_wrote_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefilter, "folder", lambda: tmp_path)
    write(tmp_path / prefilter.NAME, {"abc+": (("abc",),)})

    assert built_in.__wrapped__() == {"abc+": (("abc",),)}


@pytest.mark.parametrize("data", [None, b"", b"no marshal", marshal.dumps({"a": ()})[:3]])
def test_without_a_readable_file_nothing_is_known(
    data: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefilter, "folder", lambda: tmp_path)
    if data is not None:
        (tmp_path / prefilter.NAME).write_bytes(data)

    assert built_in.__wrapped__() == {}
