"""Updates: what a stream has told of its incidents, and what there is new to tell."""

from collections.abc import Iterator, Sequence

from vllm_triage.collector import next_round
from vllm_triage.kinds import Kind, Role
from vllm_triage.model import Incident, Update
from vllm_triage.plain import values

# What grows with every repeat; told at round counts and at the end.
_GROWING = {"id", "count", "first_seen", "last_seen", "processes", "evidence", "caused_by"}
# What changes the answer, and so is told at once.
_URGENT = ("severity", "role", "caused_by", "is_root")

MAX_HELD_LINES = 1000
"""After so many lines what was held back is told, whether or not the stream was quiet."""

_Key = tuple[Kind, str]


class _Told:
    __slots__ = ("count", "state", "update")

    def __init__(self, update: Update, state: dict[str, object], count: int) -> None:
        self.update = update
        self.state = state
        self.count = count


class Teller:
    """Remembers what was told of each incident; an incident keeps the id it was first told under.

    A cause is told at once. A consequence or a symptom whose cause has not been seen waits for
    it: until then nobody should be woken with "the cause is not in this log". So does what only
    adds to an incident already told: facts, repeats. Both are told when the lines up to where
    they were noticed have been followed by a quiet time, after 1000 lines, and at the end.
    """

    def __init__(self) -> None:
        self._told: dict[_Key, _Told] = {}
        self._held: dict[_Key, int] = {}
        self._silent: dict[_Key, str] = {}
        self._root: str | None = None

    def is_due(self, line: int, quiet: int = 0) -> bool:
        """Tell whether something that was held back is to be told now."""
        first = min(self._held.values(), default=line)
        return bool(self._held) and (first <= quiet or line - first >= MAX_HELD_LINES)

    def news(
        self,
        incidents: Sequence[Incident],
        root_cause: str | None,
        *,
        line: int = 0,
        quiet: int = 0,
        is_end: bool = False,
    ) -> Iterator[Update]:
        """Give the incidents that are new or say something else than before, causes first.

        `line` is the stream's last line, `quiet` the last one that a quiet time followed.
        Repeats are told at 1, 2, 5, 10, 20, 50, ... times and, with `is_end`, in the end. An
        incident that turned out to be none comes again, `withdrawn`.
        """
        names = {incident.id: self._id(incident) for incident in incidents}
        shown = {
            names[incident.id]: incident.model_copy(
                update={
                    "id": names[incident.id],
                    "caused_by": names.get(incident.caused_by or "", incident.caused_by),
                }
            )
            for incident in incidents
        }
        due = {
            key
            for key, since in self._held.items()
            if is_end or since <= quiet or line - since >= MAX_HELD_LINES
        }
        root = names.get(root_cause or "", root_cause)
        found = shown.get(root or "")
        if found is None or self._is_certain(found, shown, due, is_end=is_end):
            self._root = root
        elif self._root not in shown:
            self._root = None
        speaking: dict[str, Incident] = {}
        for incident in shown.values():
            if self._is_silent(incident):
                continue
            if self._speaks(incident, shown, due, is_end=is_end):
                _with_causes(incident, shown, self._told, speaking)
            elif self._differs(incident, is_end=is_end):
                self._held.setdefault(_key(incident), line)
            else:
                self._held.pop(_key(incident), None)
        if speaking and found is not None and self._is_silent(found) and self._root == found.id:
            # No update names an incident that was not told.
            speaking = {found.id: found, **speaking}
        for incident in speaking.values():
            yield self._update(incident)
        yield from self._withdrawn({_key(incident) for incident in shown.values()})

    def forget(self, kept: Sequence[Incident]) -> None:
        """Close the incidents that are not among those kept: a later one of their kind is new."""
        counts = {_key(incident): incident.count for incident in kept}
        self._told = {key: told for key, told in self._told.items() if key in counts}
        self._held = {key: line for key, line in self._held.items() if key in counts}
        for key, told in self._told.items():
            told.count = counts[key]
        if self._root not in {told.update.id for told in self._told.values()}:
            self._root = None

    def silence(self, incidents: Sequence[Incident]) -> None:
        """Do not tell these, as they are, unless they turn out to be the cause of one that is told."""
        self._silent = {_key(incident): incident.id for incident in incidents}

    def _is_silent(self, incident: Incident) -> bool:
        return self._silent.get(_key(incident)) == incident.id

    def _id(self, incident: Incident) -> str:
        told = self._told.get(_key(incident))
        return incident.id if told is None else told.update.id

    def _is_certain(
        self, incident: Incident, shown: dict[str, Incident], due: set[_Key], *, is_end: bool
    ) -> bool:
        """Whether an incident can be told: it is a cause, its cause can be, or it has waited."""
        for _ in shown:
            key = _key(incident)
            if is_end or key in self._told or key in due:
                return True
            cause = shown.get(incident.caused_by or "")
            if cause is None:
                break
            incident = cause
        return incident.role is Role.CAUSE and incident.caused_by is None

    def _speaks(
        self, incident: Incident, shown: dict[str, Incident], due: set[_Key], *, is_end: bool
    ) -> bool:
        told = self._told.get(_key(incident))
        if told is None or told.update.withdrawn:
            return self._is_certain(incident, shown, due, is_end=is_end)
        state = self._state(incident)
        if any(told.state.get(name) != state[name] for name in _URGENT):
            return True
        return (is_end or _key(incident) in due) and self._differs(incident, is_end=is_end)

    def _differs(self, incident: Incident, *, is_end: bool) -> bool:
        told = self._told.get(_key(incident))
        if told is None or told.state != self._state(incident):
            return True
        if is_end:
            return any(getattr(told.update, name) != getattr(incident, name) for name in _GROWING)
        return incident.count >= next_round(told.count)

    def _state(self, incident: Incident) -> dict[str, object]:
        state = {name: value for name, value in values(incident).items() if name not in _GROWING}
        state["caused_by"] = incident.caused_by
        state["is_root"] = incident.id == self._root
        state["root"] = self._root
        return state

    def _update(self, incident: Incident) -> Update:
        key = _key(incident)
        self._held.pop(key, None)
        self._silent.pop(key, None)
        told = self._told.get(key)
        update = Update(
            **values(incident),
            revision=1 if told is None else told.update.revision + 1,
            root_cause=self._root,
        )
        self._told[key] = _Told(update, self._state(incident), incident.count)
        return update

    def _withdrawn(self, present: set[_Key]) -> Iterator[Update]:
        for key in [key for key in self._held if key not in present]:
            del self._held[key]
        for key, told in self._told.items():
            if key not in present and not told.update.withdrawn:
                told.update = told.update.model_copy(
                    update={
                        "revision": told.update.revision + 1,
                        "withdrawn": True,
                        "root_cause": self._root,
                    }
                )
                told.state = {}
                yield told.update


def _with_causes(
    incident: Incident,
    shown: dict[str, Incident],
    told: dict[_Key, _Told],
    speaking: dict[str, Incident],
) -> None:
    """Add an incident, before it the causes that were not told yet: no update names an unknown one."""
    chain = [incident]
    while (
        (cause := shown.get(chain[-1].caused_by or "")) is not None
        and _key(cause) not in told
        and cause not in chain
    ):
        chain.append(cause)
    for one in reversed(chain):
        speaking.setdefault(one.id, one)


def _key(incident: Incident) -> _Key:
    """A report has one incident a kind, of unknown exceptions one an exception."""
    name = getattr(incident.facts, "exception", None) or ""
    return incident.kind, name if incident.kind is Kind.ENGINE_UNRECOGNISED else ""
