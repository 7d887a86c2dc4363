"""What must hold of any bytes, one function a part of the tool; each raises where it does not.

`tests/test_hostile.py` tries them on generated inputs, `python -m tests.fuzz` on inputs that are
mutated towards new branches.
"""

import io
import json
from collections.abc import Callable
from functools import cache

import regex

from vllm_triage.artefacts.formats import FORMATS, format_of
from vllm_triage.artefacts.observations import line as artefact_line
from vllm_triage.envelopes import Unwrapper
from vllm_triage.errors import SourceError
from vllm_triage.escapes import without_escapes
from vllm_triage.evidence import Evidence
from vllm_triage.lines import parse
from vllm_triage.model import Report, Source
from vllm_triage.pipeline import triage_paths
from vllm_triage.reports import FORMATS as REPORTS
from vllm_triage.scanner import Scanner
from vllm_triage.sources import Reader, decoded
from vllm_triage.stream import Filter, Protocol

_WORD = regex.compile(r"[A-Za-z]{3,}")
# Texts that stand in the line otherwise than they are read, and the field of a journal's entry
# whose text begins on the line below.
_SPELT = regex.compile(
    r"\\u|&\w+;|&#|#\d\d\d|\^\[|__CURSOR|__REALTIME|\[\d+,|%\d\d|\\x|\\0|\\[bfnrt]|[^ -~]|^MESSAGE$"
)


@cache
def scanner() -> Scanner:
    """One whose rules and knowledge the others share."""
    return Scanner(redact=False)


def report_of(feed: Callable[[Scanner], None]) -> Report:
    """What a scanner tells that is fed so."""
    one = Scanner("log", like=scanner())
    feed(one)
    one.end_source(Source(name="log"))
    return one.report()


def lines(data: bytes) -> None:
    """Envelopes come off and lines are cut; each text has the number of a line that was there."""
    unwrapper = Unwrapper()
    rows = data.split(b"\n")
    texts = [
        item for number, raw in enumerate(rows, 1) for item in unwrapper.feed(number, decoded(raw))
    ]
    for item in [*texts, *unwrapper.close()]:
        assert 1 <= item.number <= len(rows)
        for line in parse("log", item.number, item.text, time=item.time, level=item.level):
            assert line.number == item.number


def whole(data: bytes) -> Report:
    """The same is told of lines in blocks of any size and one by one; evidence is true; it can be written."""
    rows = data.split(b"\n")

    def in_one_block(one: Scanner) -> None:
        one.feed_block(1, data)

    def in_blocks(one: Scanner) -> None:
        size = 1 + len(data) % 7
        for start in range(0, len(rows), size):
            one.feed_block(start + 1, b"\n".join(rows[start : start + size]))

    def one_by_one(one: Scanner) -> None:
        for number, raw in enumerate(rows, 1):
            one.feed_numbered(number, decoded(raw))

    report = report_of(in_one_block)
    assert report == report_of(in_blocks)
    assert report == report_of(one_by_one)
    are_true(report, rows)
    for render in REPORTS.values():
        render(report)
    json.loads(REPORTS["json"](report))
    return report


def are_true(report: Report, rows: list[bytes]) -> None:
    """The evidence is text of the very lines that it names."""
    for incident in report.incidents:
        for one in incident.evidence:
            assert 1 <= one.line <= len(rows), one
            printed = without_escapes(decoded(rows[one.line - 1]))
            if _SPELT.search(printed) is None:
                words = _WORD.findall(one.text)[:2]
                assert all(word in printed for word in words), (one, printed)


def source(data: bytes) -> None:
    """Any file is read, or refused in one sentence; the lines have numbers that LF counts."""
    try:
        reader = Reader(None, stream=io.BytesIO(data))
    except SourceError:
        return
    numbers = [number for number, _ in reader]
    assert numbers == sorted(numbers)
    assert not numbers or numbers[-1] <= reader.lines
    assert reader.problem is None or "\n" not in reader.problem


def artefact(data: bytes) -> None:
    """Every reader takes any text, whether or not its format fits; what it states stands on lines of the text."""
    rows = [decoded(raw) for raw in data[1:].split(b"\n")]
    texts = list(enumerate(rows, 1))
    found = format_of("\n".join(rows))
    chosen = FORMATS[data[0] % len(FORMATS)] if data else FORMATS[0]
    for form in {one.module: one for one in (found, chosen) if one is not None}.values():
        reading = form.read([artefact_line("file", number, text) for number, text in texts])
        for observation in reading.observations:
            assert all(1 <= one.number <= len(rows) for one in observation.lines.values())
        judge = Evidence(scanner().catalogue)
        judge.take("file", texts, form)
        one = Scanner("log", like=scanner())
        one.end_source(Source(name="log"))
        one.judge(judge)
        json.loads(REPORTS["json"](one.report()))


def files(data: bytes) -> None:
    """A file whose content may be anything is triaged, and the report is written in all formats."""
    try:
        report = triage_paths(["-"], stdin=io.BytesIO(data))
    except SourceError:
        return
    for render in REPORTS.values():
        render(report)
    json.loads(REPORTS["json"](report))


def stream(data: bytes) -> None:
    """A filter hands on what it got, however it was cut, and never fails."""
    for protocol in Protocol:
        failed: list[str] = []
        filtered = Filter(protocol, scanner=Scanner(like=scanner()), warn=failed.append)
        out = b""
        size = 1 + len(data) * 3 // 7
        for start in range(0, len(data), size):
            part = data[start : start + size]
            out += filtered.pass_on(part) + filtered.feed(part, float(start))
            filtered.tick(start + 1.0)
        out += filtered.close()
        assert failed == []
        if protocol is Protocol.LINES:
            assert out == data
        else:
            ends = protocol is Protocol.RSYSLOG and data and not data.endswith(b"\n")
            assert out.count(b"\n") == data.count(b"\n") + bool(ends)


CLAIMS: dict[str, Callable[[bytes], object]] = {
    "lines": lines,
    "whole": whole,
    "source": source,
    "artefact": artefact,
    "files": files,
    "stream": stream,
}
