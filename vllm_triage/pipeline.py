"""The road of the data: sources, envelopes, lines, events, matches, incidents, report."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_triage import sources
from vllm_triage.envelopes import Unwrapper
from vllm_triage.errors import SourceError
from vllm_triage.events import Assembler, Event
from vllm_triage.incidents import Collector, fold
from vllm_triage.lines import Origin, parse
from vllm_triage.matches import Match, Matcher, Unknown
from vllm_triage.model import Incident, Report, RunInfo, Source
from vllm_triage.redact import redact as redact_secrets
from vllm_triage.rules import Catalogue, load
from vllm_triage.run import Run, Runs

__version__ = "0.1.0"

Progress = Callable[[int], None]
Stop = Callable[[], bool]


@dataclass(slots=True)
class Read:
    """What one input gave: its record and, while it is read, its lines."""

    source: Source


class Scanner:
    """Reads lines as they come and tells the incidents.

        scanner = Scanner(source="pod.log")
        for line in stream:
            for incident in scanner.feed(line):
                ...
        report = scanner.report()

    `feed` and `close` yield each incident once, as soon as its event is complete; its
    role may still change while more lines come. `report()` gives the whole answer.

    Raises RuleError when a rule folder is wrong.
    """

    def __init__(
        self,
        source: str = "<stream>",
        *,
        rules: Sequence[Path | str] = (),
        redact: bool = True,
        catalogue: Catalogue | None = None,
    ) -> None:
        self.catalogue = load(rules) if catalogue is None else catalogue
        self._redact = redact_secrets if redact else str
        self._matcher = Matcher(self.catalogue)
        self._collector = Collector(self.catalogue)
        self._runs = Runs()
        self._position = 0
        self._number = 0
        self._told: set[str] = set()
        self._sources: list[Source] = []
        self._open(source)

    def _open(self, name: str) -> None:
        self._name = name
        self._number = 0
        self._bytes = 0
        self._unwrapper = Unwrapper()
        self._assembler = Assembler()
        self._run_at: dict[tuple[object, ...], Run] = {}

    def feed(self, line: str) -> Iterator[Incident]:
        """Take one line; yield the incidents that it completes for the first time."""
        before = self._position
        text = line.rstrip("\n")
        self._bytes += len(line)
        self.feed_numbered(self._number + 1, text)
        if self._position != before:
            yield from self._untold()

    def feed_numbered(self, number: int, text: str) -> None:
        """Take the physical line with this 1-based number."""
        self._number = number
        for item in self._unwrapper.feed(number, text):
            self._text(item.number, item.text, text if not item.unwrapped else item.text, item)

    def _text(self, number: int, text: str, raw: str, item: object) -> None:
        for line in parse(
            self._name,
            number,
            text,
            raw=raw,
            time=getattr(item, "time", None),
            level=getattr(item, "level", None),
            container=getattr(item, "container", None),
        ):
            self._runs.feed(line)
            for event in self._assembler.feed(line):
                self._event(event)

    def _event(self, event: Event) -> None:
        run = self._runs.current(event.first)
        match = self._matcher.find(event, run, self._position)
        if match is not None:
            self._position += 1
            self._collector.add(match)
        elif event.exception is not None and event.origin is Origin.LOG:
            self._position += 1
            self._collector.add(Unknown(event, run, None, self._position))

    def end_source(self, source: Source | None = None) -> None:
        """End the current input: flush what is open and keep its record."""
        for item in self._unwrapper.close():
            self._text(item.number, item.text, item.text, item)
        for event in self._assembler.close():
            self._event(event)
        record = source or Source(
            name=self._name, format=self._unwrapper.format, lines=self._number, bytes=self._bytes
        )
        self._sources.append(record)

    def _untold(self) -> Iterator[Incident]:
        incidents, _ = fold(self._collector, self.catalogue, self._redact)
        for incident in incidents:
            if incident.id not in self._told:
                self._told.add(incident.id)
                yield incident

    def close(self) -> Iterator[Incident]:
        """End the stream; yield the incidents that only now are complete."""
        self.end_source()
        yield from self._untold()

    def report(self) -> Report:
        """The answer so far."""
        incidents, root = fold(self._collector, self.catalogue, self._redact)
        return Report(
            tool_version=__version__,
            sources=tuple(self._sources),
            runs=_runs(self._runs.all, self._redact),
            root_cause=root,
            incidents=incidents,
        )
