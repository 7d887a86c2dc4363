"""Growth: how the time of a regex grows with a text that it nearly matches.

The texts are derived from the regex: each of its repeats is fed n times what it takes, and
then what comes next is spoilt, so that an engine that backtracks tries every way to share the
n among the repeats and the starting points. Times are CPU seconds, and only ratios between two
lengths decide, so that neither a slow nor a busy machine changes the verdict.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import regex

from vllm_triage.syntax import Either, Look, Node, One, Repeat, Row, parse, sample

Search = Callable[[str, float], object]
"""Runs a regex over a text, with a timeout in seconds; raises TimeoutError."""

_WIDE = 16
_MAX_TEXT = 300


class _Trial(NamedTuple):
    """A text of two lengths, the second four times the first: 4 is linear, 16 is quadratic."""

    length: int
    most_ratio: float
    timeout_s: float
    rounds: int


_LONGER = 4
# Short ones first: nearly all texts are harmless and show it. Bounded repeats look quadratic
# until the text is much longer than their bounds, so the last trial is the one that decides.
_TRIALS = (
    _Trial(1_024, 5.5, 0.2, 2),
    _Trial(8_192, 7.0, 0.5, 3),
    _Trial(131_072, 8.0, 1.0, 5),
)
# A square makes 16, a cube 64.
_MOST_OF_SQUARE = 32.0


class NearMiss(NamedTuple):
    """A text of any length that a regex takes up to its end."""

    head: str
    piece: str
    tail: str

    def text(self, length: int) -> str:
        """Of about so many characters, at least one piece."""
        return self.head + self.piece * max(length // len(self.piece), 1) + self.tail


class _Spot(NamedTuple):
    """A repeat within a regex, with texts that lead to it and from it to the end."""

    repeat: Repeat
    before: str
    since: str
    """The end of `before`, from the repeat before this one."""
    after: str
    is_inner: bool = False
    """Whether it is within another repeat."""
    is_looked_at: bool = False
    """Whether it is within what is looked at without being taken."""


def near_misses(text: str, seeds: Iterable[str] = (), *, deep: bool = True) -> list[NearMiss]:
    """Derive near-misses from a regex and, as `seeds`, from texts that it matches.

    Only the seeds count where the regex is not understood. Less `deep`, a repeat that is bounded
    and within no other one is left out: it can only be slow by a constant.
    """
    try:
        tree = parse(text)
    except ValueError:
        tree = Row(())
    found: dict[NearMiss, None] = {}
    for whole in dict.fromkeys((*seeds, *(sample(tree, full=full) for full in (False, True)))):
        for part in (whole, whole[:-1], whole[1:], whole[: len(whole) // 2]):
            for piece in (part, part + " ", part + "\n") if part else ():
                found[NearMiss("", piece, "")] = None
                found[NearMiss("", piece, "\0")] = None
    characters = _characters(tree)
    for full in (False, True):
        for spot in _spots(tree, _Spot(Repeat(tree, 1, 1), "", "", ""), full=full):
            if deep or spot.is_inner or spot.repeat.most is None:
                found.update(dict.fromkeys(_at(spot, characters)))
    return [one for one in found if len(one.piece) <= _MAX_TEXT]


def _at(spot: _Spot, characters: frozenset[str]) -> Iterator[NearMiss]:
    body = spot.repeat.body
    takes = body.characters if isinstance(body, One) else frozenset()
    # `$` stands before the end of a line, so that another character must do too.
    spoilers = [one for one in "\n\0 !a'\"" if one not in takes][:2]
    tails = [
        *(spoiler + more for spoiler in spoilers for more in (spot.after, "")),
        # What a regex asks for is looked for first: all but one character of it stays.
        *((spot.after[:-1] + "\0", spot.after[1:]) if spot.after else ()),
        # To a look ahead or behind, it is what stands before that must not fit.
        *((spot.after,) if spot.is_looked_at else ()),
    ]
    if isinstance(body, One):
        edges = {*spot.before[-1:], *spot.after[:1]}
        repeated = sorted(takes & (characters | edges)) or [sample(body)]
    else:
        repeated = list(dict.fromkeys(_samples(body)))
    starts = dict.fromkeys(
        one + more for one in (spot.before, spot.since) for more in ("", sample(body), " ") if one
    )
    for tail in dict.fromkeys(tails):
        for piece in repeated:
            yield NearMiss("", piece, tail)
            if spot.before:
                yield NearMiss(spot.before, piece, tail)
        if spot.is_looked_at and spot.before and spot.after:
            yield NearMiss(spot.before, spot.after, "")
        for piece in starts:
            yield NearMiss("" if piece.startswith(spot.before) else spot.before, piece, tail)


def _samples(node: Node) -> Iterator[str]:
    ways = node.ways if isinstance(node, Either) else (node,)
    for way in ways:
        for full in (False, True):
            if text := sample(way, full=full):
                yield text


def _spots(node: Node, at: _Spot, *, full: bool) -> Iterator[_Spot]:
    match node:
        case Row():
            for position, item in enumerate(node.items):
                rest = "".join(sample(one, full=full) for one in node.items[position + 1 :])
                yield from _spots(item, at._replace(after=rest + at.after), full=full)
                text = sample(item, full=full)
                since = text if _is_wide(item) else at.since + text
                at = at._replace(before=at.before + text, since=since)
        case Either():
            for way in node.ways:
                yield from _spots(way, at, full=full)
        case Repeat():
            if _is_wide(node):
                yield at._replace(repeat=node)
            is_inner = at.is_inner or node.most is None or node.most > 1
            yield from _spots(node.body, at._replace(is_inner=is_inner), full=full)
        case Look():
            inside = at._replace(is_looked_at=True)
            for start in dict.fromkeys((inside, inside._replace(before="", since=""))):
                yield from _spots(node.body, start, full=full)
        case One():
            return


def _is_wide(node: Node) -> bool:
    return isinstance(node, Repeat) and (node.most is None or node.most - node.least >= _WIDE)


def _characters(tree: Node) -> frozenset[str]:
    """One character of each sort that the repeats of a regex tell apart."""
    classes = sorted({one.characters for one in _repeated(tree)}, key=sorted)
    sorts: dict[tuple[bool, ...], str] = {}
    for character in sorted(frozenset().union(*classes), key=_plainness):
        # Where `^` stands, the end of a line makes a starting point.
        told = (character == "\n", *(character in one for one in classes))
        sorts.setdefault(told, character)
    return frozenset(sorts.values())


def _plainness(character: str) -> tuple[int, str]:
    rank = 0 if character.isalnum() else 1 if character.isprintable() else 2
    return rank, character


def _repeated(node: Node) -> Iterator[One]:
    match node:
        case One():
            return
        case Row():
            for item in node.items:
                yield from _repeated(item)
        case Either():
            for way in node.ways:
                yield from _repeated(way)
        case Repeat():
            if isinstance(node.body, One) and _is_wide(node):
                yield node.body
            yield from _repeated(node.body)
        case Look():
            yield from _repeated(node.body)


def searching(expression: regex.Pattern[str]) -> Search:
    """Search as the rules do."""
    return lambda text, timeout: expression.search(text, timeout=timeout)


def worst(
    search: Search, misses: Iterable[NearMiss], longest: int | None = None
) -> NearMiss | None:
    """Give a text on which the time grows faster than its length, None where there is none.

    Where no text is longer than `longest`, the square of that length is allowed.
    """
    trials: tuple[_Trial, ...] = _TRIALS
    if longest is not None:
        trials = (_Trial(max(longest // _LONGER, 1), _MOST_OF_SQUARE, 1.0, 5),)
    return next(
        (miss for miss in misses if all(_fails(one, search, miss) for one in trials)), None
    )


def _fails(trial: _Trial, search: Search, miss: NearMiss) -> bool:
    """Compare the least times seen, as whatever disturbs a measurement only makes it longer.

    It ends when the ratio is harmless: only a disturbance of every one of the long text's
    measurements and of none of the short one's could make a harmless ratio look bad.
    """
    short, long = miss.text(trial.length), miss.text(trial.length * _LONGER)
    least, most = float("inf"), float("inf")
    for done in range(trial.rounds):
        if done > 1 and most > 1.5 * trial.most_ratio * least:
            break
        least = min(least, _seconds(search, short, trial.timeout_s))
        if least == float("inf"):
            return True
        most = min(most, _seconds(search, long, trial.timeout_s))
        if most <= trial.most_ratio * least:
            return False
    return True


def _seconds(search: Search, text: str, timeout_s: float) -> float:
    start = time.thread_time()
    try:
        search(text, timeout_s)
    except TimeoutError:
        return float("inf")
    return max(time.thread_time() - start, 1e-9)
