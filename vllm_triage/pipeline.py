"""The road of the data: sources, envelopes, lines, events, matches, incidents, report."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO

from vllm_triage.artefacts.formats import Format, format_of
from vllm_triage.catalogue import load
from vllm_triage.errors import SourceError
from vllm_triage.evidence import Evidence, Inner, beginning, log_begins
from vllm_triage.model import Report, Source
from vllm_triage.paths import expand, is_large, is_name, printable
from vllm_triage.scanner import Input, Progress, Scanner
from vllm_triage.sources import Reader


def triage(
    inputs: str | Path | Sequence[str | Path] | Iterable[str],
    *,
    rules: Sequence[Path | str] = (),
    redact: bool = True,
    thresholds: Mapping[str, float | str] | None = None,
) -> Report:
    """What `library.triage` does, with a plain report."""
    if isinstance(inputs, str | Path):
        return triage_paths([inputs], rules=rules, redact=redact, thresholds=thresholds)
    if isinstance(inputs, Sequence) and not _are_lines(inputs):
        return triage_paths(inputs, rules=rules, redact=redact, thresholds=thresholds)
    scanner = Scanner("<lines>", redact=redact, catalogue=load(rules, thresholds=thresholds))
    for number, line in enumerate(inputs, 1):
        scanner.feed_numbered(number, printable(str(line).rstrip("\n")))
    scanner.end_source()
    return scanner.report()


def _are_lines(inputs: Sequence[str | Path]) -> bool:
    if not all(isinstance(one, str) for one in inputs):
        return False
    texts = [str(one) for one in inputs]
    return any(" " in one or "\n" in one for one in texts) and not any(
        is_name(one) for one in texts
    )


def triage_paths(
    names: Sequence[str | Path],
    *,
    rules: Sequence[Path | str] = (),
    redact: bool = True,
    apply_steps: Collection[int] = (),
    progress: Progress | None = None,
    interrupted: Callable[[], None] | None = None,
    jobs: int = 1,
    stdin: IO[bytes] | None = None,
    thresholds: Mapping[str, float | str] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Report:
    """Triage files, folders, globs and `-` for standard input as one deployment.

    `progress` gets the bytes read so far. With `interrupted` a KeyboardInterrupt ends the
    reading, calls it, and the report tells what was found so far. Plain files over 64 MiB are
    read by `jobs` processes, where the system can fork. `stdin` is read in the place of standard input.
    `warn` gets a sentence for each folder with patterns that miss their own hits.

    An input that cannot be read appears as a source with a `problem`.
    Raises SourceError when none can be read, RuleError when a rule folder is wrong,
    TriageError for a threshold that is none.
    """
    catalogue = load(rules, thresholds=thresholds)
    _tell(catalogue.unmet, warn)
    expanded = expand(names)
    scanner = Scanner(redact=redact, catalogue=catalogue)
    evidence = Evidence(catalogue)
    problems = list(expanded.problems)
    done = 0
    is_stopped = False
    for path in expanded.paths:
        try:
            reader = _opened(path, stdin, problems)
            if reader is None:
                continue
            source = _prepared(reader, path, jobs, evidence)
            if isinstance(source, Source):
                scanner.sources.append(source)
                done += reader.bytes
                continue
            is_stopped = not _read(
                scanner, source, _shifted(progress, done), can_stop=interrupted is not None
            )
            done += source.bytes
        except KeyboardInterrupt:
            if interrupted is None:
                raise
            is_stopped = True
        if is_stopped:
            if interrupted is not None:
                interrupted()
            break
    if is_stopped and not scanner.sources:
        raise KeyboardInterrupt
    if not scanner.sources:
        raise SourceError(
            "; ".join(problems) or "no input; name a log file, or - for standard input"
        )
    for text in problems:
        scanner.sources.append(Source(name=text.partition(": ")[0], problem=text))
    scanner.judge(evidence)
    return scanner.report(apply_steps=apply_steps)


def _tell(texts: Sequence[str], warn: Callable[[str], None] | None) -> None:
    if warn is None:
        return
    for text in texts:
        warn(text)


def _opened(path: Path | None, stdin: IO[bytes] | None, problems: list[str]) -> Reader | None:
    try:
        return Reader(path, stream=stdin if path is None else None)
    except SourceError as error:
        problems.append(str(error))
        return None


def _prepared(reader: Reader, path: Path | None, jobs: int, evidence: Evidence) -> Input | Source:
    """What of an input is to be read as a log; the source itself when all of it was evidence."""
    form = format_of(reader.head)
    if form is None:
        log = _split(reader, path, jobs)
        return Searched(reader, evidence) if log is reader else log
    reader.is_split_at_nul = form.name == "environment" and not form.is_log
    kept = Kept(reader, form)
    log_at = None if form.is_log else log_begins(kept.beginning)
    if not form.is_log and log_at is None:
        return evidence.read(kept, form)
    kept.take(evidence, log_at)
    return kept


def _read(scanner: Scanner, source: Input, progress: Progress | None, *, can_stop: bool) -> bool:
    is_complete = scanner.read(source, progress, can_stop=can_stop)
    if isinstance(source, Kept):
        read = scanner.sources[-1]
        scanner.sources[-1] = read.model_copy(update={"format": source.form.name})
    return is_complete


class Kept:
    """An input of which the first lines are kept, so that they can be read twice."""

    def __init__(self, reader: Reader, form: Format) -> None:
        self.form = form
        self._reader = reader
        self._rest = iter(reader)
        self.name = reader.name
        self.problem: str | None = None
        self.beginning = list(beginning(self._rest))
        self._count()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return chain(self.beginning, self._rest)

    def take(self, evidence: Evidence, end: int | None) -> None:
        """Have the first lines read as an artefact: those before this index, None for all."""
        is_open = self.is_open and end is None
        problem = evidence.take(self.name, self.beginning[:end], self.form, is_open=is_open)
        if self.problem is None and problem is not None:
            self.problem = f"{self.name}: {problem}"

    def _count(self) -> None:
        reader = self._reader
        self.lines, self.bytes = reader.lines, reader.bytes
        self.truncated_lines = reader.truncated_lines
        self.is_open = reader.is_open
        self.problem = reader.problem or self.problem

    def deliver(self, scanner: Scanner, progress: Progress | None = None) -> None:
        """Give all lines to a scanner."""
        for number, text in self:
            scanner.feed_numbered(number, text)
        self._count()
        if progress is not None:
            progress(self.bytes)


class Searched:
    """A log, among whose lines artefacts may stand."""

    def __init__(self, reader: Reader, evidence: Evidence) -> None:
        self._reader = reader
        self._inner = Inner(evidence, reader.name)
        self._scanner: Scanner | None = None
        self.name = reader.name
        self._count()

    def _count(self) -> None:
        reader = self._reader
        self.lines, self.bytes = reader.lines, reader.bytes
        self.truncated_lines, self.problem = reader.truncated_lines, reader.problem

    def deliver(self, scanner: Scanner, progress: Progress | None = None) -> None:
        """Give all lines to a scanner."""
        self._scanner = scanner
        try:
            self._reader.deliver(self, progress)
        finally:
            self._count()
        self._inner.end(is_open=self._reader.is_open)

    def feed_block(self, first: int, data: bytes) -> None:
        """Take whole lines, without the last line end, of which the first has this number."""
        if self._scanner is not None:
            self._scanner.feed_block(first, data)
        self._inner.feed_block(first, data)


def _split(reader: Reader, path: Path | None, jobs: int) -> Input:
    """The same input, read by several processes where that is worth it."""
    if jobs < 2 or path is None or not reader.is_plain or not is_large(path):
        return reader
    from vllm_triage.split import SplitFile, can_split

    if not can_split():
        return reader
    try:
        split = SplitFile(path, jobs)
    except OSError:
        # Its name is gone since it was opened.
        return reader
    reader.close()
    return split


def _shifted(progress: Progress | None, base: int) -> Progress | None:
    if progress is None:
        return None
    return lambda count: progress(base + count)
