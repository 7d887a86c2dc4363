"""Syntax: what a regex is made of, as far as it tells which texts the regex nearly matches."""

import sys
from functools import cache
from typing import NamedTuple

import regex

from vllm_triage.expressions import expression

_CHARACTERS = "".join(chr(code) for code in range(128)) + "é│█"
_PREFERRED = "a0A_x./:-= \n'\"([{<,"
_MAX_DEPTH = 50
_TOKEN = expression(
    r"(?P<open>\((?:\?(?:P?<(?![=!])(?P<name>\w+)>|<?[=!]|[:>|]|#[^)]*|P=(?P<same>\w+)|(?P<flags>[aimsu-]+):?))?(?![?*]))"
    r"|(?P<close>\))|(?P<either>\|)"
    r"|(?P<repeat>[*+?]|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\}(?<!\{,?\}))[?+]?"
    r"|(?P<zero>[\^$]|\\[AZzbBGmMK])"
    r"|(?P<unread>\((?:\?[^)]{0,20}\)?|\*\w*\)?)|\{\d*(?:<=?\d*)?[eids](?=[<,:+=}])[^}]*\}?)"
    r"|\\(?:g<(?P<again>\w+)>|(?P<number>(?!\d[0-7]{2})[1-9]\d?))"
    r"|(?P<one>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\\[pPN]\{[^}]*\}|\\[pP][A-Z]"
    r"|\\x..|\\u.{4}|\\U.{8}|\\[0-7]{1,3}|\\.|.)",
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
    found = frozenset(regex.findall(source, _CHARACTERS))
    if found:
        return found
    one = regex.search(source, _every_character())
    return frozenset((one[0],)) if one else found


@cache
def _every_character() -> str:
    return "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


def parse(text: str) -> Node:
    """Read a regex that compiles. Of inline flags only `s` tells; a backreference is what its group is.

    Raises ValueError for what is not read: recursion, conditions, approximate matching, verbs,
    flags that change how the rest is written, and what is nested too deep.
    """
    parser = _Parser(list(_TOKEN.finditer(text)))
    node = parser.either()
    if parser.position != len(parser.tokens):
        message = "an unbalanced parenthesis"
        raise ValueError(message)
    return node


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[regex.Match[str]]) -> None:
        self.tokens = tokens
        self.position = 0
        self._groups: dict[str, Node] = {}
        """By number and name, once they are closed."""
        self._opened = 0
        self._depth = 0
        flags = "".join(token["flags"] or "" for token in tokens)
        self._any = "(?s:.)" if "s" in flags else "."

    def either(self) -> Node:
        ways: list[Node] = []
        items: list[Node] = []
        while self.position < len(self.tokens):
            token = self.tokens[self.position]
            if token["close"]:
                break
            self.position += 1
            if token["unread"]:
                message = token["unread"]
                raise ValueError(message)
            if token["either"]:
                ways.append(Row(tuple(items)))
                items = []
            elif token["repeat"]:
                if not items:
                    message = f"a repeat of nothing, {token[0]}"
                    raise ValueError(message)
                items.append(_repeat(token, items.pop()))
            elif token["open"]:
                items.append(self._group(token))
            elif token["zero"]:
                items.append(_NOTHING)
            elif named := token["again"] or token["number"]:
                items.append(self._groups.get(named, _NOTHING))
            else:
                items.append(One(self._any if token["one"] == "." else token["one"]))
        ways.append(Row(tuple(items)))
        return ways[0] if len(ways) == 1 else Either(tuple(ways))

    def _group(self, token: regex.Match[str]) -> Node:
        opened = token["open"]
        names = (token["name"],) if token["name"] else ()
        if opened == "(" or names:
            self._opened += 1
            names = (str(self._opened), *names)
        if token["same"]:
            node = self._groups.get(token["same"], _NOTHING)
        elif opened.startswith("(?#") or (token["flags"] and not opened.endswith(":")):
            # The comment's own text is within the token.
            node = _NOTHING
        elif self._depth == _MAX_DEPTH:
            message = f"more than {_MAX_DEPTH} groups within one another"
            raise ValueError(message)
        else:
            self._depth += 1
            node = self.either()
            self._depth -= 1
        if self.position >= len(self.tokens) or not self.tokens[self.position]["close"]:
            message = "an unbalanced parenthesis"
            raise ValueError(message)
        self.position += 1
        self._groups.update(dict.fromkeys(names, node))
        return Look(node) if opened in ("(?=", "(?!", "(?<=", "(?<!") else node


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
