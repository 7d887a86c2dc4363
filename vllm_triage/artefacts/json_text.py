"""JSON text: which keys a file's beginning has, and on which line a key stands."""

from collections.abc import Mapping, Sequence

from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_LONG = 160
_BEFORE = 40
_TOKEN = expression(r'"(?:[^"\\\n]|\\.)*+"(\s*+:)?|[{}\[\]]')
# What a line of JSON begins with, broken JSON too: a comment, or the mark of a merge conflict.
_JSON_LINE = expression(
    r'\s*+(?:["{}\[\],:]|$|//|<{7} |={7}$|>{7} |-?\d[\d.eE+-]*+[\s,\]}]*+$'
    r"|(?:true|false|null|NaN|-?Infinity)\b[\s,\]}]*+$)"
)
_REST = expression(r"[\s{}\[\],]*+")


def top_keys(text: str) -> frozenset[str] | None:
    """The keys of the object that a text begins with, as far as it goes; broken JSON too.

    None where it does not begin with an object, or something else stands on a line of its own
    or after the object, as the lines of a log do.
    """
    if not text.startswith("{"):
        return None
    depth, end = 0, len(text)
    keys: set[str] = set()
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in ("{", "["):
            depth += 1
        elif token in ("}", "]"):
            depth -= 1
            if depth <= 0:
                end = found.end()
                break
        elif depth == 1 and found[1] is not None:
            keys.add(token[: -len(found[1])][1:-1])
    rest = text[end:]
    if _REST.fullmatch(rest) is None:
        return None
    lines = text[:end].split("\n")
    # The last line may be cut anywhere.
    return frozenset(keys) if all(_JSON_LINE.match(one) for one in lines[:-1]) else None


def value_at(data: Mapping[str, object], path: Sequence[str]) -> object:
    """The value under nested keys; None where there is none."""
    value: object = data
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def line_of(texts: Sequence[str], path: Sequence[str]) -> int:
    """The index of the line on which nested keys stand, each looked for below the one before; else 0."""
    at = 0
    for key in path:
        quoted = f'"{key}"'
        at = next((index for index in range(at, len(texts)) if quoted in texts[index]), at)
    return at


def shown_at(line: Line, path: Sequence[str]) -> Line:
    """A line as evidence of nested keys: of one that holds the whole file the part around the last key."""
    at = 0
    for key in path:
        found = line.text.find(f'"{key}"', at)
        at = found if found >= 0 else at
    return around(line, at)


def around(line: Line, at: int) -> Line:
    """A line, or of a long one the part around this place, with marks where it is cut."""
    if len(line.text) <= _LONG:
        return line
    start = max(0, min(at - _BEFORE, len(line.text) - _LONG))
    end = start + _LONG
    shown = line.text[start:end]
    shown = ("… " if start else "") + shown + (" …" if end < len(line.text) else "")
    return line._replace(text=shown, raw=shown)
