"""The text that `/metrics` answers with: Prometheus' exposition format and OpenMetrics.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import regex

from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_LABELS = r'\{(?:[^"{}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\}'
_SAMPLE = expression(
    rf"(?P<name>[A-Za-z_:][\w:]*+)(?P<labels>{_LABELS})?[ \t]++(?P<value>[-+]?(?:\d[\d.eE+-]*+|\.\d++|[Ii]nf|NaN|nan))"
    r"(?:[ \t]++(?P<time>-?\d++(?:\.\d++)?))?[ \t]*+(?:#.*+)?$"
)
# What argparse says begins with `vllm: `.
_DAMAGED = expression(r"(?:ray_)?vllm[:_]\w{1,200}+(?:\{|$)")
_CUT = expression(r"[A-Za-z_:][\w:]{0,200}+(?:\{.{0,4096}+)?[ \d.eE+-]{0,80}+$")
_LABEL = expression(r'(?<!\w)([A-Za-z_]\w{0,200}+)[ \t]{0,8}+=[ \t]{0,8}+"((?:[^"\\\n]++|\\.)*+)"')
# `curl -i` puts headers before the answer.
_DATE = expression(r"[Dd]ate: (.{1,80})$")
_CLOCK = expression(
    r"\b(?:(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?)|(1\d{9}(?:\.\d{1,9})?))\b"
)
_KEYWORDS = ("# HELP ", "# TYPE ", "# UNIT ")
_END = "# EOF"
_PREFIXES = ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_")
_START = "process_start_time_seconds"
_MAX_SCRAPES = 1000
_MAX_SAMPLES = 100_000
# What no server counts, and of which quotients would be infinite.
_MOST, _LEAST = 1e18, 1e-12
# Ten digits are seconds, as OpenMetrics has it; Prometheus' own form has thousandths.
_MILLISECONDS = 1e11


class Sample(NamedTuple):
    """A number of a scrape."""

    name: str
    """Without vLLM's prefix."""
    labels: Mapping[str, str]
    value: float
    """Finite and not negative."""
    line: Line


class Scrape(NamedTuple):
    """What one answer holds of vLLM."""

    samples: list[Sample]
    time_s: float | None
    """When it was asked for, in seconds since 1970, where the text says so."""


def fits(head: str) -> bool:
    """Whether a text that begins so is a scrape that holds vLLM's metrics, and nothing else."""
    if not any(prefix in head for prefix in _PREFIXES[:2]):
        return False
    rows = head.split("\n")
    is_ours = is_header = False
    for number, row in enumerate(rows, 1):
        text = row.strip()
        if text.startswith("HTTP/"):
            is_header = True
        elif not text:
            is_header = False
        elif text.startswith("#"):
            is_ours = is_ours or text.startswith(_KEYWORDS)
        elif not is_header:
            if _SAMPLE.match(text):
                is_ours = True
            elif not (_CUT if number == len(rows) else _DAMAGED).match(text):
                return False
    return is_ours


def scrapes(lines: Sequence[Line]) -> tuple[list[Scrape], str | None]:
    """The scrapes of a file, and what is wrong with it.

    One follows another where an answer ends or begins, or the first number comes again.
    """
    reader = _Reader()
    for line in lines:
        if reader.is_full:
            break
        reader.feed(line)
    reader.end()
    problem = None
    if reader.is_full:
        problem = f"only its first {len(reader.found):,} scrapes were read"
    elif reader.damaged:
        verb = "is no metric and was" if reader.damaged == 1 else "are no metrics and were"
        problem = f"{reader.damaged:,} of its lines {verb} left out"
    return reader.found, problem


class _Reader:
    """Takes the lines of a file."""

    def __init__(self) -> None:
        self.found: list[Scrape] = []
        self.damaged = 0
        self._samples: list[Sample] = []
        self._taken = 0
        self._time: float | None = None
        self._first: tuple[str, str | None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether it holds as much as is read of one file."""
        return len(self.found) >= _MAX_SCRAPES or self._taken >= _MAX_SAMPLES

    def end(self) -> None:
        """End a scrape, if one is open."""
        if self._samples and len(self.found) < _MAX_SCRAPES:
            self.found.append(Scrape(self._samples, self._time))
            self._samples, self._time = [], None
        self._first = None

    def feed(self, line: Line) -> None:
        """Take the next line."""
        text = line.text.strip()
        if text.startswith(_KEYWORDS):
            return
        if text.startswith(("#", "HTTP/", "date: ", "Date: ")):
            stated = _stated_time(text)
            if stated is not None or text == _END or text.startswith("HTTP/"):
                self.end()
            self._time = self._time if stated is None else stated
        elif text.startswith((*_PREFIXES, _START)):
            match = _SAMPLE.match(text)
            if match is None:
                self.damaged += 1
            else:
                self._sample(match, line)

    def _sample(self, match: regex.Match[str], line: Line) -> None:
        key = (match["name"], match["labels"])
        if key == self._first:
            self.end()
        self._first = self._first or key
        if match["time"] is not None:
            stamp = float(match["time"])
            seconds = stamp / 1000 if stamp > _MILLISECONDS else stamp
            self._time = max(self._time or 0.0, seconds)
        value = _number(match["value"])
        if value is not None:
            self._taken += 1
            self._samples.append(
                Sample(_plain(match["name"]), _labels(match["labels"]), value, line)
            )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if not 0 <= value <= _MOST:
        return None
    return value if value >= _LEAST else 0.0


def _plain(name: str) -> str:
    for prefix in reversed(_PREFIXES):
        if name.startswith(prefix):
            return name[len(prefix) :].removesuffix("_total")
    return name


def _labels(text: str | None) -> dict[str, str]:
    return dict(_LABEL.findall(text)) if text else {}


def _stated_time(text: str) -> float | None:
    """The time that a header or a comment states."""
    date = _DATE.match(text)
    if date is not None:
        from email.utils import parsedate_to_datetime

        try:
            return parsedate_to_datetime(date[1]).timestamp()
        except (ValueError, OverflowError):
            return None
    found = _CLOCK.search(text) if text.startswith("#") else None
    if found is None:
        return None
    if found[2] is not None:
        return float(found[2])
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(found[1])
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
