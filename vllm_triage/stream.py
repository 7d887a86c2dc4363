"""The filter: every line out as it came in, incidents told beside them."""

import contextlib
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from vllm_triage.escapes import unescaped
from vllm_triage.json_records import rsyslog_message
from vllm_triage.model import Update
from vllm_triage.reports import ndjson
from vllm_triage.scanner import Scanner
from vllm_triage.shipped import SOURCE_KEYS, record_of, source_name, with_field
from vllm_triage.sources import MAX_LINE, Splitter, decoded

MAX_SOURCES = 1024
# A record over this size is handed on unread.
MAX_RECORD = MAX_LINE
_MAX_GONE = 16_384
# A filter makes no report: only what is still open needs its run.
_MAX_RUNS = 64
# Characters of unfinished messages in all sources.
_MAX_HELD = 67_108_864
_MAX_WAITING = 64
_MAX_MARKS = 64

Tell = Callable[[Update], None]


class Protocol(StrEnum):
    """What a shipper speaks."""

    LINES = "lines"
    """Text; every line comes out as it is."""
    JSON = "json"
    """A JSON record a line; the record that completes an incident comes out with one field more."""
    RSYSLOG = "rsyslog"
    """rsyslog's mmexternal: a message a line, text or `fulljson`, answered by one JSON object."""


def _nobody(update: Update) -> None:
    """Nobody listens."""


def _silent(text: str) -> None:
    """Nobody is warned."""


class _Source:
    """One process's stream: its scanner, and when it printed which line."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.waiting: deque[Update] = deque()
        self._marks: deque[_Mark] = deque(maxlen=_MAX_MARKS)
        self._told_until = 0

    def mark(self, now: float, width: float) -> None:
        """Note that the lines up to the last one were printed by now; `width` is the clock's grain."""
        last = self._marks[-1] if self._marks else None
        start = last.start if last is not None and now - last.start < width else now
        if last is not None and start == last.start:
            self._marks.pop()
        self._marks.append(_Mark(start, now, self.scanner.number))

    def quiet_since(self, before: float) -> int | None:
        """The last line printed before a time; None when that was told already."""
        since = next((mark.line for mark in reversed(self._marks) if mark.end <= before), 0)
        if since <= self._told_until:
            return None
        self._told_until = since
        return since


class _Mark(NamedTuple):
    start: float
    end: float
    line: int


