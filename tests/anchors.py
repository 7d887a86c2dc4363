"""Anchors: the fewest plain texts that a search for what the rules ask for needs, for `grep` and the like."""

from collections import defaultdict
from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from vllm_triage.catalogue import Catalogue
from vllm_triage.gate import ORDINARY
from vllm_triage.kinds import Level
from vllm_triage.rules import Pattern

_MIN_ANCHOR = 4


def anchors(catalogue: Catalogue, level: Level = Level.ERROR) -> tuple[str, ...]:
    """Few plain texts, sorted: every log event of this level that a pattern matches holds one.

    A line without level counts as an error. Each stands on one line, except where a terminal
    has wrapped an exception's message. Greedy, so not the fewest there are; what healthy
    servers print all day is avoided where a pattern has anything else.
    """
    units = [
        unit
        for rule in catalogue.rules.values()
        for pattern in rule.worded
        if pattern.level.rank <= level.rank and pattern.origin not in ("access", "statistics")
        for unit in _units(pattern)
    ]
    return tuple(sorted(_chosen(_covers(units))))


def _units(pattern: Pattern) -> list[tuple[str, ...]]:
    """Of each of these groups a matching event holds: all texts, or one group's at least.

    A group of keywords stands alone; of alternatives each is a group of its own.
    """
    ways = [[pattern.keywords]] if pattern.keywords else []
    ways += [[(word,) for word in words] for words in (pattern.any_of, pattern.exception) if words]
    return min(ways, key=lambda way: (sum(min(map(_cost, unit)) for unit in way), len(way)))


def _covers(units: list[tuple[str, ...]]) -> Mapping[str, set[int]]:
    """Of each text that may become an anchor, the groups that imply it."""
    words: defaultdict[str, set[int]] = defaultdict(set)
    for number, unit in enumerate(units):
        for word in unit:
            words[word].add(number)
    covers: dict[str, set[int]] = {word: set() for word in words}
    for word in words:
        covers.update({part: set() for part in word.split() if len(part) >= _MIN_ANCHOR})
    for word, numbers in words.items():
        for start in range(len(word)):
            for end in range(start + 1, len(word) + 1):
                found = covers.get(word[start:end])
                if found is not None:
                    found |= numbers
    return covers


def _chosen(covers: Mapping[str, set[int]]) -> list[str]:
    """Take what covers most of the groups that are left, until none is."""
    left = set().union(*covers.values())
    chosen = []
    queue = [(-len(found) / _cost(text), text) for text, found in covers.items()]
    heapify(queue)
    while left:
        _, text = heappop(queue)
        # What a text covers only shrinks: it is the best one if it still is with its true count.
        score = -len(covers[text] & left) / _cost(text)
        if queue and (score, text) > queue[0]:
            heappush(queue, (score, text))
            continue
        chosen.append(text)
        left -= covers[text]
    return chosen


def _cost(text: str) -> int:
    return 20 if len(text) < _MIN_ANCHOR or text in ORDINARY else 1
