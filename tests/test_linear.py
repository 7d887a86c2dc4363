"""No regex takes more than linear time, whatever text it is given."""

import importlib
import os

import pytest
import regex

from tests.expressions import OWN_TEXTS, Expression, expressions
from vllm_triage.candidates import compiled
from vllm_triage.catalogue import Catalogue
from vllm_triage.expressions import every
from vllm_triage.growth import near_misses, searching, worst
from vllm_triage.kinds import Kind
from vllm_triage.syntax import parse

# All of a pattern's hits are fed to it, not only the first, and what bounded repeats take too.
DEEP = bool(os.environ.get("TRIAGE_DEEP"))

EXPRESSIONS = expressions()
# The longest text that each is given, where that is so short that its square does not matter.
CUT = {
    "echo_reader._ITEM": 1024,
    "fixes._STAND_IN": 400,
    "margins._VARYING": 200,
    "reports.text._NUMBERED": 250,
    "tracebacks._EXCEPTION": 400,
    "tracebacks._DOTTED": 400,
    "tracebacks._ANY_NAME": 400,
    "tracebacks._CHECKOUT": 500,
}


def _texts_of(module: str) -> set[str]:
    values = vars(importlib.import_module(f"vllm_triage.{module}")).values()
    return {
        one.pattern for one in values if hasattr(one, "groupindex") and hasattr(one, "pattern")
    }


def superlinear(text: str) -> bool:
    expression = regex.compile(text, regex.MULTILINE)
    return worst(searching(expression), near_misses(text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        r"(?:a+)+b",
        r"(?:a|a)*b",
        r"(?:x|\d|[0-9a-f])+ end",
        r"\s+\s+\s+error",
        r"Worker [^\n]* died [^\n]* code",
        r"^\s*Reason: OOMKilled",
        r"error: (?P<detail>[^']*)' in (?P<path>\S+)\.py",
        r"(?:Value|Type)Error: (?=.*memory)",
        r"A(?:BC*D?)*E",
        r"(\w+\s?)*x",
        r"(?P<name>\w+) (?P=name)!",
        r"(\d+)(?:,\1)*;",
        r"(?<=a\w*)x",
        r"error(?<!ignored.*error)x?",
        r"foo(?=.*bar)",
        r"vllm:v(\d)(?:-\S*)?$",
        r"(?s)(?:.+)+\dq",
        r"(?:日+)+x",
        r"(?:\N{DIGIT ONE}+)+!",
    ],
)
def test_a_regex_that_backtracks_is_found(text: str) -> None:
    assert superlinear(text)


@pytest.mark.parametrize(
    "text",
    [
        r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]{1,20} GiB)",
        r"Worker [^\n]{0,400}died",
        r"Worker [^\n]{0,200}? died [^\n]{0,200}? code",
        r"(?P<name>[\w.-]{1,80}) died",
        r"^[^\S\n]{0,80}Reason: OOMKilled",
        r"(?:\[[^\]]{1,80}\] )?error: [^\n]*",
        r"NVRM: Xid \(PCI:(?P<pci>[\da-f:.]+)\): (?P<xid>\d+)",
        r"(?>\d{1,9})(?:st|nd) attempt|port (?P<port>\d++) (?!ignored)is in use",
    ],
)
def test_a_linear_regex_is_not_blamed(text: str) -> None:
    assert not superlinear(text)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_pattern_is_linear(kind: Kind, catalogue: Catalogue) -> None:
    for pattern in catalogue.rules[kind].worded:
        seeds = (*pattern.hits[: None if DEEP else 1], *pattern.keywords, *pattern.any_of)
        miss = worst(
            searching(compiled(pattern.regex)), near_misses(pattern.regex, seeds, deep=DEEP)
        )

        assert miss is None, pattern.name


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=[one.name for one in EXPRESSIONS])
def test_a_regex_of_the_code_is_linear(expression: Expression) -> None:
    longest = CUT.get(expression.name)

    assert worst(expression.search, near_misses(expression.text), longest) is None


def test_each_regex_is_read_so_that_its_near_misses_are_its_own(catalogue: Catalogue) -> None:
    texts = [one.regex for rule in catalogue.rules.values() for one in rule.worded]
    texts += [one.text for one in EXPRESSIONS]

    assert len(texts) > 1_000
    for text in texts:
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        r"(?x) ( a + )+ $",
        r"(a)(?(1)b|c)",
        r"\((?:[^()]|(?R))*\)",
        r"(?P<x>a)(?&x)",
        r"(?:error){e<=2}",
        r"a(*SKIP)b",
        r"(?V1)[\w--\d]+x",
        r"(?r)a+b",
        "(" * 100 + "a" + ")" * 100,
    ],
)
def test_what_cannot_be_judged_is_not_read(text: str) -> None:
    regex.compile(text)
    with pytest.raises(ValueError):  # noqa: PT011  # what it is follows from the text
        parse(text)


def test_the_regexes_of_the_code_are_found() -> None:
    names = {one.name.partition("[")[0] for one in EXPRESSIONS}
    found = {one.compiled.pattern for one in EXPRESSIONS}
    own = {info for module in OWN_TEXTS for info in _texts_of(module)}

    assert {text for text, _ in every()} <= found | own

    assert {"lines._PROCESS", "memory._WORDINGS", "redact._RULES", "pipes._TIME"} <= names
    assert {one.name: one.way for one in EXPRESSIONS}["redact._RULES"] == "sub"
