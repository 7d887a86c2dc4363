"""Bundle: what a bug report is made of, without secrets and prompts."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from vllm_triage import contract
from vllm_triage.errors import SourceError
from vllm_triage.excerpts import (
    MAX_CHARS,
    VALUE_REACHES,
    WHOLE_BYTES,
    Cleaner,
    Excerpt,
    Shown,
    excerpt,
)
from vllm_triage.leaving import leaving
from vllm_triage.model import Report
from vllm_triage.paths import expand
from vllm_triage.pipeline import triage_paths
from vllm_triage.reports.json import render
from vllm_triage.sources import Reader
from vllm_triage.system import System

MAX_FILES = 100
"""How many logs, and how many attached files, are taken."""
_MAX_ALL_CHARS = 33_554_432
_MAX_ATTACHED_LINE = 16_384
_MAX_STARTS = 20


class Bundle(NamedTuple):
    """What a bug report is made of."""

    report: contract.Report
    logs: tuple[Excerpt, ...]
    attached: tuple[Excerpt, ...]
    system: System | None
    """None where it was not to be looked at."""
    problems: tuple[str, ...]
    """A sentence for each input that could not be read, or not all of it."""


def gather(
    logs: Sequence[str | Path],
    *,
    attached: Sequence[str | Path] = (),
    rules: Sequence[Path | str] = (),
    context: int = 100,
    system: System | None = None,
) -> Bundle:
    """Triage logs and take what a bug report shows of them, `context` lines around each line of evidence.

    Each log is read twice; standard input is kept in a file meanwhile. Raises SourceError
    when none of the logs can be read, RuleError when a rule folder is wrong.
    """
    with _kept_stdin(logs) as stdin:
        report = triage_paths(logs, rules=rules, stdin=_again(stdin))
        problems = [source.problem for source in report.sources if source.problem]
        shown = list(_excerpts(report, expand(logs).paths, context, stdin, problems))
    files = list(_attached(attached, problems))
    return Bundle(
        report=_without_secrets(report),
        logs=tuple(shown),
        attached=tuple(files),
        system=system,
        problems=tuple(leaving(text) for text in problems),
    )


@contextmanager
def _kept_stdin(logs: Sequence[str | Path]) -> Iterator[IO[bytes] | None]:
    if not any(str(name) == "-" for name in logs) or sys.stdin is None:
        yield None
        return
    with tempfile.TemporaryFile() as kept:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        yield kept


def _again(kept: IO[bytes] | None) -> IO[bytes] | None:
    """The same file from its beginning; closing what is given leaves it open."""
    if kept is None:
        return None
    kept.flush()
    copy = open(kept.fileno(), "rb", closefd=False)  # noqa: SIM115
    copy.seek(0)
    return copy


def _excerpts(
    report: Report,
    paths: Sequence[Path | None],
    context: int,
    stdin: IO[bytes] | None,
    problems: list[str],
) -> Iterator[Excerpt]:
    known = {source.name: source for source in report.sources if source.lines}
    anchors: dict[str, list[int]] = {}
    starts: dict[str, list[int]] = {}
    for incident in report.incidents:
        for line in incident.evidence:
            anchors.setdefault(line.source, []).append(line.line)
    for run in report.runs:
        starts.setdefault(run.source or "", []).append(run.first_line or 1)
    # Those that prove something come first where not all are taken.
    names = sorted(known, key=lambda name: name not in anchors)[:MAX_FILES]
    if len(known) > MAX_FILES:
        problems.append(f"of {len(known)} logs lines of {MAX_FILES} are in the bundle")
    most = min(MAX_CHARS, _MAX_ALL_CHARS // max(1, len(names)))
    for path in paths:
        try:
            reader = Reader(path, stream=_again(stdin) if path is None else None)
        except SourceError:
            continue
        name = leaving(reader.name)
        source = known.get(name)
        if source is None or name not in names:
            reader.close()
            continue
        first = starts.get(name, [])
        found = excerpt(
            reader,
            total=source.lines,
            is_whole=source.bytes <= WHOLE_BYTES,
            anchors=anchors.get(name, []),
            starts=[*first[:1], *first[-_MAX_STARTS:]],
            context=context,
            max_chars=most,
        )
        yield found._replace(name=leaving(found.name))


def _attached(names: Sequence[str | Path], problems: list[str]) -> Iterator[Excerpt]:
    expanded = expand(names)
    problems += expanded.problems
    if len(expanded.paths) > MAX_FILES:
        problems.append(f"of {len(expanded.paths)} attached files {MAX_FILES} are in the bundle")
    for path in expanded.paths[:MAX_FILES]:
        try:
            reader = Reader(path)
        except SourceError as error:
            problems.append(str(error))
            continue
        shown: list[Shown] = []
        held = 0
        cleaned = Cleaner(_MAX_ATTACHED_LINE)
        for number, row in reader:
            text = cleaned(row)
            if cleaned.is_name:
                shown[-VALUE_REACHES:] = map(cleaned.amended, shown[-VALUE_REACHES:])
            shown.append(Shown(number, text))
            held += len(shown[-1].text) + 1
            if held > MAX_CHARS:
                problems.append(f"{reader.name}: only its first {number} lines are in the bundle")
                reader.close()
                break
        if reader.problem:
            problems.append(reader.problem)
        yield Excerpt(leaving(reader.name), tuple(shown), len(shown), reader.problem)


def _without_secrets(report: Report) -> contract.Report:
    return contract.Report.model_validate(_walked(json.loads(render(report))))


def _walked(value: Any) -> Any:
    """The same with every text in it cleaned."""
    if isinstance(value, dict):
        return {name: _walked(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_walked(one) for one in value]
    return leaving(value) if isinstance(value, str) else value
