"""Evidence: what lies beside a log, judged by the rules together with the run that the log shows."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from vllm_triage.artefacts.formats import Format, format_of
from vllm_triage.artefacts.heads import goes_on
from vllm_triage.artefacts.observations import Observation, line
from vllm_triage.candidates import Recogniser
from vllm_triage.catalogue import Catalogue
from vllm_triage.conditions import in_bounds, satisfies
from vllm_triage.events import Event
from vllm_triage.expressions import expression
from vllm_triage.kinds import Kind
from vllm_triage.lines import Line, Origin
from vllm_triage.matches import Match
from vllm_triage.model import Source
from vllm_triage.rules import Pattern
from vllm_triage.run import Run
from vllm_triage.sources import decoded

_MAX_LINES = 500_000
_MAX_CHARS = 67_108_864
_MAX_SHOWN = 4
_SLOW = (
    Kind.PERFORMANCE_HIGH_TTFT,
    Kind.PERFORMANCE_SLOW_DECODE,
    Kind.PERFORMANCE_LOW_THROUGHPUT,
)
"""What a benchmark may show, in the order in which it is told."""


# How what stands among a log's lines begins.
_SIGNS = (b"# HELP ", b"# TYPE ", b"| NVIDIA-SMI ")
_MARKS = (b"#", b"|")
_HEAD = 65_536
_LF = 10

# How vLLM's own lines begin, and Python's when it dies; nvidia-smi warns as uvicorn does.
_LOG_LINE = expression(
    r"(?:\([^()]{1,120}\) ){0,4}+(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d"
    r"|Traceback \(most recent call last\):)"
)


def beginning(rows: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """As many of a file's lines as are read of an artefact."""
    held = 0
    for number, text in islice(rows, _MAX_LINES):
        yield number, text
        held += len(text)
        if held > _MAX_CHARS:
            return


def log_begins(rows: Sequence[tuple[int, str]]) -> int | None:
    """The index of the line from which on a log follows an artefact in one file."""
    return next((at for at, (_, text) in enumerate(rows) if _LOG_LINE.match(text)), None)


class Artefact(Protocol):
    """A file that is no log."""

    name: str
    lines: int
    bytes: int
    truncated_lines: int
    is_open: bool
    problem: str | None

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Its lines with their numbers."""


class Evidence:
    """The artefacts of one call."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._judging = [
            Recogniser(kind, rule, pattern)
            for kind, rule in catalogue.rules.items()
            for pattern in rule.judging
        ]
        self._observations: list[Observation] = []

    @property
    def is_empty(self) -> bool:
        """Whether no artefact stated anything."""
        return not self._observations

    @property
    def first(self) -> Line:
        """A line of the first artefact."""
        return next(iter(self._observations[0].lines.values()))

    def take(
        self,
        name: str,
        texts: Iterable[tuple[int, str]],
        form: Format,
        *,
        is_open: bool = False,
    ) -> str | None:
        """Take the lines of an artefact; give half a sentence when something is wrong with it.

        The last line may be cut off where it `is_open`, without an end.
        """
        lines = [line(name, number, text) for number, text in texts]
        reading = form.read(lines, is_open=is_open)
        self._observations += [one for one in reading.observations if one.lines]
        return reading.problem

    def read(self, artefact: Artefact, form: Format) -> Source:
        """Take a whole artefact; give the record of it."""
        rows = list(beginning(iter(artefact)))
        told = self.take(artefact.name, rows, form, is_open=artefact.is_open)
        problem = artefact.problem
        last = rows[-1][0] if rows else 0
        if problem is None and last < artefact.lines:
            problem = f"{artefact.name}: only its first {last:,} lines were read"
        elif problem is None and told is not None:
            problem = f"{artefact.name}: {told}"
        return Source(
            name=artefact.name,
            format=form.name,
            lines=artefact.lines,
            bytes=artefact.bytes,
            truncated_lines=artefact.truncated_lines,
            problem=problem,
        )

    def tell(self, run: Run) -> None:
        """Give a run the facts that only artefacts state."""
        # Most calls have logs only, and start sooner without what joins artefacts.
        from vllm_triage.artefacts.joins import tell

        tell(run, self._observations)

    def unfinished(self) -> dict[str, str]:
        """By the names of the files, a sentence on what was not judged as they may be cut off."""
        from vllm_triage.artefacts.joins import unfinished

        return {name: f"{name}: {text}" for name, text in unfinished(self._observations).items()}

    def matches(self, run: Run, position: int) -> Iterator[Match]:
        """What the rules make of all artefacts, beside this run."""
        from vllm_triage.artefacts.joins import joined

        for observation in joined(self._observations, run):
            found = [item for item in self._judging if _holds(item.pattern, observation, run)]
            for item in _one_fault(found) if observation.subject == "benchmark" else found:
                yield _match(item, observation, run, position)
                position += 1


