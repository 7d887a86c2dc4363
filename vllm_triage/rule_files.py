"""Rule files: what a TOML file says, validated.

The classes of `rules` say what a file may hold; pydantic holds it to that.
"""

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, create_model, model_validator

from vllm_triage.plain import Plain, fields
from vllm_triage.rules import Pattern

_MODELS: dict[type, type[BaseModel]] = {}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _CanMatch(_Strict):
    @model_validator(mode="after")
    def _has_a_condition(self) -> "_CanMatch":
        has_keywords = bool(getattr(self, "keywords", ()) or getattr(self, "any_of", ()))
        has_regex = bool(getattr(self, "regex", ""))
        if getattr(self, "artefact", None) is not None:
            if has_keywords or has_regex:
                message = (
                    "has artefact, whose values are judged, and keywords or a regex; keep one"
                )
                raise ValueError(message)
            return self
        if not has_keywords:
            message = "needs keywords or any_of: plain texts that its lines hold"
            raise ValueError(message)
        if not has_regex:
            message = "needs a regex, or artefact"
            raise ValueError(message)
        return self


def checked(kind: type[Plain], data: Mapping[str, object]) -> dict[str, Any]:
    """A file's content, of which a rule, an extension or a topic can be made.

    Raises ValueError, which says where and what is wrong.
    """
    try:
        found = _model(kind).model_validate(data)
    except ValidationError as error:
        raise ValueError(_explain(data, error)) from error
    return found.model_dump(exclude_unset=True)


def _explain(data: Mapping[str, object], error: ValidationError) -> str:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    if len(place) > 1 and place[0] in ("pattern", "fix"):
        items = data.get(place[0])
        index = int(place[1])
        item = items[index] if isinstance(items, list) and index < len(items) else {}
        name = item.get("name") or item.get("do") if isinstance(item, dict) else None
        place[:2] = [f"{place[0]} {index + 1}" + (f" ({name})" if name else "")]
    given = repr(first["input"])
    shown = given if len(given) <= 80 else given[:77] + "..."
    return f"{', '.join(place)}: {first['msg']} (found {shown})"


def _model(kind: type) -> type[BaseModel]:
    known = _MODELS.get(kind)
    if known is None:
        known = _MODELS[kind] = _made(kind)
    return known


def _made(kind: type) -> type[BaseModel]:
    named = {
        name: (_annotation(annotation), getattr(kind, name, ...))
        for name, annotation in fields(kind).items()
    }
    base = _CanMatch if kind is Pattern else _Strict
    # The stubs know no field by its name only.
    return create_model(kind.__name__, __base__=base, **named)  # type: ignore[call-overload,no-any-return]


def _annotation(annotation: Any) -> Any:
    """The annotation with models in place of plain classes."""
    if isinstance(annotation, type) and issubclass(annotation, Plain):
        return _model(annotation)
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[_annotation(inside[0]), *inside[1:]]
    if origin in (Union, UnionType):
        return Union[tuple(map(_annotation, inside))]  # noqa: UP007
    if origin is tuple:
        return tuple.__class_getitem__((_annotation(inside[0]), ...))
    return annotation
