"""The scanner: the road of the data, line by line."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from vllm_triage.assembler import Assembler
from vllm_triage.blocks import Blocks
from vllm_triage.catalogue import Catalogue, load
from vllm_triage.collector import Collector
from vllm_triage.envelopes import Unwrapper
from vllm_triage.events import Event
from vllm_triage.evidence import Evidence
from vllm_triage.express import Express
from vllm_triage.incidents import fold
from vllm_triage.kinds import Level, Severity
from vllm_triage.learning import Learner
from vllm_triage.leaving import leaving
from vllm_triage.lines import Key, Line, Origin, parse
from vllm_triage.matches import Matcher, Unknown
from vllm_triage.model import Report, Source, Update
from vllm_triage.paths import printable
from vllm_triage.phases import phase_of
from vllm_triage.quiet import Quiet
from vllm_triage.run import Run
from vllm_triage.run_infos import run_infos
from vllm_triage.runs import Runs
from vllm_triage.sieve import Sieve
from vllm_triage.sources import decoded
from vllm_triage.tracebacks import Part
from vllm_triage.updates import Teller
from vllm_triage.versions import __version__
from vllm_triage.wrappings import Text

Progress = Callable[[int], None]


class Input(Protocol):
    """A whole input, and how much of it has been read."""

    name: str
    lines: int
    bytes: int
    truncated_lines: int
    problem: str | None

    def deliver(self, scanner: "Scanner", progress: Progress | None = None) -> None:
        """Have all lines read."""


class Scanner:
    """Reads lines as they come and tells the incidents.

        scanner = Scanner(source="pod.log")
        for line in stream:
            for incident in scanner.feed(line):
                ...
        report = scanner.report()

    `feed` gives an incident when the exception that states it has ended, and again, with the
    same `id` and the next `revision`, when more lines say something else of it: its cause,
    its severity. A consequence waits for its cause, and what only adds to an incident for the
    next `quiet`, for 1000 lines at most. `quiet` gives that and what processes that fell
    silent have left open, `close` the rest. `report()` gives the whole answer. `message_keys` are the keys under which JSON
    records hold the printed text, `a.b` for nested ones; without any the usual ones are tried.
    A scanner `like` another has its rules and settings, and shares what they cost. Of very
    many server runs the report has the last `max_runs`.
    Memory is bounded: what comes after the limits is counted, not kept.

    Raises RuleError when a rule folder is wrong.
    """

    catalogue: Catalogue
    _redact: Callable[[str], str]
    _matcher: Matcher
    _learner: Learner

    def __init__(
        self,
        source: str = "<stream>",
        *,
        rules: Sequence[Path | str] = (),
        redact: bool = True,
        catalogue: Catalogue | None = None,
        message_keys: Sequence[str] = (),
        like: "Scanner | None" = None,
        max_runs: int = 4096,
    ) -> None:
        self._message_keys = tuple(message_keys)
        if like is not None:
            self.catalogue, self._redact = like.catalogue, like._redact
            self._message_keys = like._message_keys
            self._matcher = like._matcher.another()
            self._learner = like._learner
        else:
            self.catalogue = load(rules) if catalogue is None else catalogue
            self._redact = leaving if redact else str
            self._matcher = Matcher(self.catalogue)
            self._learner = Learner(self.catalogue)
        self._collector = Collector(self.catalogue)
        self._runs = Runs(max_runs)
        self._position = 0
        self._number = 0
        self._teller = Teller()
        self._changes = 0
        self._fatal: set[int] = set()
        self._is_closed = False
        self._has_context = False
        self._last_news: list[Update] = []
        self.sources: list[Source] = []
        self.forgets_past_runs: bool = like is not None and like.forgets_past_runs
        """Whether a run that got ready closes the incidents of those before it, as a stream without end wants it."""
        self._open(source)

    def _open(self, name: str) -> None:
        self._name = name
        self._number = 0
        self._bytes = 0
        self._unwrapper = Unwrapper(self._message_keys)
        self._assembler = Assembler()
        self._express = Express(name, self._unwrapper, self._assembler, self._runs)
        self._quiet = Quiet(name, self._unwrapper, self._assembler, self._matcher, self._runs)
        sieve = Sieve(self._learner, self._unwrapper)
        self._blocks = Blocks(
            name, self._unwrapper, sieve, self._quiet, self._express,
            read=self._read, passed=self._pass,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The current source's name."""
        return self._name

    @property
    def number(self) -> int:
        """The number of the last physical line."""
        return self._number

    @number.setter
    def number(self, number: int) -> None:
        self._number = number

    @property
    def held(self) -> int:
        """How many characters of unfinished messages it keeps."""
        return self._assembler.held

    def feed(self, line: str) -> Iterator[Update]:
        """Take one line (or several, with newlines); give the incidents that it completes or changes."""
        self._bytes += len(line)
        for text in line.removesuffix("\n").split("\n"):
            self.feed_numbered(self._number + 1, printable(text))
        return self._news() if self._has_news() else iter(())

    def _has_news(self, quiet: int = 0) -> bool:
        return (
            self._collector.changes != self._changes
            or bool(self._last_news)
            or self._teller.is_due(self._number, quiet)
        )

    def quiet(self, since: int) -> Iterator[Update]:
        """Give the incidents of processes that printed nothing after line `since`.

        What they said last is taken as ended; a traceback that has not come to its exception is not.
        """
        for event in self._assembler.quiet(since):
            self._event(event)
            self._collector.settle(event.first.key)
        return self._news(quiet=since) if self._has_news(since) else iter(())

    def feed_numbered(self, number: int, text: str) -> None:
        """Take the physical line with this 1-based number."""
        if not text.isascii():
            self._long_road(number, text)
            return
        raw = text.encode("ascii")
        if self._express.take(number, iter(((number, raw),))) is None:
            self._number = number
        else:
            self._read(number, raw)

    def feed_lines(self, data: bytes) -> Iterator[Update]:
        """Take whole lines as they came, without the last line end; what `feed` gives, faster."""
        self._bytes += len(data) + 1
        self.feed_block(self._number + 1, data)
        return self._news() if self._has_news() else iter(())

    def feed_block(self, first: int, data: bytes) -> None:
        """Take whole lines, without the last line end, of which the first has this number.

        Of blank lines in a row only the first is read, as a run of them says no more.
        """
        self._blocks.feed(first, data)

    @property
    def blocks(self) -> Blocks:
        """The road of many lines at once."""
        return self._blocks

    def _read(self, number: int, raw: bytes) -> None:
        said = self._express.said(number, raw)
        if said is None:
            self._long_road(number, decoded(raw))
            return
        self._number = number
        line, part, trail, run, is_idle = said
        key = trail.key
        self._quiet.speaks(key)
        if line is None:
            self._say(self._assembler.mark(key, number, part), key)
        else:
            self._say(self._assembler.feed(line), key)
            if part is Part.HEADER:
                self._express.begin(trail, run)
        if is_idle:
            self._runs.go_on(run, 1, trail.prefix.time, trail.prefix.time)
        elif line is not None:
            self._follow_run(line)

    def _long_road(self, number: int, text: str) -> None:
        self._number = number
        for item in self._unwrapper.feed(number, text):
            self._text(item.number, item.text, text if not item.unwrapped else item.text, item)

    def _pass(self, number: int, answered: Iterable[Run]) -> None:
        """Note that all lines up to this one have been taken, and which runs answered requests in them."""
        self._number = number
        for run in answered:
            self._go_on(run)

    def _go_on(self, run: Run) -> None:
        """A run went on: what was told of it as fatal was not."""
        if run.index in self._fatal:
            self._fatal.discard(run.index)
            self._collector.changes += 1

    def _text(self, number: int, text: str, raw: str, item: Text) -> None:
        for line in parse(
            self._name,
            number,
            text,
            raw=raw,
            time=item.time,
            level=item.level,
            container=item.container,
        ):
            run = self._runs.current(line)
            if line.origin is Origin.LOG:
                self._quiet.speaks(line.key)
                if line.level not in (Level.INFO, Level.DEBUG):
                    line = line._replace(run=run.index, phase=run.phase)
            elif line.origin is Origin.STATISTICS:
                line = line._replace(run=run.index)
            self._say(self._assembler.feed(line), line.key)
            self._follow_run(line)

    def _say(self, done: Iterable[Event], key: Key) -> None:
        """Take what a line of a process has completed."""
        # It was said before the line: it belongs to the run as it was then.
        for event in done:
            self._event(event)
        if self._collector.has_open and not self._assembler.is_open(key):
            self._collector.settle(key)

    def _follow_run(self, line: Line) -> None:
        number = line.number
        run = self._runs.feed(line)
        if self.forgets_past_runs and number == run.last_ready:
            self.forget(run)
        elif self._has_context and run.lines == 1:
            self._end_context()
        if number in (run.last_answer, run.last_ready):
            self._go_on(run)

    def _event(self, event: Event) -> None:
        run = self._runs.of(event.first)
        match = self._matcher.find(event, run, self._position)
        if match is not None:
            self._position += 1
            self._collector.add(match)
        elif event.exception is not None and event.origin is Origin.LOG:
            self._position += 1
            phase = phase_of(event.frames, event.first.place) or event.first.phase or run.phase
            self._collector.add(Unknown(event, run, phase, self._position))

    def end_source(self, source: Source | None = None) -> None:
        """End the current input: flush what is open and keep its record."""
        for item in self._unwrapper.close():
            self._text(item.number, item.text, item.text, item)
        for event in self._assembler.close():
            self._event(event)
        record = source or Source(
            name=self._name, format=self._unwrapper.format, lines=self._number, bytes=self._bytes
        )
        self.sources.append(record)

    def forget(self, run: Run | None = None) -> None:
        """Close all incidents so far, or those of runs before this one: what comes is a new one."""
        # What waits for its cause has waited in vain; of many lines at once it has yet to be noted.
        self._last_news = list(self._news())
        self._last_news = list(self._news(quiet=self._number))
        self._collector.forget(run)
        self._fatal = {index for index in self._fatal if run is not None and index >= run.index}
        groups = self._collector.groups(only_ended=True)
        self._teller.forget(fold(groups, self.catalogue, self._redact)[0])

    def end_past(self) -> None:
        """Close all incidents so far; a crash that may still go on explains what comes, and is told then."""
        open_ones = [
            group
            for group in self._collector.groups(only_ended=True)
            if group.severity is Severity.FATAL and self._runs.is_last(group.run)
        ]
        self._collector.forget(context=open_ones)
        self._has_context = bool(open_ones)
        self._fatal = set()
        self._teller.forget(())
        self._teller.silence(fold(self._collector.groups(), self.catalogue, self._redact)[0])

    def _end_context(self) -> None:
        """The next run has begun: what the one before did explains nothing any more."""
        self._has_context = False
        self._collector.forget_context()
        groups = self._collector.groups(only_ended=True)
        self._teller.forget(fold(groups, self.catalogue, self._redact)[0])

    def _news(self, *, quiet: int = 0, is_end: bool = False) -> Iterator[Update]:
        self._changes = self._collector.changes
        groups = self._collector.groups(only_ended=not is_end)
        self._fatal = {group.run.index for group in groups if group.severity is Severity.FATAL}
        incidents, root = fold(groups, self.catalogue, self._redact)
        news = self._teller.news(incidents, root, line=self._number, quiet=quiet, is_end=is_end)
        before, self._last_news = self._last_news, []
        return iter([*before, *news])

    def close(self) -> Iterator[Update]:
        """End the stream; give the incidents that only now are complete, and the last counts."""
        if self._is_closed:
            return iter(())
        self._is_closed = True
        self.end_source()
        return self._news(is_end=True)

    def judge(self, evidence: Evidence) -> None:
        """Take what artefacts show beside all that was read, as the last thing before the report."""
        if evidence.is_empty:
            return
        run = self._runs.latest(evidence.first)
        for one in self._runs.all:
            evidence.tell(one)
        for match in evidence.matches(run, self._position):
            self._position += 1
            self._collector.add(match)
        problems = evidence.unfinished()
        self.sources = [
            one.model_copy(update={"problem": one.problem or problems.get(one.name)})
            for one in self.sources
        ]

    def report(self, *, apply_steps: Collection[int] = ()) -> Report:
        """The answer so far; the suggested commands have the changes of these steps, else of the first."""
        incidents, root = fold(self._collector.groups(), self.catalogue, self._redact, apply_steps)
        return Report(
            tool_version=__version__,
            sources=tuple(map(self._shown, self.sources)),
            runs=run_infos(self._runs.all, self._redact),
            root_cause=root,
            incidents=incidents,
        )

    def _shown(self, source: Source) -> Source:
        problem = self._redact(source.problem) if source.problem else None
        return source.model_copy(update={"name": self._redact(source.name), "problem": problem})

    def read(
        self, reader: "Input", progress: Progress | None = None, *, can_stop: bool = False
    ) -> bool:
        """Take a whole input; False when a KeyboardInterrupt ended it early, where that is allowed."""
        self._open(reader.name)
        is_complete = True
        try:
            reader.deliver(self, progress)
        except KeyboardInterrupt:
            if not can_stop:
                raise
            is_complete = False
        self.end_source(
            Source(
                name=reader.name,
                format=self._unwrapper.format,
                lines=reader.lines,
                bytes=reader.bytes,
                truncated_lines=reader.truncated_lines,
                problem=reader.problem,
            )
        )
        return is_complete
