"""Nobody ever sees a placeholder: not in a report, not in a page."""

from collections.abc import Iterator

import pytest
import regex

from tests.conftest import Fixture, fixtures, name_of
from vllm_triage import Incident, templates, triage
from vllm_triage.catalogue import Catalogue
from vllm_triage.reports import FORMATS
from vllm_triage.reports.explain import explain

# `{name}`, `{name:fallback}`, doubled braces, and the question mark that stood for an unknown.
_LEFT = regex.compile(r"\{[a-z_][a-z_0-9]*(?::[^{}\"']*)?\}|\{\{|\}\}|(?<=\s)\?(?=[\s.,;:)]|$)")
# JSON in a command has a quote where a name would be; inner objects go first.
_JSON = regex.compile(r"\{\s*\"[^{}]*\}")
# `docker inspect --format '{{json .State}}'` is Docker's own way to write it.
_DOCKERS = regex.compile(r"\{\{(?:json )?\.[\w.]+\}\}")
_LAYOUT = regex.compile(r"[\s\\]+")
_OLD, _NEW = "0.6.3", "0.33"


def placeholders(text: str) -> list[str]:
    """What looks like a placeholder, without line ends and Markdown's backslashes."""
    text = _DOCKERS.sub("0", text)
    while _JSON.search(text):
        text = _JSON.sub("0", text)
    return [_LAYOUT.sub("", one) for one in _LEFT.findall(text)]


def texts(incident: Incident) -> Iterator[str]:
    yield from (incident.title, incident.summary, incident.cause, incident.verify or "")
    yield from (incident.suggested_command or "", incident.cards or "", *incident.collect)
    for step in incident.fix_steps:
        yield from (step.do, step.command or "", step.why or "", step.documented_as or "")
        yield from step.change.values()


@pytest.mark.parametrize("fixture", [one for one in fixtures() if one.root != "none"], ids=name_of)
def test_no_report_holds_a_placeholder(fixture: Fixture) -> None:
    report = triage(fixture.log)
    # A log may hold braces of its own: what it says is quoted.
    said = frozenset(placeholders(fixture.log.read_text("utf-8", "replace")))
    shown = [text for incident in report.incidents for text in texts(incident)]
    shown += [FORMATS[name](report) for name in ("text", "markdown", "github")]

    assert [one for text in shown for one in placeholders(text) if one not in said] == []
    assert all(
        incident.title and incident.summary and incident.cause for incident in report.incidents
    )


@pytest.mark.parametrize("releases", [(), (_OLD,), (_NEW,), (_OLD, _NEW)], ids=str)
def test_no_page_holds_a_placeholder(catalogue: Catalogue, releases: tuple[str, ...]) -> None:
    for name in [*(kind.value for kind in catalogue.rules), *catalogue.topics]:
        page = explain(name, catalogue, releases)
        # The lines by which a kind is recognised are quoted.
        page = page.partition("\nRecognised by")[0]

        assert placeholders(page) == [], name


def test_the_search_finds_what_it_looks_for() -> None:
    found = [
        "vllm serve {model:MODEL}",
        "port {port:}",
        "{braces}",
        "wants {{this}}",
        "the GPU had ? left.",
        "waited ? for others",
    ]
    innocent = [
        """--speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'""",
        """-d '{"model": "m", "messages": [{"role": "user"}]}'""",
        "http://localhost:8000/v1/models?limit=1",
        "Is it the right file?",
        """-p '[{"value": {"httpGet": {"path": "/health", "port": 8000}}}]'""",
        "docker inspect CONTAINER --format '{{json .State}}'",
        "find . -name '*.json'",
    ]

    assert [text for text in found if not placeholders(text)] == []
    assert [text for text in innocent if placeholders(text)] == []


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("It broke. Port {port:} is taken. Try again.", "It broke. Try again."),
        ("{port:} is taken. {path:A file} is gone.", "A file is gone."),
        ("Wait {timeout_s:}. {path:}", ""),
        ("vLLM 0.8.5 needs 2.5 GiB, e.g. for {model:}, and more.", ""),
        ("It says `a.` {port:} Then `b`.", "It says `a.`"),
        ("One {{brace}}. {port:} more.", "One {brace}."),
        ("Is it {path:there. Here}? Yes.", "Is it there. Here? Yes."),
    ],
)
def test_a_sentence_about_the_unknown_is_left_out(template: str, expected: str) -> None:
    assert templates.fill_sentences(template, {}) == expected


def test_a_sentence_about_the_known_stays() -> None:
    template = "It broke. Port {port:} is taken, (see {path:}). Try again."

    assert (
        templates.fill_sentences(template, {"port": "8000", "path": "a.log"})
        == "It broke. Port 8000 is taken, (see a.log). Try again."
    )


def test_every_text_is_whole_where_all_is_known(catalogue: Catalogue) -> None:
    for rule in catalogue.rules.values():
        for text in (rule.title, rule.summary, rule.cause, *rule.verify_texts):
            values = dict.fromkeys(templates.names(text), "7")
            assert templates.fill_sentences(text, values) == templates.fill(text, values)
