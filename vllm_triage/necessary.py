"""Necessary: plain texts that stand in whatever a regex matches, read from the regex itself."""

from collections.abc import Iterable, Iterator

from vllm_triage.expressions import expression
from vllm_triage.prefilter import Ways
from vllm_triage.syntax import Either, Node, One, Repeat, Row, parse

_MAX_WAYS = 40
_MAX_WORDS = 3
_LEAST = 3
_ENOUGH = 8
# Flags, recursion, conditions, named characters and numbered groups: what `parse` tells nothing of.
_UNUSUAL = expression(r"\(\?(?!P<|[<:>=!])|\\[0-9QLNgRXU]")


def necessary(text: str) -> Ways:
    """The texts, without digits; none where nothing is sure, or what is sure tells little."""
    if _UNUSUAL.search(text):
        return ()
    try:
        return _ways(parse(text))
    except ValueError:
        return ()


def _ways(node: Node) -> Ways:
    match node:
        case Either():
            each = [_ways(way) for way in node.ways]
            found = dict.fromkeys(way for ways in each for way in ways)
            return tuple(found) if all(each) and len(found) <= _MAX_WAYS else ()
        case Repeat():
            return _ways(node.body) if node.least else ()
        case Row():
            return _row(node)
        case _:
            return ()


def _row(row: Row) -> Ways:
    items = list(_flat(row))
    found: Ways = (_longest(_runs(items)),)
    inside = [
        ways for item in items if isinstance(item, Either | Repeat) and (ways := _ways(item))
    ]
    for ways in sorted(inside, key=_cost):
        if len(found) * len(ways) <= _MAX_WAYS:
            found = tuple(
                dict.fromkeys(_longest((*one, *other)) for one in found for other in ways)
            )
    return found if all(found) else ()


def _runs(items: list[Node]) -> Iterator[str]:
    """What the characters say that stand side by side."""
    run = ""
    for item in (*items, Row(())):
        character = _literal(item) if isinstance(item, One) else None
        if character is None:
            yield run
        run = run + character if character is not None else ""


def _longest(words: Iterable[str]) -> tuple[str, ...]:
    known = {word for word in words if len(word) >= _LEAST}
    return tuple(sorted(known, key=lambda word: (-len(word), word))[:_MAX_WORDS])


def _flat(row: Row) -> Iterator[Node]:
    """The items, those of groups among them; an empty one may stand for a text, as a backreference does."""
    for item in row.items:
        if isinstance(item, Row) and item.items:
            yield from _flat(item)
        else:
            yield item


def _literal(one: One) -> str | None:
    """The character that alone matches; none for digits, which differ where all else is said again."""
    source = one.source
    if len(source) == 1:
        return None if source == "." or source.isdigit() else source
    if len(source) == 2 and source[0] == "\\" and not source[1].isalnum():
        return source[1]
    return None


def _cost(ways: Ways) -> tuple[int, int]:
    """Long words first, then few ways."""
    return -min(min(len(way[0]) for way in ways), _ENOUGH), len(ways)
