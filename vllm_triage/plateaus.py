"""Plateaus: what an engine generated while it did nothing but decode for the same number of requests."""

from typing import NamedTuple

MAX_PROMPT = 50.0
"""Prompt tokens a second up to which an engine does little but decode."""
_ROW = 3
_MAX_LEVELS = 64
# Attention costs at most in proportion to the tokens in the cache; what is printed has one decimal.
_MORE_CACHE = 1.5
_LEAST_PCT = 0.1


class Steady(NamedTuple):
    """A window in which an engine decoded and did little else."""

    running: float
    """Requests running at its end."""
    generation: float
    """Tokens generated a second, all requests together."""
    cache_pct: float
    """KV cache in use at its end, 0 to 100."""


def steady(
    running: float, prompt: float, generation: float, waiting: float, cache_pct: float
) -> Steady | None:
    """What a window shows of decoding; None where requests wait or prompts are computed."""
    if running and not waiting and prompt <= MAX_PROMPT:
        return Steady(running, generation, cache_pct)
    return None


class Plateaus:
    """The best that one engine has held in one run, by how many requests were running.

    Three windows in a row with as many requests make a plateau, and the slowest of them its height.
    """

    def __init__(self, run: int | None) -> None:
        self.run = run
        self.cache_pct: float | None = None
        """KV cache in use at the end of the last window."""
        self._row: list[Steady] = []
        self._best: dict[float, Steady] = {}

    def take(self, window: Steady | None) -> None:
        """Take a window that is none, or the next one; None ends a row."""
        if window is None:
            self._row.clear()
            return
        row = self._row
        if row and row[-1].running != window.running:
            row.clear()
        row.append(window)
        if len(row) < _ROW:
            return
        height = min(one.generation for one in row)
        known = self._best.get(window.running)
        if known is None and len(self._best) >= _MAX_LEVELS:
            pass
        elif known is None or height > known.generation:
            cache_pct = max(one.cache_pct for one in row)
            self._best[window.running] = Steady(window.running, height, cache_pct)
        del row[0]

    def earlier(self, window: Steady) -> float | None:
        """The most tokens a second held with no more requests and no much smaller context; None for none."""
        found = [
            one.generation
            for one in self._best.values()
            if one.running <= window.running
            and window.cache_pct <= _MORE_CACHE * max(one.cache_pct, _LEAST_PCT)
        ]
        return max(found, default=None)
