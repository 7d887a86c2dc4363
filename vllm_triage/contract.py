"""The contract: a report as pydantic models, the types of the library and of the JSON.

Each is the plain class of the same name, with what it says of its fields, validated and
serialised; `validated` makes one of a plain object.
"""

from typing import Annotated, cast, overload

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from vllm_triage import facts, model


class _Frozen(BaseModel):
    # What is not asked for on its own is not built on its own; `model_type` is a field of ours.
    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, protected_namespaces=()
    )


class OomFacts(_Frozen, facts.OomFacts):
    __doc__ = facts.OomFacts.__doc__


class PerformanceFacts(_Frozen, facts.PerformanceFacts):
    __doc__ = facts.PerformanceFacts.__doc__


class LoadingFacts(_Frozen, facts.LoadingFacts):
    __doc__ = facts.LoadingFacts.__doc__


class NetworkFacts(_Frozen, facts.NetworkFacts):
    __doc__ = facts.NetworkFacts.__doc__


class QuantizationFacts(_Frozen, facts.QuantizationFacts):
    __doc__ = facts.QuantizationFacts.__doc__


class DistributedFacts(_Frozen, facts.DistributedFacts):
    __doc__ = facts.DistributedFacts.__doc__


class GpuFacts(_Frozen, facts.GpuFacts):
    __doc__ = facts.GpuFacts.__doc__


class EngineFacts(_Frozen, facts.EngineFacts):
    __doc__ = facts.EngineFacts.__doc__


class ConfigFacts(_Frozen, facts.ConfigFacts):
    __doc__ = facts.ConfigFacts.__doc__


class RequestFacts(_Frozen, facts.RequestFacts):
    __doc__ = facts.RequestFacts.__doc__


class HostFacts(_Frozen, facts.HostFacts):
    __doc__ = facts.HostFacts.__doc__


AnyFacts = Annotated[
    OomFacts
    | PerformanceFacts
    | LoadingFacts
    | NetworkFacts
    | QuantizationFacts
    | DistributedFacts
    | GpuFacts
    | EngineFacts
    | ConfigFacts
    | RequestFacts
    | HostFacts,
    Field(discriminator="family"),
]


class Source(_Frozen, model.Source):
    __doc__ = model.Source.__doc__


class RunInfo(_Frozen, model.RunInfo):
    __doc__ = model.RunInfo.__doc__

    arguments: dict[str, str | int | float | bool | list[str] | None] = {}


class Evidence(_Frozen, model.Evidence):
    __doc__ = model.Evidence.__doc__

    line: int = Field(ge=1)


class FixStep(_Frozen, model.FixStep):
    __doc__ = model.FixStep.__doc__

    number: int = Field(ge=1)
    change: dict[str, str] = {}


class MemoryBudget(_Frozen, model.MemoryBudget):
    __doc__ = model.MemoryBudget.__doc__


class Incident(_Frozen, model.Incident):
    __doc__ = model.Incident.__doc__

    facts: AnyFacts
    memory: MemoryBudget | None = None
    fix_steps: tuple[FixStep, ...] = ()
    evidence: tuple[Evidence, ...] = Field(min_length=1)

    @model_serializer(mode="wrap")
    def _without_empty_facts(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        out: dict[str, object] = handler(self)
        for part in ("facts", "memory"):
            values = out.get(part)
            if isinstance(values, dict):
                out[part] = {name: value for name, value in values.items() if value is not None}
        return out


class Update(Incident, model.Update):
    __doc__ = model.Update.__doc__

    revision: int = Field(default=1, ge=1)


class Report(_Frozen, model.Report):
    __doc__ = model.Report.__doc__

    sources: tuple[Source, ...] = ()
    runs: tuple[RunInfo, ...] = ()
    incidents: tuple[Incident, ...] = ()

    @property
    def root(self) -> Incident | None:
        """The incident that `root_cause` names."""
        return cast("Incident | None", super().root)


@overload
def validated(item: model.Report) -> Report: ...
@overload
def validated(item: model.Update) -> Update: ...
@overload
def validated(item: model.Incident) -> Incident: ...
def validated(item: model.Report | model.Incident) -> Report | Incident:
    """A report, an update or an incident as its pydantic model."""
    kinds: dict[type, type[Report | Incident]] = {
        model.Report: Report,
        model.Update: Update,
        model.Incident: Incident,
    }
    kind = kinds.get(type(item))
    return (
        cast("Report", item) if kind is None else kind.model_validate(item, from_attributes=True)
    )
