"""The regexes that the code itself uses on texts, with the ways in which it uses them."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import vllm_triage
from vllm_triage import memory

_WAYS = ("fullmatch", "match", "search", "findall", "finditer", "split", "sub")
# Not asked of a log's text, but of our own.
OWN_TEXTS = ("syntax", "templates", "command_check")


class Expression(NamedTuple):
    """A regex of a module."""

    name: str
    """`module.NAME`, with a number where several hang on the name."""
    compiled: Any
    way: str
    """The method of the regex that reads the most."""

    def search(self, text: str, timeout: float) -> object:
        """Use it on a text as its module does."""
        subject = text.encode() if isinstance(self.compiled.pattern, bytes) else text
        if self.way in ("findall", "finditer", "split", "sub"):
            found = self.compiled.finditer(subject, timeout=timeout)
            return sum(1 for _ in found)
        return getattr(self.compiled, self.way)(subject, timeout=timeout)

    @property
    def text(self) -> str:
        """The regex as written."""
        pattern = self.compiled.pattern
        return pattern.decode() if isinstance(pattern, bytes) else str(pattern)


def expressions() -> list[Expression]:
    """Every regex that stands in a module of the package."""
    found: dict[tuple[str, str], Expression] = {}
    for info in pkgutil.walk_packages(vllm_triage.__path__, "vllm_triage."):
        short = info.name.removeprefix("vllm_triage.")
        if short in ("__main__", *OWN_TEXTS):
            continue
        module = importlib.import_module(info.name)
        ways = _ways(inspect.getsource(module))
        for name, value in vars(module).items():
            for number, one in enumerate(_in(value)):
                way = ways.get(name) or ways.get("") or "search"
                label = f"{short}.{name}" + (f"[{number}]" if number else "")
                found.setdefault((one.pattern, way), Expression(label, one, way))
    for number, (start, rest) in enumerate(_wordings()):
        found[start, rest] = Expression(
            f"memory._WORDINGS[{number}]", _worded(start, rest), "match"
        )
    return list(found.values())


def _wordings() -> list[tuple[str, Any]]:
    return [(start, rest) for start, rest in vars(memory)["_WORDINGS"] if isinstance(rest, str)]


def _worded(start: str, rest: str) -> Any:
    return vars(memory)["_wording"](start, rest)


def _in(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list | frozenset):
        for item in value:
            yield from _in(item)
    elif not isinstance(value, type) and hasattr(value, "groupindex"):
        yield value


def _ways(source: str) -> dict[str, str]:
    """Of each name the method called on it that reads the most; of "" the one of local names."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.attr in _WAYS
        ):
            name = node.func.value.id
            key = name if name.isupper() else ""
            found[key] = max(
                found.get(key, ""), node.func.attr, key=lambda way: _WAYS.index(way) if way else -1
            )
    return found
