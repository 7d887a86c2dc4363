"""Nothing that a log holds takes effect where it is shown: each format is read with a parser of its own kind."""

import json
import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import regex as re
from markdown_it import MarkdownIt

from tests.injections import ALL, SHELL
from tests.test_cli import run
from tests.test_leaks import outputs, updates
from vllm_triage.bundle import Bundle
from vllm_triage.contract import validated
from vllm_triage.excerpts import Excerpt, Shown
from vllm_triage.issue import body
from vllm_triage.metrics import MetricsFile
from vllm_triage.model import Report
from vllm_triage.pipeline import triage
from vllm_triage.reports import FORMATS, markdown
from vllm_triage.reports.clean import clean

# `§` is what is planted: in a message, an exception, a path, a model, a flag, a process, a host.
LOGS = {
    "exception": ["ERROR 12-01 10:00:01 [core.py:1] SomeNewError: §"],
    "memory": ["ERROR 12-01 10:00:01 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.00 GiB is free. §"],
    "model": [
        "INFO 12-01 10:00:00 [utils.py:1] non-default args: {'model': '§', 'served_model_name': ['§'], 'port': 8000}",
        "OSError: § is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
    ],
    "flag": ["$ vllm serve org/§ --port 8000 --§", "api_server.py: error: unrecognized arguments: §"],
    "choice": ["api_server.py: error: argument --dtype: invalid choice: '§' (choose from '§', 'half')"],
    "process": ["(§ pid=1) ERROR 12-01 10:00:01 [core.py:1] ValueError: §"],
    "path": ["FileNotFoundError: [Errno 2] No such file or directory: '/models/§/config.json'"],
    "host": ["2026-12-01T10:00:00Z § vllm[1]: requests.exceptions.ConnectionError: HTTPSConnectionPool(host='§', port=443): Max retries exceeded with url: /§"],
}  # fmt: skip
_UNSEEN = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_COMMAND = re.compile(r"(?m)^\s*::[a-z-]+[ :]|##\[|##vso\[|##teamcity\[")


