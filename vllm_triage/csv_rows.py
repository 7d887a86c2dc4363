"""CSV: logs as CloudWatch, Datadog, Kibana, Azure and Grafana save what a search found."""

from typing import NamedTuple

from vllm_triage.expressions import expression

_MESSAGES = frozenset(
    ("message", "content", "logentry", "logmessage", "log", "line", "msg", "_raw", "raw", "body", "textpayload")
)  # fmt: skip
_TIMES = frozenset(
    ("timestamp", "date", "time", "timegenerated", "_time", "ts", "eventtime", "datetime")
)
_CONTAINERS = ("pod", "podname", "pod_name", "container", "containername", "logstream", "logstreamname", "host", "hostname", "computer", "source")  # fmt: skip
_HEADER = expression(r"""\ufeff?["@A-Za-z_][\w"@. \[\],-]{4,600}""")
_MAX_COLUMNS = 64
_MAX_ROWS = 2_000
_MAX_SIZE = 1_048_576


class Row(NamedTuple):
    """A printed line, the line of the file that it stands on, its time and what names its process."""

    number: int
    text: str
    time: str | None
    container: str | None


class Table:
    """Reads a table line by line; keeps one row, of at most 1 MiB."""

    def __init__(self, names: list[str]) -> None:
        self._width = len(names)
        self._message = next(place for place, name in enumerate(names) if name in _MESSAGES)
        self._time = next(place for place, name in enumerate(names) if name in _TIMES)
        self._container = next((names.index(name) for name in _CONTAINERS if name in names), None)
        self._rows: list[str] = []
        self._number = self._size = 0
        self._is_quoted = False

    @property
    def is_open(self) -> bool:
        """Whether a row goes on with the next line."""
        return bool(self._rows)

    @staticmethod
    def begins(text: str) -> "Table | None":
        """The table whose columns a line names: one of messages and one of their times."""
        if _HEADER.fullmatch(text) is None:
            return None
        names = [_plain(name) for name in _fields(text.lstrip("\ufeff"))]
        if len(names) > _MAX_COLUMNS or not _MESSAGES.intersection(names):
            return None
        return Table(names) if _TIMES.intersection(names) and all(names) else None

    def take(self, number: int, text: str) -> list[Row] | None:
        """Take a line; give the printed lines that it completes, None when it is of no row."""
        if not self._rows:
            if "," not in text:
                return None
            self._number, self._size, self._is_quoted = number, 0, False
        self._rows.append(text)
        self._size += len(text)
        if text.count('"') % 2:
            self._is_quoted = not self._is_quoted
        if self._is_quoted and len(self._rows) < _MAX_ROWS and self._size < _MAX_SIZE:
            return []
        rows, self._rows = self._rows, []
        fields = _fields("\n".join(rows))
        if len(fields) == self._width:
            return self._printed(fields)
        return None if len(rows) == 1 else self._plain_rows(rows)

    def close(self) -> list[Row]:
        """End the table; give the lines of a row that does not end."""
        rows, self._rows = self._rows, []
        return self._plain_rows(rows)

    def _plain_rows(self, rows: list[str]) -> list[Row]:
        return [Row(self._number + at, row, None, None) for at, row in enumerate(rows)]

    def _printed(self, fields: list[str]) -> list[Row]:
        name = fields[self._container][:64] if self._container is not None else None
        time = fields[self._time][:64]
        rows = fields[self._message].split("\n")
        return [
            Row(self._number + at, row.rstrip("\r"), time, name or None)
            for at, row in enumerate(rows)
        ]


def _fields(text: str) -> list[str]:
    import csv

    try:
        return next(csv.reader([text.replace("\0", "")]), [])
    except csv.Error:
        return []


def _plain(name: str) -> str:
    """`@timestamp` and `TimeGenerated [UTC]` as words; nothing of what is no column's name."""
    name = name.partition("[")[0].strip().lstrip("@").casefold()
    return name if name.replace("_", "").replace(".", "").replace(" ", "").isalnum() else ""
