"""The filter: every line out as it came in, incidents told beside them."""

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from vllm_triage.envelopes import lookup, unescaped
from vllm_triage.model import Update
from vllm_triage.pipeline import Scanner
from vllm_triage.reports import ndjson
from vllm_triage.sources import MAX_LINE, Splitter, decoded

MAX_SOURCES = 1024
MAX_RECORD = 16 * MAX_LINE
_MAX_WAITING = 64
_MAX_MARKS = 64

Tell = Callable[[Update], None]

# What names the process that printed a record, as the usual shippers write it.
SOURCE_KEYS: tuple[tuple[str, ...], ...] = (
    ("kubernetes.namespace_name", "kubernetes.pod_name", "kubernetes.container_name"),
    ("kubernetes.pod_namespace", "kubernetes.pod_name", "kubernetes.container_name"),
    ("kubernetes.namespace", "kubernetes.pod.name", "kubernetes.container.name"),
    ("resource.k8s.namespace.name", "resource.k8s.pod.name", "resource.k8s.container.name"),
    ("k8s.namespace.name", "k8s.pod.name", "k8s.container.name"),
    ("namespace", "pod", "container"),
    ("pod_name", "container_name"),
    ("container_name",),
    ("CONTAINER_NAME",),
    ("container_id",),
    ("_HOSTNAME", "_SYSTEMD_UNIT"),
    ("_SYSTEMD_UNIT",),
    ("hostname", "programname"),
    ("host", "programname"),
    ("hostname",),
    ("host",),
)


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
    ) -> None:
        self._protocol = protocol
        self._tell = tell
        self._missed = missed
        self._key = key
        self._source_keys = (tuple(source_keys),) if source_keys else SOURCE_KEYS
        self._idle_s = idle_s
        self._first = Scanner() if scanner is None else scanner
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._splitter = Splitter()
        self._rest = bytearray()
        self._is_huge = False
        self._now = 0.0

    def pass_on(self, data: bytes) -> bytes:
        """What of `data` can be handed on before it is read: all of a text, nothing of records."""
        return data if self._protocol is Protocol.LINES else b""

    def feed(self, data: bytes, now: float) -> bytes:
        """Take what came at a monotonic time, in seconds; give what to hand on after `pass_on`."""
        self._now = now
        if self._protocol is Protocol.LINES:
            for line in self._splitter.feed(data):
                self._read(self._source(""), decoded(line))
            return b""
        *lines, rest = data.split(b"\n")
        out = [self._ended(line) for line in lines]
        self._rest += rest
        if self._protocol is Protocol.RSYSLOG:
            del self._rest[MAX_RECORD:]
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
                self._told(source, source.scanner.quiet(since))

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
        record = _record(line)
        if self._protocol is Protocol.RSYSLOG:
            return self._answer(line, record)
        if record is None:
            self._read(self._source(""), decoded(line))
            return line + b"\n"
        source = self._source(self._name(record))
        self._read(source, decoded(line))
        update = source.waiting[0] if source.waiting and self._key not in record else None
        if update is None:
            return line + b"\n"
        source.waiting.popleft()
        return _with_field(line, self._key, update) + b"\n"

    def _answer(self, line: bytes, record: Mapping[str, object] | None) -> bytes:
        message = record.get("msg", record.get("rawmsg")) if record is not None else None
        name = self._name(record) if record is not None else ""
        source = self._source(name)
        text = message if isinstance(message, str) else decoded(line)
        for row in unescaped(text) if "#012" in text else text.split("\n"):
            self._read(source, row)
        if not source.waiting:
            return b"{}\n"
        field = ndjson.line(source.waiting.popleft())
        return f'{{"$!":{{{json.dumps(self._key)}:{field}}}}}\n'.encode()

    def _name(self, record: Mapping[str, object]) -> str:
        for keys in self._source_keys:
            values = [value for key in keys if isinstance(value := lookup(record, key), str)]
            if values:
                return "/".join(values)[:256]
        return ""

    def _source(self, name: str) -> _Source:
        source = self._sources.get(name)
        if source is None:
            scanner = self._first
            if name or self._sources:
                scanner = Scanner(name or "<stdin>", like=self._first)
            source = self._sources[name] = _Source(scanner)
            if len(self._sources) > MAX_SOURCES:
                self._end(self._sources.popitem(last=False)[1])
        else:
            self._sources.move_to_end(name)
        return source

    def _read(self, source: _Source, text: str) -> None:
        self._told(source, source.scanner.feed(text))
        source.mark(self._now, self._idle_s / 2)

    def _told(self, source: _Source, updates: Iterable[Update]) -> None:
        for update in updates:
            self._tell(update)
            if self._protocol is Protocol.LINES:
                continue
            source.waiting.append(update)
            if len(source.waiting) > _MAX_WAITING:
                self._missed(source.waiting.popleft())

    def _end(self, source: _Source) -> None:
        self._told(source, source.scanner.close())
        for update in source.waiting:
            self._missed(update)


def _record(line: bytes) -> Mapping[str, object] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _with_field(line: bytes, key: str, update: Update) -> bytes:
    """The record as it is written, with one field more."""
    end = line.rindex(b"}")
    body = line[:end]
    comma = b"" if body.rstrip().endswith(b"{") else b","
    return b"%b%b%b:%b%b" % (
        body,
        comma,
        json.dumps(key).encode(),
        ndjson.line(update).encode(),
        line[end:],
    )
