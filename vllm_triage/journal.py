"""The journal's export format: an entry is a block of `NAME=value` lines that a blank line ends.

A value with line ends or control characters, such as colours, is written as the name alone, LF,
the value's length in 8 bytes, the value, LF (https://systemd.io/JOURNAL_EXPORT_FORMATS/).
"""

from collections.abc import Mapping
from typing import NamedTuple

from vllm_triage.expressions import expression

_MAX_ROWS = 2_000
_MAX_SIZE = 1_048_576
_START = "__CURSOR="
_MESSAGE = "MESSAGE"
_KEPT = frozenset(
    (
        _MESSAGE,
        "__REALTIME_TIMESTAMP",
        "CONTAINER_NAME",
        "_SYSTEMD_UNIT",
        "SYSLOG_IDENTIFIER",
        "_HOSTNAME",
    )
)
_NAME = expression(r"[A-Z_][A-Z0-9_]{0,63}")
# A message may have rows such as NCCL_DEBUG=INFO: after one only the journal's own names are names.
_OWN = expression(
    r"(?:_[A-Z0-9_]{1,63}|(?:SYSLOG|CODE|CONTAINER|IMAGE|JOB)_[A-Z0-9_]{1,56}"
    r"|PRIORITY|MESSAGE_ID|TID|UNIT|USER_UNIT|INVOCATION_ID)(?:=|$)"
)


class Entry(NamedTuple):
    """An entry's message, and the fields that say when and by whom it was printed."""

    number: int
    """The line that names the message."""
    fields: Mapping[str, str]


class Export:
    """Reads `journalctl -o export` line by line; keeps one entry, of at most 1 MiB."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}
        self._number = 0
        self._name = ""
        self._rows: list[str] | None = None
        self._size = 0
        self._is_open = False
        self._is_cut = False

    @staticmethod
    def begins(text: str) -> bool:
        """Tell whether a line begins an entry."""
        return text.startswith(_START)

    def take(self, number: int, text: str) -> list[Entry] | None:
        """Take a line without NUL; give the entries that it completes, None when it is of no entry."""
        if text.startswith(_START):
            done = self.close()
            self._is_open = True
            return done
        if not self._is_open and not self._is_cut:
            return None
        if self._rows is not None and (
            not (self._is_cut or any(self._rows)) or (text and not self._is_field(text))
        ):
            if len(self._rows) < _MAX_ROWS and self._size < _MAX_SIZE:
                self._rows.append(text)
                self._size += len(text)
            return []
        if not text:
            return self._end()
        return self._field(number, text)

    def close(self) -> list[Entry]:
        """End the stream; give what is held."""
        done = self._end() if self._is_open or self._rows else []
        self._fields, self._rows, self._is_open, self._is_cut = {}, None, False, False
        return done

    def _is_field(self, text: str) -> bool:
        if self._name == _MESSAGE:
            return _OWN.match(text) is not None
        return _NAME.fullmatch(text.partition("=")[0]) is not None

    def _field(self, number: int, text: str) -> list[Entry] | None:
        name, sign, value = text.partition("=")
        if _NAME.fullmatch(name) is None:
            return None
        self._store()
        if name == _MESSAGE:
            self._number = number
        if not sign:
            self._name, self._rows, self._size = name, [], 0
        elif name in _KEPT:
            self._fields[name] = value
        return []

    def _store(self) -> bool:
        """Keep the value that has been read in rows; tell whether it is known to be whole."""
        rows, self._rows = self._rows, None
        if rows is None or self._name != _MESSAGE:
            return True
        text = "\n".join(rows)
        if self._is_cut:
            self._fields[_MESSAGE] = text
            return False
        self._fields[_MESSAGE], is_whole = _value(text)
        return is_whole

    def _end(self) -> list[Entry]:
        """A blank line: of the entry's end or, as long as its message is not whole, of its message."""
        was_message = self._rows is not None and self._name == _MESSAGE
        is_whole = self._store()
        fields, self._fields = self._fields, self._fields.copy()
        self._fields.pop(_MESSAGE, None)
        self._is_open, self._is_cut = False, was_message and not is_whole
        if self._is_cut:
            self._rows, self._size = [], 0
        return [Entry(self._number, fields)] if fields.get(_MESSAGE) else []


def _value(text: str) -> tuple[str, bool]:
    """A value after its length, whose NUL are gone; whether the length is the value's."""
    for start in range(4):
        value = text[start:]
        length = len(value.encode()).to_bytes(8, "little").decode("utf-8", "replace")
        if length.replace("\0", "") == text[:start]:
            return value, True
    # Cut, or with bytes that were replaced: a second byte of the length is a control character.
    return text[2 if "\0" < text[1:2] < " " and text[1:2] not in "\t\x1b" else 1 :], False
