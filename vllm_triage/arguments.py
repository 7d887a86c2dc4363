"""Arguments: what a server was started with, as its log prints it."""

import ast
from collections.abc import Mapping
from math import isfinite

from vllm_triage.expressions import expression
from vllm_triage.numbers import sensible

Value = str | int | float | bool | list[str] | None


_CONFIG_FIELD = expression(r"(?:^|[ ,])(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[\w.+-]+)")
_PAIR = expression(
    r"'?\b(\w+)'?(?:=|: )('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\[[^\[\]{}]*\]|-?\d[\w.+-]*|True|False|None)"
)
_NESTED = expression(r"'\w+': \{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\},?")
_ITEM = expression(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|([\w.+-]+)")


def value_of(text: str) -> Value:
    """Read a printed literal; what is none stays text."""
    if text[:1] in "'\"":
        return text[1:-1]
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    if text.startswith("["):
        return [a or b or c for a, b, c in _ITEM.findall(text)]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return _finite(float(text))
    except ValueError:
        return text


def _finite(value: float) -> float | str:
    """The number; as text where JSON has none for it."""
    return value if isfinite(value) else str(value)


def printed_arguments(text: str) -> dict[str, Value]:
    """Read the printed dict; where it holds what is no literal, only its plain pairs."""
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return pairs(_NESTED.sub("", text[1:]))
    if not isinstance(found, dict):
        return {}
    return {str(name): _plain(value) for name, value in found.items()}


def _plain(value: object) -> Value:
    if isinstance(value, float):
        return _finite(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list | tuple) and all(
        isinstance(one, str | int | float) for one in value
    ):
        return [str(one) for one in value]
    import json

    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return str(value)


def pairs(text: str) -> dict[str, Value]:
    """Read the plain `name=value` and `'name': value` pairs of a printed record."""
    return {name: value_of(value) for name, value in _PAIR.findall(text)}


def number(values: Mapping[str, Value], name: str) -> float | None:
    """A numeric argument; None when it is not there, is no number or one beyond reason."""
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return sensible(value)


def config_fields(text: str) -> dict[str, Value]:
    """Read the `name=value` fields of the engine's printed config."""
    return {name: value_of(value) for name, value in reversed(_CONFIG_FIELD.findall(text))}
