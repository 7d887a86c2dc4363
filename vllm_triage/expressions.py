"""Expressions: regexes that compile when they are first used.

Compiling them all would take longer than all else of starting up, and a log has a use for few.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, AnyStr, cast

if TYPE_CHECKING:
    import regex


_known: dict[tuple[str | bytes, int], None] = {}


class Compiled:
    """An expression after its first use: it has what the compiled regex has."""


class Expression(Compiled):
    """Stands for a compiled regex until one of its attributes is asked for."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text: Any = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        from vllm_triage.precompiled import compiled as made

        compiled = made(self._text, self._flags)
        for one in _attributes():
            setattr(self, one, getattr(compiled, one))
        # Attributes of a class that has no __getattr__ are found faster.
        self.__class__ = Compiled  # type: ignore[assignment]  # the base, not a subclass
        return getattr(compiled, name)


@cache
def _attributes() -> tuple[str, ...]:
    """What a compiled regex has."""
    import regex

    return tuple(one for one in dir(regex.Pattern) if not one.startswith("_"))


def expression(text: AnyStr, flags: int = 0) -> "regex.Pattern[AnyStr]":
    """A regex that is compiled when it is first used; what is wrong with it is raised then."""
    _known[text, int(flags)] = None
    return cast("regex.Pattern[AnyStr]", Expression(text, flags))


def every() -> list[tuple[str | bytes, int]]:
    """The texts and flags of the expressions of all modules that can be imported."""
    import pkgutil
    from importlib import import_module

    for module in pkgutil.walk_packages([str(Path(__file__).parent)], "vllm_triage."):
        if not module.name.endswith("__main__"):
            try:
                import_module(module.name)
            except ImportError:
                # Where the package is built there is no click and no pydantic.
                continue
    return list(_known)
