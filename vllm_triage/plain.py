"""Plain: the base of the types that a run is made of.

They are classes with annotated fields and nothing else, so that a run needs no pydantic, whose
import takes longer than most logs do. What a user's file says, and what leaves to a user's
program, is validated by pydantic models made from them: `rule_files` and `contract`.
"""

import marshal
from collections.abc import Callable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

LATER = "*"
"""Under it, as `marshal` writes them, the fields that a run asks of few objects: made when one of them is."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Plain:
    """Holds the fields that its class annotates; those with a value there may be left out.

    Frozen as far as the type checker sees; copied, compared and shown as pydantic's models are.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    if not TYPE_CHECKING:
        # A type checker would take every name for a field.

        def __getattr__(self, name: str) -> Any:
            """A field that is made only now; fields with a value in the class never are."""
            later = None if name.startswith("_") else self.__dict__.get(LATER)
            if later is not None:
                for field, value in vars(made(type(self), marshal.loads(later))).items():
                    self.__dict__.setdefault(field, value)
            if name not in self.__dict__:
                message = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(message)
            return self.__dict__[name]

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


T = TypeVar("T", bound=Plain)
_Maker = Callable[[Any], Any]
_MAKERS: dict[type, dict[str, _Maker | None]] = {}


def made(kind: type[T], data: Mapping[str, Any]) -> T:
    """An object of plain data: lists become tuples, values of enumerations their members."""
    makers = _MAKERS.get(kind)
    if makers is None:
        makers = {name: _maker(annotation) for name, annotation in fields(kind).items()}
        makers[LATER] = None
        _MAKERS[kind] = makers
    item = object.__new__(kind)
    inside = item.__dict__
    for name, value in data.items():
        make = makers[name]
        inside[name] = value if make is None or value is None else make(value)
    return item


def _maker(annotation: Any) -> _Maker | None:
    """What makes a field's value of plain data; None where the data is the value."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _maker(arguments[0])
    if origin in (Union, UnionType):
        return _of_several([one for one in arguments if one is not NoneType])
    if origin is tuple:
        make = _maker(arguments[0])
        return tuple if make is None else lambda value: tuple(map(make, value))
    if origin is dict:
        inside = _maker(arguments[1])
        return inside and (lambda value: {key: inside(one) for key, one in value.items()})
    if isinstance(annotation, type):
        if issubclass(annotation, Plain):
            return lambda value: made(annotation, value)
        if issubclass(annotation, Enum):
            return {one.value: one for one in annotation}.__getitem__
        if issubclass(annotation, float):
            return annotation
    return None


def _of_several(annotations: list[Any]) -> _Maker | None:
    """A text, where it may be one, stays as it is."""
    makers = [make for make in map(_maker, annotations) if make is not None]
    if not makers:
        return None
    (make,) = makers
    if len(annotations) == 1:
        return make
    return lambda value: value if isinstance(value, str) else make(value)
