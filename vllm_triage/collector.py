"""The collector: matches folded into groups as they come, repeats counted."""

from collections import Counter, OrderedDict
from collections.abc import Sequence

from vllm_triage.catalogue import Catalogue
from vllm_triage.causes import choose
from vllm_triage.groups import (
    GRAVITY,
    Group,
    begin,
    count,
    is_warning,
    promote,
    short_name,
    unrecognised,
)
from vllm_triage.kinds import Confidence, Kind, Phase, Role, Severity
from vllm_triage.lines import Line, Origin
from vllm_triage.matches import Match, Unknown
from vllm_triage.phases import in_engine
from vllm_triage.run import Run
from vllm_triage.survival import has_left, lower, was_survived

_MAX_CHAINS = 512
_MAX_LINKS = 256
_MAX_FAILED = 4096
_MAX_PER_KIND = 32
_CONFIDENCE = {confidence: place for place, confidence in enumerate(Confidence)}
# How a program ends on purpose, and what a client that went away leaves behind.
_ORDERLY = frozenset(
    ("KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit", "StopIteration",
     "StopAsyncIteration", "BrokenPipeError", "ClientDisconnect", "Error", "Exit", "Interrupt",
     "ExceptionGroup", "BaseExceptionGroup")
)  # fmt: skip


_Key = tuple[object, ...]
_MAX_TOLD = 16
_MAX_TEXT = 2000


