"""Envelopes: what containers, loggers and terminals put around printed lines, taken off."""

import copy
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from vllm_triage import json_exports, json_records
from vllm_triage.csv_rows import Row, Table
from vllm_triage.escapes import as_printed, is_clean, unescaped, without_escapes
from vllm_triage.journal import Entry, Export
from vllm_triage.margins import Margin
from vllm_triage.wrappings import Text, Wrappings

_MAX_PARTIAL = 1_048_576
_MAX_PARTIALS = 64
_MAX_PARTS = 2_000
_MAX_DEPTH = 4


_DOCKER_SPLIT = 16_384


def _rows_of(name: str, text: str) -> list[str] | None:
    """The rows of a message that an envelope holds as one; None where it is one row."""
    if name == "syslog" and "#012" in text:
        return unescaped(text)
    if name in ("json", "logfmt", "yaml") and "\n" in text:
        return text.split("\n")[:_MAX_PARTS]
    return None


def _is_bare(text: str) -> bool:
    """Tell that a text begins with no envelope; sure where it says so."""
    first = text[:1]
    if first == " ":
        bare = "|" not in text[:10] and '": "' not in text[:60]
    elif "A" <= first <= "Z":
        bare = text[3:4] != " " and "[resource" not in text[:60]
    else:
        bare = first == "("
    return bare and is_clean(text)


_Partial = tuple[Text, list[str], int]


