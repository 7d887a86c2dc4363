"""Transcripts of curl with headers: `curl -i` and `curl -v`."""

from collections.abc import Iterator, Sequence

from vllm_triage.artefacts.observations import Observation, Reading, Value
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_REQUEST = expression(r"> (?:GET|POST|HEAD|PUT|DELETE|OPTIONS) (\S{1,2000}) HTTP/[\d.]+\s*$")
_STATUS = expression(r"(?:< )?HTTP/[\d.]{1,3} (\d{3})\b")
_HEADER = expression(r"(?:< )?(?i:server): (\S.{0,100})$")
_TALK = expression(
    r"\* {1,3}(?:Trying|Host|Connected to|Uses proxy|IPv6:|IPv4:)|Note: Unnecessary use of -X"
)


def fits(head: str) -> bool:
    """Tell what curl prints with headers."""
    first = head.split("\n", 1)[0]
    return _TALK.match(first) is not None or (
        _STATUS.match(first) is not None and first[:1] != "<"
    )


def read(lines: Sequence[Line]) -> Reading:
    """Read one transcript or several one after the other: an observation an answer.

    `endpoint` is known of `curl -v` only, `server` where the header is there.
    """
    return Reading(tuple(_answers(lines)))


def _answers(lines: Sequence[Line]) -> Iterator[Observation]:
    endpoint: str | None = None
    values: dict[str, Value] = {}
    shown: dict[str, Line] = {}
    for line in lines:
        text = line.text.rstrip()
        asked = _REQUEST.match(text)
        status = _STATUS.match(text)
        if (asked or status) and values:
            yield Observation("health", values, shown)
            values, shown = {}, {}
        if asked:
            endpoint = asked[1].partition("?")[0]
        elif status:
            if status[1] == "100":
                continue
            values = {"status_code": int(status[1])}
            shown = {"status_code": line}
            if endpoint is not None:
                values["endpoint"] = endpoint
                endpoint = None
        elif values and (found := _HEADER.match(text)):
            values["server"] = found[1].lower()
    if values:
        yield Observation("health", values, shown)
