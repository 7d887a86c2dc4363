"""Updates: what a stream has told of its incidents, and what there is new to tell."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vllm_triage.collector import next_round
from vllm_triage.kinds import Kind
from vllm_triage.model import Incident, Update

# What grows with every repeat; told at round counts and at the end.
_GROWING = {"id", "count", "first_seen", "last_seen", "processes", "evidence", "caused_by"}


@dataclass(slots=True)
class _Told:
    update: Update
    state: dict[str, object]
    count: int


class Teller:
    """Remembers what was told of each incident; an incident keeps the id it was first told under."""

    def __init__(self) -> None:
        self._told: dict[tuple[Kind, str], _Told] = {}

    def news(
        self, incidents: Sequence[Incident], root_cause: str | None, *, is_end: bool = False
    ) -> Iterator[Update]:
        """Give the incidents that are new or say something else than before, the root cause first.

        Repeats are told at 1, 2, 5, 10, 20, 50, ... times and, with `is_end`, in the end. An
        incident that turned out to be none comes again, `withdrawn`.
        """
        names = {incident.id: self._id(incident) for incident in incidents}
        root = names.get(root_cause or "", root_cause)
        present = set()
        for incident in incidents:
            key = _key(incident)
            present.add(key)
            shown = incident.model_copy(
                update={
                    "id": names[incident.id],
                    "caused_by": names.get(incident.caused_by or "", incident.caused_by),
                }
            )
            update = self._update(key, shown, root, is_end=is_end)
            if update is not None:
                yield update
        for key, told in self._told.items():
            if key not in present and not told.update.withdrawn:
                told.update = told.update.model_copy(
                    update={
                        "revision": told.update.revision + 1,
                        "withdrawn": True,
                        "root_cause": root,
                    }
                )
                told.state = {}
                yield told.update

    def _id(self, incident: Incident) -> str:
        told = self._told.get(_key(incident))
        return incident.id if told is None else told.update.id

    def _update(
        self, key: tuple[Kind, str], incident: Incident, root: str | None, *, is_end: bool
    ) -> Update | None:
        content = incident.model_dump()
        state = {name: value for name, value in content.items() if name not in _GROWING}
        state["caused_by"] = incident.caused_by
        state["is_root"] = incident.id == root
        told = self._told.get(key)
        if told is not None and told.state == state:
            is_more = incident.count >= next_round(told.count)
            if is_end:
                is_more = any(
                    getattr(told.update, name) != getattr(incident, name) for name in _GROWING
                )
            if not is_more:
                return None
        update = Update.model_construct(
            **{name: getattr(incident, name) for name in Incident.model_fields},
            revision=1 if told is None else told.update.revision + 1,
            root_cause=root,
        )
        self._told[key] = _Told(update, state, incident.count)
        return update


def _key(incident: Incident) -> tuple[Kind, str]:
    """A report has one incident a kind, of unknown exceptions one an exception."""
    name = getattr(incident.facts, "exception", None) or ""
    return incident.kind, name if incident.kind is Kind.ENGINE_UNRECOGNISED else ""
