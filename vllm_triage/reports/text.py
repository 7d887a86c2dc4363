"""The report for a terminal: the answer on the first screen."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from vllm_triage import lines, versions
from vllm_triage.artefacts.formats import FORMATS
from vllm_triage.commands import has_change
from vllm_triage.completed import difference
from vllm_triage.expressions import expression
from vllm_triage.kinds import Confidence, Phase, Role, Severity
from vllm_triage.model import Evidence, FixStep, Incident, Report, RunInfo, Source
from vllm_triage.numbers import whole
from vllm_triage.reports.budget import heading, rows
from vllm_triage.reports.clean import clean, inert, located
from vllm_triage.reports.grid import aligned
from vllm_triage.templates import counted

_COLOURS = {Severity.FATAL: "1;31", Severity.DEGRADED: "1;33", Severity.NOTICE: "1;36"}
_PHASES = {Phase.STARTUP: "while starting", Phase.SERVING: "while serving"}
_MAX_EVIDENCE = 3
_MAX_OTHERS = 6
_BESIDE = frozenset(one.name for one in FORMATS if not one.is_log)
"""The formats of what is no log."""
_MAX_NAMES = 3
_INDENT = "  "
_EXCEPTION = expression(r"(?<![\w.])[\w.]*(?:Error|Exception): ")
_NUMBERED = expression(r"(.*?)(\d+)")


class _Page(NamedTuple):
    width: int
    colour: bool

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def wrapped(self, text: str, first: str, rest: str | None = None, most: int = 99) -> list[str]:
        rest = " " * len(first) if rest is None else rest
        rows = textwrap.wrap(
            clean(text),
            self.width,
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
        ) or [first.rstrip()]
        if len(rows) > most:
            last = rows[most - 1] + " " + " ".join(row.strip() for row in rows[most:])
            rows = [*rows[: most - 1], _cut(last, self.width)]
        return rows


def render(report: Report, *, width: int = 80, colour: bool = False, every: bool = False) -> str:
    """The root cause in full, the rest in a line each; with `every`, all incidents in full."""
    page = _Page(max(60, min(width, 100)), colour)
    root = report.root
    if root is None:
        return inert("\n".join([*_nothing(report, page), *_problems(report, page)])) + "\n"
    out = _incident(page, report, root, every=every)
    others = [incident for incident in report.incidents if incident is not root]
    if every:
        for incident in others:
            out += [
                "",
                page.paint("─" * page.width, "2"),
                *_incident(page, report, incident, every=True),
            ]
    else:
        out += _others(page, report, root, others)
    out += _together(page, report)
    out += _more(page, root, hidden=0 if every else len(others))
    out += _problems(report, page)
    return inert("\n".join(out)) + "\n"


def _nothing(report: Report, page: _Page) -> list[str]:
    count = sum(source.lines for source in report.sources)
    # Of a file that could not be read in full the problem says more.
    whole = [source for source in report.sources if source.problem is None]
    sources = whole or [source for source in report.sources if source.lines]
    names = _names(sources) or "the input"
    out = page.wrapped(f"No incident found in {counted(count, 'line')} of {names}.", "")
    if count == 0:
        return [*out, "The input is empty: is it the right file?"]
    if sources and all(source.format in _BESIDE for source in sources):
        hint = (
            "If the server is slow or broken all the same, give its log and these files in one call: "
            "much shows only beside the log."
        )
        return [*out, *page.wrapped(hint, "")]
    hint = (
        "If the server is broken all the same, give the log from its start, with the output of "
        "every process, or run it with VLLM_LOGGING_LEVEL=DEBUG."
    )
    return [*out, *page.wrapped(hint, "")]


def _names(sources: Sequence[Source]) -> str:
    read = [f"{one.name} ({one.format})" if one.format in _BESIDE else one.name for one in sources]
    more = f" and {len(read) - _MAX_NAMES} more" if len(read) > _MAX_NAMES else ""
    return ", ".join(read[:_MAX_NAMES]) + more


def _together(page: _Page, report: Report) -> list[str]:
    """Of several logs, that they were taken for one deployment's: what one says explains the other."""
    read = [source for source in report.sources if source.problem is None and source.lines]
    known = [one.name for one in FORMATS]
    if len([source for source in read if source.format not in known]) < 2:
        return []
    text = f"Read as one deployment: {_names(read)}. If they are not, triage each alone."
    return ["", *page.wrapped(text, "")]


def _problems(report: Report, page: _Page) -> list[str]:
    said = []
    for source in report.sources:
        if source.truncated_lines:
            cut = counted(source.truncated_lines, "line")
            said.append(f"Longer than 1 MiB and cut: {cut} of {source.name}.")
        elif not source.lines and source.problem is None and len(report.sources) > 1:
            said.append(f"{source.name} is empty.")
    return [row for one in said for row in page.wrapped(one, "")]