def texts(log: str) -> tuple[str, ...]:
    """What is planted in this log: each text in one of them, in a deep run in all."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "deep":
        return ALL
    return ALL[list(LOGS).index(log) :: len(LOGS)]


def lines(log: str, text: str) -> list[str]:
    return [part for line in LOGS[log] for part in line.replace("§", text).split("\n")]


@pytest.mark.parametrize("log", LOGS)
def test_no_format_shows_what_takes_effect(log: str, tmp_path: Path) -> None:
    for text in texts(log):
        for name, shown in outputs(lines(log, text), tmp_path):
            bare = re.sub(r"\x1b\[[0-9;]{0,9}m", "", shown) if "colour" in name else shown
            assert _UNSEEN.search(bare) is None, (name, text)
            if name != "github":
                assert _COMMAND.search(bare) is None, (name, text)


@pytest.mark.parametrize("log", LOGS)
def test_json_of_every_kind_is_read_as_it_was_meant(log: str, tmp_path: Path) -> None:
    for text in texts(log):
        found = triage(iter(lines(log, text)))
        assert json.loads(FORMATS["json"](found))["incidents"] == json.loads(validated(found).model_dump_json())["incidents"]  # fmt: skip
        for name in ("ndjson", "otel", "ecs"):
            rows = FORMATS[name](found).splitlines()
            assert len(rows) == len(found.incidents), (name, text)
            assert all(isinstance(json.loads(row), dict) for row in rows)


@pytest.mark.parametrize("log", LOGS)
def test_an_annotation_is_one_command_with_its_own_properties(log: str) -> None:
    for text in texts(log):
        found = triage(iter(lines(log, text)))
        rows = FORMATS["github"](found).splitlines()
        assert len(rows) == len(found.incidents)
        for row in rows:
            parts = re.fullmatch(r"::(error|warning|notice) title=([^:,]*)::(.*)", row)
            assert parts is not None, (text, row)
            assert "%0D" not in parts[3]
            assert all(not part.lstrip().startswith("##[") for part in parts[3].split("%0A"))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.comments: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag + "".join(f" {name}" for name, _ in attrs))

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def rendered(page: str) -> tuple[list[str], str, list[str]]:
    """The tags of a page as a Markdown viewer renders it, the texts outside code, and its comments."""
    viewer = MarkdownIt("commonmark", {"html": True, "linkify": True}).enable(["table", "strikethrough", "linkify"])  # fmt: skip
    parser = _Tags()
    html = viewer.render(page)
    parser.feed(html)
    # As GitHub looks for mentions and references: in the texts, never in code.
    plain = re.sub(r"<(pre|code)\b.*?</\1>|<!--.*?-->", " ", html, flags=re.DOTALL)
    return parser.tags, re.sub(r"<[^>]*>", " ", plain), parser.comments


_SAFE = {"h2", "h3", "p", "code", "strong", "em", "table", "thead", "tbody", "tr", "th", "td", "pre", "ol", "ul", "li", "sub",
         "details", "summary", "code class", "td style", "th style", "ol start"}  # fmt: skip


@pytest.mark.parametrize("log", LOGS)
def test_markdown_renders_to_nothing_but_its_own_tags(log: str) -> None:
    for text in ("plain", *texts(log)):
        found = triage(iter(lines(log, text)))
        for page in (markdown.render(found), body(bundle(found, text))):
            tags, plain, comments = rendered(page)
            assert {*tags} <= _SAFE, (text, {*tags} - _SAFE)
            assert "owned" not in "".join(comments).partition("Title:")[0]
            assert re.search(r"(?<![\w`])@\w|(?<!\w)#\d|\bGH-\d|https?://|www\.|\b[0-9a-f]{40}\b", plain) is None, (text, plain)  # fmt: skip


def test_the_rows_of_a_table_keep_their_cells() -> None:
    for text in ALL:
        shown = markdown.cell(text)
        page = f"| a | b |\n|---|---|\n| x | {shown} |\n"
        tags, _, _ = rendered(page)
        assert tags.count("td") == 2, text
        assert tags.count("tr") == 2, text


@pytest.mark.parametrize("text", ALL)
def test_text_in_a_line_of_markdown_makes_no_block_and_no_tag(text: str) -> None:
    tags, plain, _ = rendered(f"{markdown.escape(text)}\n")
    assert {*tags} <= {"p", "code"}, tags
    assert re.search(r"@\w|#\d|://|www\.", plain) is None


def bundle(found: Report, text: str) -> Bundle:
    report = validated(found)
    rows = tuple(Shown(number, clean(row)) for number, row in enumerate(text.split("\n"), 1))
    return Bundle(report, (Excerpt(f"<lines>{clean(text)}", rows, len(rows), None),), (), None, ())


def parsed_metrics(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """The exposition format, as its specification has it; raises where a line is neither comment nor sample."""
    for row in text.split("\n"):
        if not row or row.startswith("# "):
            continue
        found = re.fullmatch(
            r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} ([0-9.e+]+)', row
        )
        assert found is not None, row
        labels = dict(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', found[2]))
        yield found[1], labels, float(found[3])


def test_metrics_hold_samples_of_their_own_only(tmp_path: Path) -> None:
    for text in ALL:
        metrics = MetricsFile(tmp_path / "x.prom", lambda _: None, now=lambda: 1.0)
        for one in updates(lines("memory", ""), f"pod {text}"):
            metrics(one)
        samples = list(parsed_metrics((tmp_path / "x.prom").read_text("utf-8")))
        assert {name for name, _, _ in samples} == {
            "vllm_triage_build_info", "vllm_triage_incidents_total", "vllm_triage_last_incident_timestamp_seconds"
        }  # fmt: skip
        assert len(samples) == 3, text


@pytest.mark.parametrize("log", LOGS)
def test_commands_are_plain_words(log: str) -> None:
    for text in SHELL[:6]:
        for incident in triage(iter(lines(log, text))).incidents:
            for step in incident.fix_steps:
                assert text not in (step.command or ""), (text, step.command)


@pytest.mark.parametrize(
    "text",
    [text for text in ALL[::7] if "/" not in text and "\0" not in text and "\ud800" not in text],
)
def test_a_hostile_file_name_takes_no_effect_on_the_terminal(text: str, tmp_path: Path) -> None:
    name = text[:80]
    (tmp_path / f"{name}.log").write_text("ValueError: x\n")
    done = run(f"{tmp_path}/missing-{name}", f"{tmp_path}/{name}.log")

    assert done.stderr.count("\n") == 1
    for shown in (done.stderr, done.stdout):
        assert _UNSEEN.search(shown) is None
        assert _COMMAND.search(shown) is None
