"""Records: what loggers and shippers write as JSON, and where in it the printed text stands."""

from collections.abc import Mapping
from datetime import UTC, datetime

from vllm_triage.paths import printable

MESSAGE_KEYS = (
    "message",
    "msg",
    "log",
    "text",
    "MESSAGE",
    "event",
    "body",
    "textPayload",
    "short_message",
    "line",
)
_TRACE_KEYS = (
    "exc_info",
    "exception",
    "stack_trace",
    "stacktrace",
    "traceback",
    "exc_text",
    "stack",
    "error.stack_trace",
)
TIME_KEYS = (
    "time",
    "timestamp",
    "@timestamp",
    "asctime",
    "ts",
    "__REALTIME_TIMESTAMP",
    "_SOURCE_REALTIME_TIMESTAMP",
)
# Until the year 2286.
_JOURNAL_DIGITS = 16
_NAME_KEYS = (
    "container_name", "CONTAINER_NAME", "pod_name", "pod", "container", "_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER", "host", "hostname",
)  # fmt: skip
_LEVEL_KEYS = ("level", "levelname", "log.level")
_LOGGER_KEYS = (
    "levelname",
    "logger",
    "logger_name",
    "name",
    "lineno",
    "filename",
    "pathname",
    "module",
    "funcName",
    "log.logger",
)

_ROLES = ("user", "assistant", "system", "tool")


def lookup(record: Mapping[str, object], key: str) -> object:
    """A record's value under a key, or under a path with dots: `kubernetes.pod_name`."""
    if key in record:
        return record[key]
    first, _, rest = key.partition(".")
    inner = record.get(first) if rest else None
    return lookup(inner, rest) if isinstance(inner, dict) else None


def level_of(record: Mapping[str, object]) -> str | None:
    """The record's level; a shipper that knows none says INFO of everything, a logger names itself."""
    level = first_of(record, _LEVEL_KEYS)
    if (
        level is None
        or level[:1].lower() not in "itd"
        or any(key in record for key in _LOGGER_KEYS)
    ):
        return level
    return None


def is_access(record: Mapping[str, object]) -> bool:
    """Tell a proxy's record of a request, or a chat's message: it quotes users, and is no evidence.

    Caddy's logger of errors says in its message what went wrong, and quotes no body.
    """
    if _is_said(record):
        return True
    status = record.get("status", record.get("status_code"))
    if str(record.get("logger", "")).startswith("http.log.error"):
        return False
    return isinstance(status, int) and any(
        key in record
        for key in ("body", "request_body", "request", "method", "path", "uri", "url")
    )


def is_talk(value: object) -> bool:
    """Tell a list of a chat's messages."""
    return isinstance(value, list) and any(
        isinstance(one, dict) and _is_said(one) for one in value
    )


def _is_said(record: Mapping[str, object]) -> bool:
    # A logger's record may name a role too, but has a level.
    return record.get("role") in _ROLES and not any(key in record for key in _LEVEL_KEYS)


def is_ours(record: Mapping[str, object]) -> bool:
    """Tell an incident or a report of ours, in any format: what it quotes was told already."""
    if "fix_steps" in record:
        return "evidence" in record
    if "schema_version" in record:
        return "incidents" in record
    for key in ("resourceLogs", "scopeLogs"):
        inner = record.get(key)
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            record = inner[0]
    return "vllm_triage" in (lookup(record, "scope.name"), lookup(record, "event.module"))


def string(text: str) -> str | None:
    """A JSON string; None when it is none."""
    import json

    try:
        found = json.loads(text)
    except ValueError:
        return None
    return printable(found) if isinstance(found, str) else None


def parse(text: str) -> Mapping[str, object] | None:
    """A JSON object; None when it is none."""
    record = value(text)
    return record if isinstance(record, dict) else None


def value(text: str) -> object:
    """What a JSON text says; None when it is none."""
    import json

    try:
        record = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            # Halves of characters cannot be written as UTF-8.
            shown = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
            record = json.loads(shown)
    except (ValueError, RecursionError):
        return None
    return record


def message_of(
    record: Mapping[str, object], keys: tuple[str, ...]
) -> tuple[str, str | None, list[str]]:
    """The format, the printed text under the first of the keys that is there, and its tracebacks."""
    if "__REALTIME_TIMESTAMP" in record or "_SYSTEMD_UNIT" in record:
        name = "journald"
    elif isinstance(record.get("log"), str) and ("stream" in record or "time" in record):
        name = "docker"
    else:
        name = "ndjson"
    message: str | None = None
    for key in keys:
        value = lookup(record, key)
        if isinstance(value, str):
            message = value
            break
        if (
            isinstance(value, list)
            and value
            and all(isinstance(one, int) and 0 <= one < 256 for one in value)
        ):
            message = bytes(value).decode("utf-8", "replace")
            break
    if message is None:
        for key in ("jsonPayload", "record", "log", "data"):
            inner = record.get(key)
            if isinstance(inner, dict):
                value = inner.get("message")
                message = value if isinstance(value, str) else None
                break
    error = record.get("error")
    places = [record, error] if isinstance(error, dict) else [record]
    traces = [
        value
        for place in places
        for key in _TRACE_KEYS
        if isinstance(value := place.get(key), str) and "\n" in value
    ]
    return name, message, traces


def first_of(record: Mapping[str, object], keys: tuple[str, ...]) -> str | None:
    """The first text under these keys, 64 characters of it."""
    for key in keys:
        found = record.get(key)
        if isinstance(found, str) and found:
            return found[:64]
    return None


def time_of(record: Mapping[str, object]) -> str | None:
    """When it was printed, as printed; journald's microseconds since 1970 as ISO 8601."""
    time = first_of(record, TIME_KEYS)
    if time is None or len(time) != _JOURNAL_DIGITS or not (time.isascii() and time.isdecimal()):
        return time
    moment = datetime.fromtimestamp(int(time[:10]), UTC).replace(tzinfo=None)
    return f"{moment.isoformat()}.{time[10:]}Z"


def container_of(record: Mapping[str, object]) -> str | None:
    """What names the process that printed it."""
    kubernetes = record.get("kubernetes")
    if isinstance(kubernetes, dict):
        pod = first_of(kubernetes, ("pod_name",))
        if pod:
            return f"{pod}/{first_of(kubernetes, ('container_name',)) or ''}".rstrip("/")
    return first_of(record, _NAME_KEYS)


def rsyslog_message(record: Mapping[str, object]) -> str | None:
    """The text of rsyslog's message object (`fulljson`, `%jsonmesg%`); None of any other record.

    What follows the tag of an RFC 3164 message begins with the space that ends the tag
    (https://www.rsyslog.com/log-normalization-and-the-leading-space/).
    """
    message, raw = record.get("msg"), record.get("rawmsg")
    if not isinstance(message, str) or not isinstance(raw, str) or "syslogtag" not in record:
        return None
    is_3164 = raw.startswith("<") and record.get("protocol-version") == "0"
    return message.removeprefix(" ") if is_3164 else message