def _incident(page: _Page, report: Report, incident: Incident, *, every: bool) -> list[str]:
    word = incident.severity.value.upper()
    margin = " " * (len(word) + 2)
    head = page.wrapped(f"{word}  {incident.title}", "", margin)
    head[0] = page.paint(word, _COLOURS[incident.severity]) + page.paint(head[0][len(word) :], "1")
    run = _run(report, incident)
    is_orphan = incident.role is Role.CONSEQUENCE and incident.caused_by is None
    story = [_plain(incident.summary), _plain(incident.cause)]
    if not every:
        # The summary may quote the log, the steps are what the reader needs to see.
        story = [_elided(text, 3 * page.width) for text in story]
    if is_orphan:
        story.insert(0, "The cause is not in this log.")
    out = [
        *head,
        *_where(page, run, incident, margin),
        "",
        *_evidence(page, report, incident, every=every),
        "",
        *page.wrapped(" ".join(story), ""),
        "",
        *_table(page, incident),
        page.paint("What to do", "1"),
    ]
    for step in incident.fix_steps:
        out += _step(page, step, run)
    if incident.suggested_command:
        number = _applied(incident)
        out += [
            "",
            page.paint(f"Your command, with {number}", "1"),
            *_command(page, incident.suggested_command, _INDENT),
        ]
    out += _memory(page, incident)
    if is_orphan and incident.collect:
        out += ["", page.paint("Collect, while the cause is unknown", "1")]
        for item in incident.collect:
            out += page.wrapped(_plain(item), "  - ")
    if incident.verify:
        out += ["", *page.wrapped(_plain(incident.verify), "Check: ")]
    return out


def _table(page: _Page, incident: Incident) -> list[str]:
    """Values beside each other; the columns that do not fit in the page are left out."""
    shown = aligned(incident.table, page.width - len(_INDENT))
    if not shown:
        return []
    head, *body = (_INDENT + row for row in shown)
    return [page.paint(head, "1"), *body, ""]


def _where(page: _Page, run: RunInfo | None, incident: Incident, margin: str) -> list[str]:
    parts = [incident.kind.value]
    if run is not None:
        inferred = " (from code lines)" if run.vllm_version_from == "code" else ""
        parts += [
            f"vLLM {run.vllm_version}{inferred}" if run.vllm_version else "",
            run.model or "",
        ]
        parts.append(_PHASES.get(run.phase, "") if run.phase else "")
    parts.append(_processes(incident.processes))
    if incident.count > 1:
        parts.append(f"{incident.count} times")
    if run is not None and run.restarts:
        parts.append(counted(run.restarts, "restart"))
    if incident.first_seen:
        later = incident.last_seen if incident.last_seen != incident.first_seen else None
        parts.append(incident.first_seen + (f" to {later}" if later else ""))
    if incident.confidence is not Confidence.CERTAIN:
        parts.append(f"{incident.confidence.value}, not certain")
    # Each part stays in one row where it can.
    kept = " · ".join(clean(part).replace(" ", "\xa0") for part in parts if part)
    return [row.replace("\xa0", " ") for row in page.wrapped(kept, margin)]


def _run(report: Report, incident: Incident) -> RunInfo | None:
    first = incident.evidence[0]
    own = [
        run
        for run in report.runs
        if run.source == first.source and (run.first_line or 0) <= first.line
    ]
    return own[-1] if own else (report.runs[0] if len(report.runs) == 1 else None)


def _processes(names: Sequence[str]) -> str:
    if len(names) < 3:
        return ", ".join(names)
    parts = [_NUMBERED.fullmatch(name) for name in names]
    found = [(part[1], whole(part[2])) for part in parts if part is not None]
    numbers = sorted(number for _, number in found)
    if (
        len(found) == len(names)
        and len({stem for stem, _ in found}) == 1
        and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    ):
        return f"{found[0][0]}{numbers[0]} to {numbers[-1]}"
    return f"{names[0]} and {len(names) - 1} more processes"


def _evidence(page: _Page, report: Report, incident: Incident, *, every: bool) -> list[str]:
    out: list[str] = []
    said: set[str] = set()
    shown = incident.evidence if every else incident.evidence[:_MAX_EVIDENCE]
    for index, one in enumerate(shown):
        first = f"{_INDENT}{_place(report, one)}  "
        most = 3 if index == 0 else 1
        text = clean(one.text).strip() or "(blank)"
        if len(text) > (page.width - len(first)) * min(most, 2):
            text = _said(one)
        text = _elided(text, page.width * most - len(first) - len(_INDENT * 3) * most)
        if text[: page.width] in said:
            continue
        said.add(text[: page.width])
        rows = page.wrapped(text, first, _INDENT * 3, most)
        out += [page.paint(row, "33") if index == 0 else page.paint(row, "2") for row in rows]
    return out


