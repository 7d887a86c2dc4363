"""Engine statistics and benchmark tables read as observations."""

from collections import OrderedDict

import regex

from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_MAX_ENGINES = 1024
_MAX_TABLE = 80
_NUMBER = r"(-?[\d.]+)"
_PROMPT = expression(rf"prompt throughput: {_NUMBER}")
_GENERATION = expression(rf"generation throughput: {_NUMBER}")
_RUNNING = expression(r"Running: (\d+)")
_WAITING = expression(r"(?:Waiting|Pending): (\d+)")
_TITLE = expression(r"\s*(?:=+\s*)?(?:Serving )?Benchmark Result\s*(?:=+\s*)?$")
_ROW = expression(
    r"\s*(?:---.{0,300}---|={3,}|[A-Z][\w .()/,%-]{2,60}:\s+-?[\d.,]+|[A-Z][\w .()/,%-]{2,60}:\s+inf)\s*$"
)

Observed = tuple[tuple[str, float], ...]

TABLE = "Benchmark Result"
"""What the first line of a benchmark's table says."""
PER_REQUEST = "generation_tokens_per_s_per_request"
"""What a window does not print: tokens per second of one running request."""


class Windows:
    """The statistics lines of each engine; a window after a start or an idle time is left out."""

    def __init__(self) -> None:
        self._busy: OrderedDict[tuple[object, ...], bool] = OrderedDict()

    def feed(self, line: Line) -> Observed | None:
        """Derive what a window does not print; None when it says nothing about a lasting state."""
        text = line.text
        key = (*line.key, engine(text))
        found = _RUNNING.search(text)
        running = int(found[1]) if found else 0
        generation = _value(_GENERATION, text)
        was_busy = self._busy.pop(key, None)
        self._busy[key] = running > 0
        if len(self._busy) > _MAX_ENGINES:
            self._busy.popitem(last=False)
        # A log may begin in the middle of a busy time: only a window that has done nothing is a start.
        is_first = was_busy is False or (was_busy is None and generation == 0.0)
        if running == 0 or is_first:
            return (("windows_idle", 1.0),)
        return ((PER_REQUEST, generation / running),)

    def skip(self, key: tuple[object, ...], *, is_busy: bool) -> None:
        """Take windows of an engine that no rule asks for, of which the last was busy or not."""
        self._busy.pop(key, None)
        self._busy[key] = is_busy
        if len(self._busy) > _MAX_ENGINES:
            self._busy.popitem(last=False)


def engine(text: str) -> str:
    """Which of several engines a window is of: `Engine 000`."""
    return text.partition(": ")[0] if text.startswith("Engine ") else ""


def spans(text: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Where in a window the number of running requests and the generation throughput stand."""
    running, generation = _RUNNING.search(text), _GENERATION.search(text)
    return running and running.span(1), generation and generation.span(1)


class Benchmark:
    """Collects the rows of a `vllm bench` table."""

    def __init__(self) -> None:
        self._rows: list[Line] = []

    @property
    def is_open(self) -> bool:
        """Whether the last line belongs to a table."""
        return bool(self._rows)

    def feed(self, line: Line) -> tuple[tuple[Line, ...], Observed] | None:
        """Take a line; give the table that it ends."""
        if not self._rows:
            if TABLE in line.text and _TITLE.match(line.text):
                self._rows = [line]
            return None
        if not line.text.strip() or (_ROW.match(line.text) and len(self._rows) < _MAX_TABLE):
            if line.text.strip():
                self._rows.append(line)
            return None
        return self.close()

    def close(self) -> tuple[tuple[Line, ...], Observed] | None:
        """Give the open table."""
        rows, self._rows = tuple(self._rows), []
        return (rows, ()) if len(rows) > 2 else None


def _value(pattern: regex.Pattern[str], text: str) -> float:
    found = pattern.search(text)
    try:
        return float(found[1]) if found else 0.0
    except ValueError:
        return 0.0