class Filter:
    """Reads a shipper's stream and gives the bytes to hand on; it reads and writes nothing itself.

        filter = Filter(Protocol.JSON, tell=print)
        output.write(filter.feed(data, now=time.monotonic()))
        ...
        output.write(filter.close())

    `feed` gives every byte that it took, in order: of text at once, of records when their
    line has ended. Only a record that completes an incident gets the field `key`, with the
    incident as an object; of several, the next records of the same source get one each.
    All incidents go to `tell`, with their revisions; those that found no record to `missed`.

    `source_keys` are the fields whose values tell sources apart, `a.b` for nested ones;
    none: the usual ones of Kubernetes, Docker, journald and syslog. Each source is a run
    of its own, of at most 1024 at a time. Memory is bounded.

    When looking at a line fails, which is a fault of ours, `warn` is told once and the
    source begins anew; the log goes on.
    """

    def __init__(
        self,
        protocol: Protocol = Protocol.LINES,
        *,
        tell: Tell = _nobody,
        missed: Tell = _nobody,
        scanner: Scanner | None = None,
        key: str = "vllm_triage",
        source_keys: Sequence[str] = (),
        idle_s: float = 2.0,
        warn: Callable[[str], None] = _silent,
    ) -> None:
        self._protocol = protocol
        self._tell = tell
        self._missed = missed
        self._key = key
        self._source_keys = (tuple(source_keys),) if source_keys else SOURCE_KEYS
        self._idle_s = idle_s
        self._first = Scanner() if scanner is None else scanner
        self._warn = warn
        self._has_failed = False
        self._held = 0
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._gone: OrderedDict[str, int] = OrderedDict()
        self._splitter = Splitter()
        self._rest = bytearray()
        self._is_huge = False
        self._now = 0.0

    @property
    def passes_first(self) -> bool:
        """Whether what comes in goes out before it is read, and reading it gives nothing more."""
        return self._protocol is Protocol.LINES

    def pass_on(self, data: bytes) -> bytes:
        """What of `data` can be handed on before it is read: all of a text, nothing of records."""
        return data if self.passes_first else b""

    def feed(self, data: bytes, now: float) -> bytes:
        """Take what came at a monotonic time, in seconds; give what to hand on after `pass_on`."""
        self._now = now
        if self._protocol is Protocol.LINES:
            source = self._source("")
            for block in self._splitter.blocks(data):
                self._read_lines(source, block)
            source.mark(now, self._idle_s / 2)
            return b""
        *lines, rest = data.split(b"\n")
        out = [self._ended(line) for line in lines]
        self._rest += rest
        if self._protocol is Protocol.RSYSLOG:
            del self._rest[MAX_RECORD + 1 :]
        elif self._is_huge or len(self._rest) > MAX_RECORD:
            # No record of a log: it goes on as it comes.
            self._is_huge = True
            out.append(bytes(self._rest))
            self._rest.clear()
        return b"".join(out)

    def tick(self, now: float) -> None:
        """Tell what has been quiet for long enough."""
        self._now = now
        for source in self._sources.values():
            since = source.quiet_since(now - self._idle_s)
            if since is not None:
                self._ask(source, partial(Scanner.quiet, since=since))
                # A consequence that ended only now has waited for its cause as long.
                self._ask(source, partial(Scanner.quiet, since=since))

    def close(self) -> bytes:
        """End the stream: give a last line without LF, tell the rest."""
        out = b""
        if self._protocol is Protocol.LINES:
            for line in self._splitter.close():
                self._read(self._source(""), decoded(line))
        elif self._rest or self._is_huge:
            out = self._ended(b"")
            if self._protocol is Protocol.JSON:
                out = out.removesuffix(b"\n")
        while self._sources:
            self._end(self._sources.popitem(last=False)[1])
        return out

    def _ended(self, line: bytes) -> bytes:
        if self._rest:
            line = bytes(self._rest) + line
            self._rest.clear()
        if self._is_huge:
            self._is_huge = False
            return line + b"\n"
        if len(line) > MAX_RECORD:
            return b"{}\n" if self._protocol is Protocol.RSYSLOG else line + b"\n"
        record = record_of(line)
        if self._protocol is Protocol.RSYSLOG:
            return self._answer(line, record)
        if record is None:
            self._read(self._source(""), decoded(line))
            return line + b"\n"
        source = self._source(source_name(record, self._source_keys))
        self._read(source, decoded(line))
        update = source.waiting[0] if source.waiting and self._key not in record else None
        if update is None:
            return line + b"\n"
        source.waiting.popleft()
        return with_field(line, self._key, update) + b"\n"

    def _answer(self, line: bytes, record: Mapping[str, object] | None) -> bytes:
        message = None
        if record is not None:
            message = rsyslog_message(record) or record.get("msg", record.get("rawmsg"))
        name = source_name(record, self._source_keys) if record is not None else ""
        source = self._source(name)
        text = message if isinstance(message, str) else decoded(line)
        for row in unescaped(text) if "#012" in text else text.split("\n"):
            self._read(source, row)
        if not source.waiting:
            return b"{}\n"
        field = ndjson.line(source.waiting.popleft())
        return f'{{"$!":{{{json.dumps(self._key)}:{field}}}}}\n'.encode()

    def _source(self, name: str) -> _Source:
        source = self._sources.get(name)
        if source is not None:
            self._sources.move_to_end(name)
            return source
        scanner = self._scanner(name)
        source = self._sources[name] = _Source(scanner)
        if len(self._sources) > MAX_SOURCES:
            self._drop_oldest()
        return source

    def _drop_oldest(self) -> None:
        name, source = self._sources.popitem(last=False)
        self._end(source)
        self._gone[name] = source.scanner.number
        if len(self._gone) > _MAX_GONE:
            self._gone.popitem(last=False)

    def _scanner(self, name: str) -> Scanner:
        before = self._gone.pop(name, 0)
        if not (name or self._sources or before):
            return self._first
        scanner = Scanner(name or "<stdin>", like=self._first, max_runs=_MAX_RUNS)
        # A source that comes back goes on counting: no incident gets the id of an older one.
        scanner.number = before
        return scanner

    def _read(self, source: _Source, text: str) -> None:
        self._ask(source, partial(Scanner.feed, line=text))
        source.mark(self._now, self._idle_s / 2)
        while self._held > _MAX_HELD and len(self._sources) > 1:
            self._drop_oldest()

    def _read_lines(self, source: _Source, lines: bytes) -> None:
        while True:
            before = source.scanner.number
            if self._ask(source, partial(Scanner.feed_lines, data=lines)):
                return
            # What follows the line that failed is for the scanner that begins anew.
            source.scanner.number = max(before + 1, source.scanner.number)
            done = source.scanner.number - before
            rest = lines.split(b"\n", done)[done:]
            if not rest:
                return
            lines = rest[0]

    def _ask(self, source: _Source, question: Callable[[Scanner], Iterable[Update]]) -> bool:
        """Have a scanner answer; False when it failed and another has taken its place."""
        before = source.scanner.held
        try:
            self._told(source, question(source.scanner))
        except Exception as error:  # noqa: BLE001
            # The log goes on whatever becomes of its analysis.
            if not self._has_failed:
                self._has_failed = True
                self._warn(
                    f"a line could not be analysed ({type(error).__name__}: {error}); the log goes on. "
                    "Please report this line to the authors of vllm-triage"
                )
            with contextlib.suppress(Exception):
                # What the lines before the one that failed have told.
                self._told(source, source.scanner.quiet(0))
            number = source.scanner.number
            source.scanner = Scanner(source.scanner.name, like=self._first, max_runs=_MAX_RUNS)
            source.scanner.number = number
            self._held += source.scanner.held - before
            return False
        self._held += source.scanner.held - before
        return True

    def _told(self, source: _Source, updates: Iterable[Update]) -> None:
        for update in updates:
            self._tell(update)
            if self._protocol is Protocol.LINES:
                continue
            source.waiting.append(update)
            if len(source.waiting) > _MAX_WAITING:
                self._missed(source.waiting.popleft())

    def _end(self, source: _Source) -> None:
        self._ask(source, Scanner.close)
        for update in source.waiting:
            self._missed(update)