class Collector:
    """Folds matches as they come; its memory does not grow with the log."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.changes = 0
        """Rises when an incident may be new or differ from what was told of it."""
        self._catalogue = catalogue
        self._groups: dict[tuple[Kind, str, int], Group] = {}
        self._last: dict[tuple[Kind, str], Group] = {}
        self._counts: Counter[Kind] = Counter()
        self._chains: OrderedDict[_Key, list[Match | Unknown]] = OrderedDict()
        self._failed: dict[int, None] = {}
        self._deaths: OrderedDict[_Key, _Key] = OrderedDict()
        """By process the record of its engine's death: what is logged with it is what it died of."""
        self._context: list[Group] = []

    def add(self, item: Match | Unknown) -> None:
        """Take a match, or an exception that no rule knows."""
        said = item.event.first.phase or item.run.phase
        if said is Phase.SHUTDOWN and item.run.index not in self._failed:
            return
        if isinstance(item, Match) and item.recogniser.severity is Severity.FATAL:
            self._failed[item.run.index] = None
            if len(self._failed) > _MAX_FAILED:
                self._failed.pop(next(iter(self._failed)))
        if not item.event.chain:
            if isinstance(item, Match) and item.kind is Kind.ENGINE_DEAD:
                self._note_death(item.event.first)
            self._fold(item)
            return
        key = item.event.first.key
        chain = self._chains.get(key)
        if (
            chain is not None
            and chain[0].event.chain == item.event.chain
            and len(chain) < _MAX_LINKS
        ):
            chain.append(item)
            return
        self.settle(key)
        self._chains[key] = [item]
        if len(self._chains) > _MAX_CHAINS:
            self.settle(next(iter(self._chains)))

    def _note_death(self, line: Line) -> None:
        if line.place is not None:
            self._deaths[line.key] = (line.time, line.place)
            if len(self._deaths) > _MAX_CHAINS:
                self._deaths.popitem(last=False)

    @property
    def has_open(self) -> bool:
        """Whether a printed chain of exceptions may go on."""
        return bool(self._chains)

    def settle(self, key: _Key) -> None:
        """Decide what a process's chain of exceptions was about: it has ended."""
        chain = self._chains.pop(key, None)
        if chain is not None:
            self._settle(chain)

    def forget(self, run: Run | None = None, *, context: Sequence[Group] = ()) -> None:
        """Drop everything, or only what the runs before this one of its container said.

        The groups of `context` go on explaining what comes, until their kind comes again or
        the next `forget`.
        """
        self._context = list(context)
        kept = {
            key: group
            for key, group in self._groups.items()
            if run is not None
            and not (
                group.run.index < run.index
                and (group.run.source, group.run.container) == (run.source, run.container)
            )
        }
        self._groups, self._last = {}, {}
        self._counts.clear()
        for (kind, name, index), group in kept.items():
            self._groups[kind, name, index] = group
            self._last[kind, name] = self._last[kind, ""] = group
            self._counts[kind] += 1

    def forget_context(self) -> None:
        """Let what was said before explain nothing any more."""
        self._context = []

    def copy(self) -> "Collector":
        """A collector that takes more without changing this one."""
        view = Collector(self._catalogue)
        copies = {id(group): group.copy() for group in self._groups.values()}
        view._groups = {key: copies[id(group)] for key, group in self._groups.items()}
        view._last = {key: copies[id(group)] for key, group in self._last.items()}
        view._counts = self._counts.copy()
        view._chains = OrderedDict((key, list(chain)) for key, chain in self._chains.items())
        view._failed = dict(self._failed)
        view._deaths = self._deaths.copy()
        view._context = [group.copy() for group in self._context]
        return view

    def groups(self, *, only_ended: bool = False) -> list[Group]:
        """What was said so far, one group a kind and run; the caller may change them.

        With `only_ended` a chain of exceptions that may go on is left out.
        """
        view = self.copy()
        if not only_ended:
            for key in self._chains:
                view.settle(key)
        groups = list(view._groups.values())
        kinds = {group.kind for group in groups}
        groups += [group for group in view._context if group.kind not in kinds]
        died: dict[int, list[Group]] = {}
        for group in groups:
            if group.kind in (Kind.ENGINE_DEAD, Kind.ENGINE_CRASHED):
                died.setdefault(group.run.index, []).append(group)
        groups = [group for group in groups if not was_survived(group)]
        for group in groups:
            dead = died.get(group.run.index, [])
            if (
                dead
                and group.kind is Kind.ENGINE_UNRECOGNISED
                and in_engine(group.event.frames, group.line.place)
            ):
                group.severity = Severity.FATAL
            lower(group, dead)
        return groups

    def _group(
        self, kind: Kind, name: str, run: int
    ) -> tuple[Group | None, tuple[Kind, str, int]]:
        """The group to count something in, and the key for a new one.

        A log that shows one kind in very many runs, or very many unknown exceptions, has the
        rest counted with the last of them.
        """
        key = (kind, name, run)
        group = self._groups.get(key)
        if group is None and self._counts[kind] >= _MAX_PER_KIND:
            group = self._last.get((kind, name)) or self._last[kind, ""]
        return group, key

    def _keep(self, key: tuple[Kind, str, int], group: Group) -> Group:
        kind, name, _ = key
        self._groups[key] = self._last[kind, name] = self._last[kind, ""] = group
        self._counts[kind] += 1
        self.changes += 1
        return group

    def _settle(self, chain: list[Match | Unknown]) -> None:
        chosen = choose(chain)
        if chosen is None:
            return
        # What is printed under "the engine died" is what it died of.
        first = chain[0].event.first
        is_deadly = self._deaths.get(first.key) == (first.time, first.place) or any(
            isinstance(item, Match) and item.kind is Kind.ENGINE_DEAD for item in chain
        )
        self._fold(chosen, is_deadly=is_deadly)
        for item in chain:
            if item is chosen or isinstance(item, Unknown):
                continue
            is_same = isinstance(chosen, Match) and item.kind is chosen.kind
            if is_same or item.recogniser.role is Role.CONSEQUENCE:
                self._fold(item)

    def _fold(self, item: Match | Unknown, *, is_deadly: bool = False) -> None:
        if isinstance(item, Unknown):
            self._fold_unknown(item, is_deadly=is_deadly)
            return
        recogniser = item.recogniser
        rank = (
            -int(recogniser.role is not Role.CAUSE),
            # What a log says is nearer to what happened than what lies beside it.
            -int(item.event.origin is Origin.ARTEFACT),
            -GRAVITY[recogniser.severity],
            -_CONFIDENCE[recogniser.pattern.confidence],
            -int(item.event.restored),
            # A record says it more plainly than an exception that went through several hands.
            -int(bool(item.event.chain)),
            -item.position,
        )
        group, key = self._group(item.kind, self._name(item), item.run.index)
        if group is None:
            group = self._keep(key, begin(item, item.line, recogniser, rank))
            group.name = key[1]
        elif rank > group.rank:
            promote(group, item, recogniser, rank)
            self.changes += 1
        elif GRAVITY[recogniser.severity] < GRAVITY[group.severity]:
            group.severity = recogniser.severity
            self.changes += 1
        if is_deadly and group.severity is not Severity.FATAL:
            group.severity = Severity.FATAL
            self.changes += 1
        if item.event.table and not group.event.table:
            group.event = group.event._replace(table=item.event.table)
        if recogniser.id not in group.patterns:
            group.patterns.append(recogniser.id)
            self.changes += 1
        for name, value in item.fields.items():
            if value is not None and name not in group.fields:
                group.fields[name] = value
                if isinstance(value, str) and len(group.told) < _MAX_TOLD:
                    group.told = (*group.told, item.event.text[:_MAX_TEXT])
                self.changes += 1
        self._count(group, item, item.line)

    def _name(self, item: Match) -> str:
        """What an artefact's variable is told apart by: each is a fault of its own, unless a log tells of it."""
        name = str(item.fields.get("argument") or "")
        if item.event.origin is not Origin.ARTEFACT or not name:
            return ""
        said = self._groups.get((item.kind, "", item.run.index))
        is_told = said is not None and name in (
            said.fields.get("argument"),
            said.fields.get("variable"),
        )
        return "" if is_told else name

    def _fold_unknown(self, item: Unknown, *, is_deadly: bool) -> None:
        name = short_name(item.event)
        rule = self._catalogue.rules.get(Kind.ENGINE_UNRECOGNISED)
        if (
            name in _ORDERLY
            or has_left(item.event)
            or name.endswith("Warning")
            or is_warning(item.event)
            or rule is None
        ):
            return
        group, key = self._group(Kind.ENGINE_UNRECOGNISED, name, item.run.index)
        if group is None:
            group = self._keep(key, unrecognised(item, rule))
        if is_deadly and group.severity is not Severity.FATAL:
            group.severity = Severity.FATAL
            self.changes += 1
        self._count(group, item, item.event.first)

    def _count(self, group: Group, item: Match | Unknown, line: Line) -> None:
        before = group.count
        count(group, item, line)
        if group.count != before and is_round(group.count):
            self.changes += 1


def is_round(count: int) -> bool:
    """Tell a count that is worth telling: 1, 2, 5, 10, 20, 50, ..."""
    return str(count).rstrip("0") in ("1", "2", "5")


def next_round(count: int) -> int:
    """The next count that is worth telling: 1, 2, 5, 10, 20, 50, ..."""
    unit: int = 10 ** max(0, len(str(count)) - 1)
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor > count)
