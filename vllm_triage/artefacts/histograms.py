"""Histograms as Prometheus counts them, and the quantiles that they tell."""

from itertools import pairwise
from math import inf
from typing import NamedTuple


class Histogram(NamedTuple):
    """How often a value was seen, in all and up to each bound."""

    seen: float = 0.0
    sum: float = 0.0
    buckets: tuple[tuple[float, float], ...] = ()
    """Upper bounds, of which the last is infinite, with how many values are not above them."""

    @property
    def mean(self) -> float | None:
        """The mean of all values."""
        return self.sum / self.seen if self.seen > 0 else None

    def since(self, before: "Histogram") -> "Histogram | None":
        """What came after an earlier state; None when this is no later state of the same histogram."""
        known = dict(before.buckets)
        buckets = [(bound, below - known.get(bound, 0.0)) for bound, below in self.buckets]
        seen, total = self.seen - before.seen, self.sum - before.sum
        if seen < 0 or total < 0 or any(below < 0 for _, below in buckets):
            return None
        return Histogram(seen, total, tuple(buckets))

    def quantile(self, share: float) -> float | None:
        """The value that this share of all is not above, as `histogram_quantile` tells it.

        Within a bucket values are taken as evenly spread; from the last, infinite one its lower
        bound is told. None without buckets. https://prometheus.io/docs/prometheus/latest/querying/functions/
        """
        ordered = sorted(self.buckets)
        if len(ordered) < 2 or ordered[-1][0] != inf or ordered[-1][1] <= 0:
            return None
        rank = share * ordered[-1][1]
        if ordered[0][1] >= rank:
            bound, seen = ordered[0]
            return bound * rank / seen if bound > 0 and seen > 0 else bound
        for (low, below), (high, seen) in pairwise(ordered):
            if seen >= rank:
                if high == inf:
                    return low
                return low + (high - low) * (rank - below) / (seen - below)
        return None