def _place(report: Report, one: Evidence) -> str:
    several = len({source.name for source in report.sources}) > 1
    return clean(located(one.source, one.line)) if several else f"line {one.line}"


def _said(one: Evidence) -> str:
    """A long line without what loggers and shippers put before the message."""
    parsed = lines.parse(one.source, one.line, one.text)
    text = one.text if len(parsed) > 1 else parsed[0].text.strip()
    exception = _EXCEPTION.search(text)
    if exception is not None and exception.start() > 40:
        text = text[exception.start() :]
    return text if text == one.text.strip() else f"… {text}"


def _step(page: _Page, step: FixStep, run: RunInfo | None) -> list[str]:
    release = run.vllm_version if run else None
    only = "" if _is_plain(step.holds_for, release) else f" (vLLM {step.holds_for})"
    out = page.wrapped(f"{_plain(step.do)}{only}", f"{step.number}. ".rjust(5))
    if step.command:
        own = run.command if run is not None else None
        short = difference(step.command, own) if own else None
        out += _command(page, short or step.command, " " * 7)
    if step.why:
        out += [page.paint(row, "2") for row in page.wrapped(f"({_plain(step.why)})", " " * 5)]
    return out


def _memory(page: _Page, incident: Incident) -> list[str]:
    """The GPU's memory in a few rows, and which cards would hold the weights."""
    out: list[str] = []
    if incident.memory is not None:
        whose, gap = heading(incident.memory)
        title = f"{whose}: {gap}" if gap else whose
        out += ["", *(page.paint(row, "1") for row in page.wrapped(title, "", _INDENT))]
        out += [
            f"{_INDENT}{label:<16} {size:>10} {share:>5}".rstrip()
            for label, size, share in rows(incident.memory)
        ]
    if incident.cards:
        out += [*([] if out else [""]), *page.wrapped(incident.cards, "")]
    return out


def _command(page: _Page, command: str, margin: str) -> list[str]:
    """Never wrapped: it is there to be copied."""
    return [page.paint(margin + clean(row), "32") for row in command.splitlines()]


def _is_plain(holds_for: str | None, release: str | None) -> bool:
    """The log's release is known to accept it, or every release in use is: not worth a word."""
    if holds_for is None:
        return True
    if holds_for.startswith("<="):
        since, until = None, holds_for.removeprefix("<=")
    else:
        since, _, until = holds_for.removeprefix(">=").partition(" - ")
    if versions.parse(release) is not None:
        return versions.holds(release, since, until)
    first = versions.parse(since)
    return not until and first is not None and first < (0, 8, 0)


def _others(page: _Page, report: Report, root: Incident, others: Sequence[Incident]) -> list[str]:
    caused = [incident for incident in others if incident.caused_by == root.id]
    apart = [incident for incident in others if incident.caused_by != root.id]
    out: list[str] = [""] if others else []
    if caused:
        names = ", ".join(_named(report, one) for one in caused[:_MAX_OTHERS])
        out += page.wrapped(names, "Also seen, caused by this: ", _INDENT)
    for incident in apart[:_MAX_OTHERS]:
        text = f"{incident.severity.value}, {_named(report, incident)}: {incident.title}"
        out += page.wrapped(text, "Also: ", _INDENT, 2)
    return out


def _named(report: Report, incident: Incident) -> str:
    by = f" in {_processes(incident.processes)}" if incident.processes else ""
    return f"{incident.kind.value}{by} ({_place(report, incident.evidence[0])})"


def _more(page: _Page, root: Incident, *, hidden: int) -> list[str]:
    text = f"vllm-triage explain {root.kind.value}"
    if root.topics:
        text += f" (or {', '.join(root.topics[:2])})"
    if hidden:
        text += "; --all shows every incident in full"
    return ["", *[page.paint(row, "2") for row in page.wrapped(text, "More: ")]]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 2].rstrip() + " …"


def _applied(incident: Incident) -> str:
    """Which steps the suggested command has: those whose every change stands in it."""
    command = incident.suggested_command or ""
    numbers = [str(step.number) for step in incident.fix_steps if has_change(command, step.change)]
    applied = f"step {numbers[0]}" if len(numbers) == 1 else f"steps {', '.join(numbers)}"
    others = [str(step.number) for step in incident.fix_steps if step.change]
    other = next((number for number in others if number not in numbers), None)
    return applied if other is None else f"{applied} (--apply-steps {other}: with step {other})"


def _elided(text: str, most: int) -> str:
    """Keep the beginning and the end: where one holds the exception, the other holds its reason."""
    if len(text) <= most:
        return text
    tail = most * 2 // 5
    return f"{text[: most - tail - 3].rstrip()} … {text[-tail:].lstrip()}"


def _plain(text: str) -> str:
    return text.replace("`", "")
