"""Engine statistics and benchmark tables read as observations."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from vllm_triage.expressions import expression
from vllm_triage.lines import BESIDE_STATISTICS, Line
from vllm_triage.plateaus import Plateaus, Steady, steady

_MAX_ENGINES = 1024
_MAX_TABLE = 80
_NUMBER = r"(-?[\d.]+)"
_PROMPT = expression(rf"prompt throughput: {_NUMBER}")
_GENERATION = expression(rf"generation throughput: {_NUMBER}")
_RUNNING = expression(r"Running: (\d+)")
_WAITING = expression(r"(?:Waiting|Pending): (\d+)")
_CACHE = expression(rf"KV cache usage: {_NUMBER}%")
_PREFIX_HITS = expression(rf"Prefix cache hit rate: (?:GPU: )?{_NUMBER}%")
_NUMBERS = (_RUNNING, _PROMPT, _GENERATION, _WAITING, _CACHE)
_TITLE = expression(r"\s*(?:=+\s*)?(?:Serving )?Benchmark Result\s*(?:=+\s*)?$")
_ROW = expression(
    r"\s*(?:---.{0,300}---|={3,}|[A-Z][\w .()/,%-]{2,60}:\s+-?[\d.,]+|[A-Z][\w .()/,%-]{2,60}:\s+inf)\s*$"
)

_T = TypeVar("_T")

Observed = tuple[tuple[str, float], ...]

TABLE = "Benchmark Result"
"""What the first line of a benchmark's table says."""
PER_REQUEST = "generation_tokens_per_s_per_request"
"""What a window does not print: tokens per second of one running request."""

EARLIER = "earlier_generation_tokens_per_s"
"""What the engine generated before with no more requests, in tokens per second."""
OF_EARLIER = "generation_of_earlier_pct"
"""How much of that it still generates."""
PREFIX_HITS = "prefix_cache_hit_pct"
"""How many of the prompts' tokens came from the prefix cache, where a line beside the window says so."""
CACHE_RISE = "kv_cache_rise_pct_per_request"
"""How much of the KV cache each running request has taken since the window before."""
CACHE_PEAK = "kv_cache_peak_pct"
"""The most of the KV cache in use at the end of this window and of the one before."""
FROM_BEFORE = frozenset((EARLIER, OF_EARLIER, CACHE_RISE, CACHE_PEAK))
"""What a window shows only beside those before it."""


class Windows:
    """The statistics lines of each engine; a window after a start or an idle time is left out."""

    def __init__(self) -> None:
        self._busy: OrderedDict[tuple[object, ...], bool] = OrderedDict()
        self._plateaus: OrderedDict[tuple[object, ...], Plateaus] = OrderedDict()
        self._prefix_hits: OrderedDict[tuple[object, ...], float] = OrderedDict()
        self._speculating: OrderedDict[tuple[object, ...], None] = OrderedDict()

    def feed(self, line: Line) -> Observed | None:
        """Derive what a window does not print; None when it says nothing about a lasting state."""
        text = line.text
        if text.startswith(BESIDE_STATISTICS):
            self._beside(line)
            return None
        key = (*line.key, engine(text))
        numbers = _numbers(text)
        running, _, generation, _, cache_pct = (one or 0.0 for one in numbers)
        plateaus = self._plateaus_of(key, line.run)
        window = _steady(numbers)
        # With speculative decoding the rate follows the text.
        is_plain = line.key not in self._speculating
        earlier = plateaus.earlier(window) if window and is_plain else None
        plateaus.take(window)
        before, plateaus.cache_pct = plateaus.cache_pct, cache_pct
        was_busy = self._busy.pop(key, None)
        _keep(self._busy, key, running > 0)
        # A log may begin in the middle of a busy time: only a window that has done nothing is a start.
        is_first = was_busy is False or (was_busy is None and generation == 0.0)
        if running == 0 or is_first:
            return (("windows_idle", 1.0),)
        rise = 0.0 if before is None else cache_pct - before
        observed = [
            (PER_REQUEST, generation / running),
            (CACHE_RISE, round(rise, 1) / running),
            (CACHE_PEAK, max(cache_pct, before or 0.0)),
        ]
        hits = self._prefix_hits.get(line.key)
        if hits is not None:
            observed.append((PREFIX_HITS, hits))
        if earlier:
            observed += [(EARLIER, earlier), (OF_EARLIER, round(100 * generation / earlier, 1))]
        return tuple(observed)

    def skip(
        self,
        key: tuple[object, ...],
        run: int | None,
        windows: Iterable[Steady | None],
        *,
        is_busy: bool,
        cache_pct: float,
    ) -> None:
        """Take windows of an engine that no rule asks for, of which the last was busy or not."""
        _keep(self._busy, key, is_busy)
        plateaus = self._plateaus_of(key, run)
        plateaus.cache_pct = cache_pct
        for window in windows:
            plateaus.take(window)

    def _beside(self, line: Line) -> None:
        if not line.text.startswith("Prefix"):
            _keep(self._speculating, line.key, None)
            return
        found = _PREFIX_HITS.match(line.text)
        hits = found and number(found[1])
        if hits is not None:
            _keep(self._prefix_hits, line.key, hits)

    def _plateaus_of(self, key: tuple[object, ...], run: int | None) -> Plateaus:
        known = self._plateaus.get(key)
        if known is None or known.run != run:
            known = Plateaus(run)
        _keep(self._plateaus, key, known)
        return known


def engine(text: str) -> str:
    """Which of several engines a window is of: `Engine 000`."""
    return text.partition(": ")[0] if text.startswith("Engine ") else ""


def spans(text: str) -> tuple[tuple[int, int] | None, ...]:
    """Where in a window its numbers stand: those that `steady` takes, in that order."""
    found = (pattern.search(text) for pattern in _NUMBERS)
    return tuple(one and one.span(1) for one in found)


def _numbers(text: str) -> list[float | None]:
    return [place and number(text[slice(*place)]) for place in spans(text)]


def _steady(numbers: list[float | None]) -> Steady | None:
    known = [one for one in numbers if one is not None]
    return steady(*known) if len(known) == len(numbers) else None


def number(text: str | bytes) -> float | None:
    """A printed number; None where it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def _keep(table: OrderedDict[tuple[object, ...], _T], key: tuple[object, ...], value: _T) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > _MAX_ENGINES:
        table.popitem(last=False)


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
