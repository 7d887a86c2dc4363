"""A few lines an incident, for who watches a log."""

from collections import OrderedDict

from vllm_triage.kinds import Confidence, Severity
from vllm_triage.model import Incident, Update
from vllm_triage.reports.clean import clean, inert, located

_COLOURS = {Severity.FATAL: "1;31", Severity.DEGRADED: "1;33", Severity.NOTICE: "1;36"}
_MAX_STEPS = 3
_MAX_TEXT = 500
_MAX_KNOWN = 1024


class Brief:
    """Writes updates: a new incident with its proof and first steps, later ones as what is new of it."""

    def __init__(self, *, colour: bool = False) -> None:
        self._colour = colour
        self._known: OrderedDict[tuple[str, str], Update] = OrderedDict()

    def __call__(self, update: Update) -> str:
        """Some lines, without the last line end."""
        return inert(self._told(update))

    def _told(self, update: Update) -> str:
        key = update.evidence[0].source, update.id
        before = self._known.get(key)
        self._known[key] = update
        self._known.move_to_end(key)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        if before is None or (before.withdrawn and not update.withdrawn):
            if update.caused_by is not None:
                # Its title may say that nobody knows the cause.
                name = f"{update.kind.value} ({_place(update)})"
                return f"ALSO  {clean(name)}: caused by {self._cause(update)}"
            return self._whole(update)
        name = f"{update.title} ({update.kind.value}, {_place(update)})"
        return self._paint(f"UPDATE  {clean(name)}: {self._news(before, update)}", "1")

    def _news(self, before: Update, update: Update) -> str:
        if update.withdrawn:
            return "no incident after all; the server went on"
        parts = []
        if update.caused_by != before.caused_by:
            known = f"now known: caused by {self._cause(update)}"
            parts.append(known if update.caused_by else "a cause of its own")
        if update.severity is not before.severity:
            parts.append(f"now {update.severity.value}")
        if update.count != before.count:
            parts.append(f"{update.count} times")
        if update.confidence is not before.confidence:
            parts.append(f"now {update.confidence.value}")
        if not parts and update.evidence[0] != before.evidence[0]:
            parts.append(f"better seen in {clean(update.evidence[0].text)[:_MAX_TEXT].strip()}")
        return ", ".join(parts) or "more of it was printed"

    def _cause(self, update: Update) -> str:
        cause = self._known.get((update.evidence[0].source, update.caused_by or ""))
        return clean(cause.kind.value if cause else update.caused_by or "")

    def _whole(self, update: Update) -> str:
        word = update.severity.value.upper()
        head = f"{update.title} ({update.kind.value})"
        if update.confidence is not Confidence.CERTAIN:
            head += f", {update.confidence.value}"
        if update.count > 1:
            head += f", {update.count} times"
        rows = [self._paint(word, _COLOURS[update.severity]) + f"  {clean(head)}"]
        where = [_place(update), ", ".join(update.processes[:4]), update.first_seen or ""]
        rows.append("  " + clean(" · ".join(part for part in where if part)))
        rows.append("  " + self._paint(clean(update.evidence[0].text).strip()[:_MAX_TEXT], "33"))
        return "\n".join([*rows, *self._steps(update)])

    def _steps(self, update: Incident) -> list[str]:
        rows = []
        for step in update.fix_steps[:_MAX_STEPS]:
            rows.append(f"  {step.number}. {clean(step.do).replace('`', '')}")
            # Never wrapped: it is there to be copied.
            rows += [
                self._paint(f"       {clean(row)}", "32")
                for row in (step.command or "").splitlines()
            ]
        left = len(update.fix_steps) - _MAX_STEPS
        if left > 0:
            more = "one more step" if left == 1 else f"{left} more steps"
            rows.append(f"  {more}: vllm-triage explain {update.kind.value}")
        return rows

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text


def _place(update: Incident) -> str:
    first = update.evidence[0]
    return located(first.source, first.line)
