"""Plain: the base of the types that a run is made of.

They are classes with annotated fields and nothing else, so that a run needs no pydantic, whose
import takes longer than most logs do. What a user's file or program says is validated by
pydantic models that derive from them: `rule_files` and `contract`.
"""

from collections.abc import Mapping
from typing import Any, Self, dataclass_transform


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Plain:
    """Holds the fields that its class annotates; those with a value there may be left out.

    Frozen as far as the type checker sees; copied, compared and shown as pydantic's models are.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plain) or type(self) is not type(other):
            return NotImplemented
        return values(self) == values(other)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in values(self).items())
        return f"{type(self).__name__}({inside})"

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """The same with other values in some fields."""
        copy = object.__new__(type(self))
        copy.__dict__.update({**self.__dict__, **update})
        return copy


_FIELDS: dict[type, Mapping[str, object]] = {}


def fields(kind: type) -> Mapping[str, object]:
    """The names of a class's fields with their annotations, a base's before its own."""
    known = _FIELDS.get(kind)
    if known is None:
        bases = [base for base in reversed(kind.__mro__) if issubclass(base, Plain)]
        known = {
            name: annotation for base in bases for name, annotation in base.__annotations__.items()
        }
        _FIELDS[kind] = known
    return known


def values(item: Plain) -> dict[str, Any]:
    """An object's fields by their names."""
    return {name: getattr(item, name) for name in fields(type(item))}