class Inner:
    """Finds what stands among the lines of a log, as where `/metrics` was appended to it: scrapes and listings of GPUs."""

    def __init__(self, evidence: Evidence, name: str) -> None:
        self._evidence = evidence
        self._name = name
        self._rows: list[tuple[int, str]] = []
        self._held = 0

    def feed_block(self, first: int, data: bytes) -> None:
        """Take whole lines, without the last line end, of which the first has this number."""
        if self._rows or data.startswith(_SIGNS) or _holds_sign(data):
            for number, row in enumerate(data.split(b"\n"), first):
                self._line(number, row)

    def _line(self, number: int, row: bytes) -> None:
        if self._rows:
            text = decoded(row).rstrip("\r")
            if self._held < _MAX_CHARS and len(self._rows) < _MAX_LINES and goes_on(text):
                self._rows.append((number, text))
                self._held += len(text)
                return
            self.end()
        if row.startswith(_SIGNS):
            self._rows.append((number, decoded(row).rstrip("\r")))

    def end(self, *, is_open: bool = False) -> None:
        """Take what has been found, of which the last line may be cut off where it `is_open`."""
        rows, self._rows, self._held = self._rows, [], 0
        form = format_of("\n".join(text for _, text in rows)[:_HEAD]) if rows else None
        if form is not None and not form.is_log:
            self._evidence.take(self._name, rows, form, is_open=is_open)


def _holds_sign(data: bytes) -> bool:
    """Tell whether a line but the first begins with a sign."""
    # A single byte is found a hundred times as fast as a word, and each log is looked through.
    find = data.find
    for mark in _MARKS:
        at = find(mark)
        while at >= 0:
            if data[at - 1] == _LF and data.startswith(_SIGNS, at):
                return True
            end = find(b"\n", at)
            at = find(mark, end) if end >= 0 else -1
    return False


def _fields(pattern: Pattern, observation: Observation) -> dict[str, str | float | None]:
    return {**observation.values, **pattern.facts}


def _holds(pattern: Pattern, observation: Observation, run: Run) -> bool:
    return (
        pattern.artefact == observation.subject
        and satisfies(pattern.needs, run, run.quantization)
        and in_bounds(pattern, _fields(pattern, observation))
    )


def _one_fault(found: Sequence[Recogniser]) -> list[Recogniser]:
    """Of what is slow in a benchmark only the first, as the rest follows from it: what the GPUs confirm before what the result says alone."""
    slow = min((item for item in found if item.kind in _SLOW), key=_order, default=None)
    return [item for item in found if item.kind not in _SLOW or item is slow]


def _order(item: Recogniser) -> tuple[bool, int]:
    asked = (*item.pattern.at_least, *item.pattern.at_most)
    return not any(name.startswith("gpu_") for name in asked), _SLOW.index(item.kind)


def _match(item: Recogniser, observation: Observation, run: Run, position: int) -> Match:
    pattern = item.pattern
    # A latency that is short only tells that nothing else is at fault.
    low = (name for name in pattern.at_most if not name.endswith("_ms"))
    asked = (*pattern.at_least, *low, *pattern.equals)
    shown = _shown(observation, asked)
    event = Event(
        tuple(shown),
        "\n".join(one.text for one in shown),
        None,
        Origin.ARTEFACT,
        table=observation.table,
    )
    # How a server was found from outside is how it was before anybody said so.
    position = -1 if observation.subject == "health" else position
    fields = _fields(pattern, observation)
    return Match(item, event, shown[0], fields, run, None, run.quantization, position)


def _shown(observation: Observation, asked: Sequence[str]) -> list[Line]:
    """The lines that show what a pattern asks for, else the first of all."""
    known = observation.lines
    wanted = {known[name]: None for name in asked if name in known}
    return list(wanted)[:_MAX_SHOWN] or [next(iter(known.values()))]