class Unwrapper:
    """Takes the envelopes off one input's physical lines; keeps partial lines within bounds."""

    def __init__(self, message_keys: tuple[str, ...] = ()) -> None:
        self._message_keys = message_keys or json_records.MESSAGE_KEYS
        self._seen: Counter[str] = Counter()
        self.bare = 0
        """How many lines more, in which nothing can be an envelope, are to be counted."""
        self._partial: OrderedDict[tuple[str | None, str | None], _Partial] = OrderedDict()
        self._wrappings = Wrappings()
        self._has_newlines = False
        self._margin = Margin()
        self._export: Export | None = None
        self._table: Table | None = None
        self.is_plain = False
        """Whether nothing stands before the lines, as far as is known."""

    @property
    def format(self) -> str:
        """The envelope of most lines."""
        return self.counts.most_common(1)[0][0] if self.counts else "plain"

    @property
    def state(self) -> tuple[object, ...] | None:
        """What it has learnt; the same state reads the same line the same way.

        None while what the next line is depends on lines before it.
        """
        wrappings = self._wrappings.state
        if self._partial or self._export or self._table or wrappings is None:
            return None
        return (*self._margin.state, self._has_newlines, *wrappings)

    def copy(self) -> "Unwrapper":
        """One that has learnt the same and has counted nothing."""
        other = copy.copy(self)
        other._seen = Counter()
        other.bare = 0
        other._partial = self._partial.copy()
        other._wrappings = self._wrappings.copy()
        other._margin = copy.copy(self._margin)
        other._table = copy.deepcopy(self._table)
        return other

    @property
    def counts(self) -> Counter[str]:
        """How many lines had which envelope."""
        if self.bare:
            self._seen["plain"] += self.bare
            self.bare = 0
        return self._seen

    def feed(self, number: int, text: str) -> Iterable[Text]:
        """Take a physical line; give the printed lines that it completes."""
        if self.is_plain:
            bare = text.rstrip("\r") if text.endswith("\r") else text
            if _is_bare(bare):
                self.bare += 1
                return (Text(number, bare),)
        return self._feed(number, text)

    def _feed(self, number: int, text: str) -> Iterator[Text]:
        if self._export is not None or Export.begins(text):
            self._export = self._export or Export()
            self.is_plain = False
            entries = self._export.take(number, text)
            if entries is not None:
                yield from self._exported(entries)
                return
        if text.endswith("\r"):
            text = text.rstrip("\r")
        text = as_printed(text)
        if self._table is not None or "," in text:
            rows = self._tabled(number, text)
            if rows is not None:
                for row in rows:
                    yield from self._row(row)
                return
        if "\r" in text:
            parts = [part for part in text.split("\r") if part][-64:]
            for part in parts:
                yield from self._unwrap(Text(number, part), 0)
            return
        yield from self._unwrap(Text(number, text), 0)

    def close(self) -> Iterator[Text]:
        """Give what partial lines hold."""
        if self._export is not None:
            yield from self._exported(self._export.close())
        for row in self._table.close() if self._table is not None else []:
            yield from self._row(row)
        while self._partial:
            _, (first, parts, _) = self._partial.popitem(last=False)
            yield from self._unwrap(
                first._replace(text="".join(parts), unwrapped=True), _MAX_DEPTH
            )

    def _exported(self, entries: list[Entry]) -> Iterator[Text]:
        for number, fields in entries:
            message = without_escapes(fields["MESSAGE"])
            yield from self._record(Text(number, message), {**fields, "MESSAGE": message}, 0)

    def _tabled(self, number: int, text: str) -> list[Row] | None:
        """The rows that a line of a table completes; None of any other line."""
        if self._table is None or not self._table.is_open:
            begun = Table.begins(text)
            if begun is not None:
                self._table, self.is_plain = begun, False
                return [Row(number, "", None, None)]
        return None if self._table is None else self._table.take(number, text)

    def _row(self, row: Row) -> Iterator[Text]:
        self._seen["csv"] += 1
        item = Text(row.number, row.text, time=row.time, container=row.container, unwrapped=True)
        yield from self._unwrap(item, 1)

    def _unwrap(self, item: Text, depth: int, *, has_margin: bool = True) -> Iterator[Text]:
        text = item.text
        first = text[:1]
        if not first or depth > _MAX_DEPTH:
            yield item
            return
        if first in "{[" and (end := text.rstrip()).endswith(("}", "},", "}]")):
            record = json_records.parse(end.removeprefix("[").removesuffix(",").removesuffix("]"))
            if record is not None:
                yield from self._record(item, record, depth)
                return
            if first == "[" and depth == 0:
                value = json_records.value(end)
                found = self._exports(item, value)
                if found or json_records.is_talk(value):
                    yield from found or [item._replace(text="")]
                    return
        inner = self._wrappings.off(item)
        if inner is None and has_margin:
            # Once only: what follows a margin may look like one.
            shown = self._margin.without(text, is_whole=depth == 0)
            if shown is not text:
                inner = "margin", item._replace(text=shown)
        if inner is None:
            self._seen["plain"] += depth == 0
            self.is_plain = self.state is not None and self._margin.is_settled
            yield item
            return
        name, wrapped = inner
        self._seen[name] += 1
        if name == "cri":
            yield from self._join(
                wrapped, is_partial=text[len(wrapped.time or "") + 8] == "P", depth=depth
            )
            return
        rows = _rows_of(name, wrapped.text)
        if rows is not None:
            for row in rows:
                yield from self._unwrap(wrapped._replace(text=row), depth + 1)
            return
        yield from self._unwrap(wrapped, depth + 1, has_margin=has_margin and name != "margin")

    def _join(self, item: Text, *, is_partial: bool, depth: int) -> Iterator[Text]:
        """Put the pieces of a line together that a container runtime cut; the end of a huge one is lost."""
        key = item.container, item.stream
        held = self._partial.pop(key, None)
        if held is None and not is_partial:
            yield from self._unwrap(item, depth + 1)
            return
        first, parts, size = held or (item, [], 0)
        if size < _MAX_PARTIAL:
            parts.append(item.text)
        size += len(item.text)
        if is_partial:
            self._partial[key] = (first, parts, size)
            if len(self._partial) > _MAX_PARTIALS:
                _, (first, parts, _) = self._partial.popitem(last=False)
                yield from self._unwrap(first._replace(text="".join(parts)), depth + 1)
            return
        yield from self._unwrap(first._replace(text="".join(parts), unwrapped=True), depth + 1)

    def _is_cut(self, message: str) -> bool:
        """Docker cuts a long line in records; only the last ends with a newline, unless a shipper took all."""
        if message.endswith("\n"):
            self._has_newlines = True
            return False
        return self._has_newlines or len(message) >= _DOCKER_SPLIT

    def _exports(self, item: Text, value: object) -> list[Text]:
        """The printed lines of all records in a JSON text; nothing where it holds none."""
        return [
            text
            for record in json_exports.records(value)
            for text in self._record(item, record, _MAX_DEPTH - 2)
        ]

    def _record(self, item: Text, record: Mapping[str, object], depth: int) -> Iterator[Text]:
        inner = record.get("_source")
        record = inner if isinstance(inner, dict) else record
        if json_records.is_access(record) or json_records.is_ours(record):
            yield item._replace(text="")
            return
        name, message, traces = json_records.message_of(record, self._message_keys)
        if message is not None and "rawmsg" in record:
            message = json_records.rsyslog_message(record) or message
        if message is None and not traces:
            found = self._exports(item, record) if depth < _MAX_DEPTH else []
            if found:
                yield from found
                return
            self._seen["plain"] += depth == 0
            yield item
            return
        self._seen[name] += 1
        level = json_records.level_of(record) if name == "ndjson" else None
        base = item._replace(
            time=json_records.time_of(record) or item.time,
            stream=json_records.first_of(record, ("stream",)) or item.stream,
            container=json_records.container_of(record) or item.container,
            level=level or item.level,
            unwrapped=True,
        )
        if name == "docker" and message is not None and self._is_cut(message):
            yield from self._join(base._replace(text=message), is_partial=True, depth=depth)
            return
        if (
            name == "docker"
            and message is not None
            and (base.container, base.stream) in self._partial
        ):
            yield from self._join(
                base._replace(text=message.rstrip("\n")), is_partial=False, depth=depth
            )
            return
        process, pid = record.get("processName"), record.get("process")
        prefix = (
            f"({process} pid={pid}) " if isinstance(process, str) and isinstance(pid, int) else ""
        )
        for block in ([message] if message is not None else []) + traces:
            rows = block.rstrip("\n").split("\n")[:_MAX_PARTS]
            for row in rows:
                yield from self._unwrap(base._replace(text=prefix + row.rstrip("\r")), depth + 1)
