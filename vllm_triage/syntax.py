"""Syntax: what a regex is made of, as far as it tells which texts the regex nearly matches."""

from functools import cache
from typing import NamedTuple

import regex

from vllm_triage.expressions import expression

_CHARACTERS = "".join(chr(code) for code in range(128)) + "é│█"
_PREFERRED = "a0A_x./:-= \n'\"([{<,"
_ZERO_WIDTH = frozenset("AZzbBGmMK")
_TOKEN = expression(
    r"(?P<open>\((?:\?(?:P?<(?![=!])\w+>|<?[=!]|[>|]|#[^)]*|P=\w+|[a-zA-Z0-9-]*:?))?)"
    r"|(?P<close>\))|(?P<either>\|)"
    r"|(?P<repeat>[*+?]|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\}(?<!\{,?\}))[?+]?"
    r"|(?P<zero>[\^$]|\\[AZzbBGmMK])"
    r"|(?P<one>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\\[pP]\{[^}]*\}|\\x..|\\u.{4}|\\.|.)",
    regex.DOTALL,
)


class One(NamedTuple):
    """Exactly one character."""

    source: str
    """The regex of the character: `x`, `\\d`, `[^ ]`."""

    @property
    def characters(self) -> frozenset[str]:
        """The ASCII characters, and a few others, that it matches."""
        return _matched(self.source)


class Row(NamedTuple):
    """One after the other; none is what matches without taking a character."""

    items: tuple["Node", ...]


class Either(NamedTuple):
    """One of several."""

    ways: tuple["Node", ...]


class Repeat(NamedTuple):
    """The same several times."""

    body: "Node"
    least: int
    most: int | None
    """None where there is no bound."""


class Look(NamedTuple):
    """What is looked at without being taken."""

    body: "Node"


Node = One | Row | Either | Repeat | Look
_NOTHING = Row(())


@cache
def _matched(source: str) -> frozenset[str]:
    return frozenset(regex.findall(source, _CHARACTERS))


def parse(text: str) -> Node:
    """Read a regex that compiles. Backreferences and inline flags count as nothing.

    Raises ValueError for what is written in no way that the rules or the code use.
    """
    tokens = list(_TOKEN.finditer(text))
    node, end = _either(tokens, 0)
    if end != len(tokens):
        message = f"unbalanced parenthesis in {text!r}"
        raise ValueError(message)
    return node


def _either(tokens: list[regex.Match[str]], start: int) -> tuple[Node, int]:
    ways: list[Node] = []
    items: list[Node] = []
    position = start
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if token["close"]:
            position -= 1
            break
        if token["either"]:
            ways.append(Row(tuple(items)))
            items = []
        elif token["repeat"]:
            if not items:
                message = "a repeat of nothing"
                raise ValueError(message)
            items.append(_repeat(token, items.pop()))
        elif token["open"]:
            node, position = _group(tokens, position)
            items.append(node)
        elif token["zero"]:
            items.append(_NOTHING)
        else:
            items.append(One(token["one"]))
    ways.append(Row(tuple(items)))
    return (ways[0] if len(ways) == 1 else Either(tuple(ways))), position


def _group(tokens: list[regex.Match[str]], position: int) -> tuple[Node, int]:
    opened = tokens[position - 1]["open"]
    if opened.startswith(("(?#", "(?P=")) or regex.fullmatch(r"\(\?[a-zA-Z0-9-]+", opened):
        # The comment's own text is within the token.
        node: Node = _NOTHING
        end = position
    else:
        node, end = _either(tokens, position)
    if end >= len(tokens) or not tokens[end]["close"]:
        message = "unbalanced parenthesis"
        raise ValueError(message)
    is_look = opened in ("(?=", "(?!", "(?<=", "(?<!")
    return (Look(node) if is_look else node), end + 1


def _repeat(token: regex.Match[str], body: Node) -> Repeat:
    mark = token["repeat"]
    if mark == "?":
        return Repeat(body, 0, 1)
    if mark in ("*", "+"):
        return Repeat(body, int(mark == "+"), None)
    least = int(token["least"] or 0)
    if not token["comma"]:
        return Repeat(body, least, least)
    return Repeat(body, least, int(token["most"]) if token["most"] else None)


def copies(node: Node) -> int:
    """How many characters the node has when the repeats that must be are written out."""
    match node:
        case One():
            return 1
        case Row():
            return sum(map(copies, node.items))
        case Either():
            return sum(map(copies, node.ways))
        case Repeat():
            return max(node.least, 1) * copies(node.body)
        case Look():
            return copies(node.body)


def sample(node: Node, *, full: bool = False) -> str:
    """Give a short text that the node matches, with (`full`) or without what may be left out."""
    match node:
        case One():
            literal = node.source[-1]
            if literal in node.characters and len(node.source) <= 2:
                return literal
            return next(
                (one for one in _PREFERRED if one in node.characters),
                min(node.characters, default=""),
            )
        case Row():
            return "".join(sample(item, full=full) for item in node.items)
        case Either():
            return sample(node.ways[0], full=full)
        case Repeat():
            return sample(node.body, full=full) * (max(node.least, 1) if full else node.least)
        case Look():
            return ""
