"""The report for a terminal: the answer on the first screen."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_triage.kinds import Confidence, Role, Severity
from vllm_triage.model import FixStep, Incident, Report, RunInfo
from vllm_triage.reports.clean import clean, located
from vllm_triage.versions import parse

_COLOURS = {Severity.FATAL: "1;31", Severity.DEGRADED: "1;33", Severity.NOTICE: "1;36"}
_MAX_EVIDENCE = 3
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class _Page:
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
            rows = rows[:most]
            rows[-1] = rows[-1][: self.width - 2] + " …"
        return rows


def render(report: Report, *, width: int = 80, colour: bool = False, every: bool = False) -> str:
    """The root cause in full, the rest in a line each; with `every`, all incidents in full."""
    page = _Page(max(60, min(width, 110)), colour)
    root = report.root
    if root is None:
        return "\n".join([*_nothing(report, page), *_problems(report, page)]) + "\n"
    out = _incident(page, report, root)
    others = [incident for incident in report.incidents if incident is not root]
    if every:
        for incident in others:
            out += ["", page.paint("─" * page.width, "2"), *_incident(page, report, incident)]
    else:
        out += _others(page, root, others)
    out += _more(page, root)
    out += _problems(report, page)
    return "\n".join(out) + "\n"


def _nothing(report: Report, page: _Page) -> list[str]:
    lines = sum(source.lines for source in report.sources)
    names = (
        ", ".join(source.name for source in report.sources if source.problem is None)
        or "the input"
    )
    out = page.wrapped(f"No incident found in {lines:,} lines of {names}.", "")
    if lines == 0:
        return [*out, "The input is empty: is it the right file?"]
    hint = (
        "If the server is broken all the same, give the log from its start, with the output of "
        "every process, or run it with VLLM_LOGGING_LEVEL=DEBUG."
    )
    return [*out, *page.wrapped(hint, "")]


def _problems(report: Report, page: _Page) -> list[str]:
    cut = [source for source in report.sources if source.truncated_lines]
    return [
        row
        for source in cut
        for row in page.wrapped(
            f"{source.truncated_lines} lines of {source.name} were longer than 1 MiB and were cut.",
            "",
        )
    ]


def _incident(page: _Page, report: Report, incident: Incident) -> list[str]:
    word = incident.severity.value.upper()
    head = page.wrapped(f"{word}  {incident.title}", "", " " * (len(word) + 2))
    head[0] = page.paint(word, _COLOURS[incident.severity]) + page.paint(head[0][len(word) :], "1")
    out = [*head, *page.wrapped(_where(report, incident), " " * (len(word) + 2)), ""]
    out += _evidence(page, report, incident)
    out.append("")
    if incident.role is Role.CONSEQUENCE and incident.caused_by is None:
        out += page.wrapped("The cause is not in this log. Collect next:", "")
        for item in incident.collect:
            out += page.wrapped(item, "  - ")
        out.append("")
    out += page.wrapped(f"{_plain(incident.summary)} {_plain(incident.cause)}", "")
    out += ["", page.paint("What to do", "1")]
    for step in incident.fix_steps:
        out += _step(page, step)
    if incident.suggested_command:
        out += [
            "",
            page.paint("Your command, with the first change", "1"),
            _INDENT + clean(incident.suggested_command),
        ]
    if incident.verify:
        out += ["", *page.wrapped(_plain(incident.verify), "Check: ")]
    return out


def _where(report: Report, incident: Incident) -> str:
    run = _run(report, incident)
    parts = [incident.kind.value]
    if run is not None:
        parts += [f"vLLM {run.vllm_version}" if run.vllm_version else "", run.model or ""]
    parts.append(_processes(incident.processes))
    if incident.count > 1:
        parts.append(f"{incident.count} times")
    if run is not None and run.restarts:
        parts.append(f"{run.restarts} restarts")
    if incident.first_seen:
        later = incident.last_seen if incident.last_seen != incident.first_seen else None
        parts.append(incident.first_seen + (f" to {later}" if later else ""))
    if incident.confidence is not Confidence.CERTAIN:
        parts.append(f"{incident.confidence.value}, not certain")
    return " · ".join(part for part in parts if part)


def _run(report: Report, incident: Incident) -> RunInfo | None:
    first = incident.evidence[0]
    own = [
        run
        for run in report.runs
        if run.source == first.source and (run.first_line or 0) <= first.line
    ]
    return own[-1] if own else (report.runs[0] if len(report.runs) == 1 else None)


def _processes(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{names[0]} and {len(names) - 1} more processes"
    return ", ".join(names)


def _evidence(page: _Page, report: Report, incident: Incident) -> list[str]:
    several = len({source.name for source in report.sources}) > 1
    out: list[str] = []
    for index, one in enumerate(incident.evidence[:_MAX_EVIDENCE]):
        place = located(one.source, one.line) if several else f"line {one.line}"
        rows = page.wrapped(
            one.text.strip() or "(blank)",
            f"{_INDENT}{place}  ",
            _INDENT * 3,
            4 if index == 0 else 1,
        )
        out += [page.paint(row, "33") if index == 0 else page.paint(row, "2") for row in rows]
    return out


def _step(page: _Page, step: FixStep) -> list[str]:
    only = f" (vLLM {step.holds_for})" if step.holds_for and not _is_old(step.holds_for) else ""
    out = page.wrapped(f"{_plain(step.do)}{only}", f"{step.number}. ".rjust(5))
    if step.command:
        out.append(page.paint(" " * 7 + clean(step.command), "32"))
    note = step.why
    if step.documented_as and step.documented_as not in f"{step.command} {step.do}":
        note = f"documented as {step.documented_as}" + (f"; {note}" if note else "")
    if note:
        out += [page.paint(row, "2") for row in page.wrapped(f"({_plain(note)})", " " * 5)]
    return out


def _is_old(holds_for: str) -> bool:
    """Every release in use knows it: not worth a reader's time."""
    first = parse(holds_for.removeprefix(">="))
    return holds_for.startswith(">=") and first is not None and first < (0, 8, 0)


def _others(page: _Page, root: Incident, others: Sequence[Incident]) -> list[str]:
    caused = [incident for incident in others if incident.caused_by == root.id]
    apart = [incident for incident in others if incident.caused_by != root.id]
    out: list[str] = []
    if caused:
        names = ", ".join(f"{one.kind.value} (line {one.evidence[0].line})" for one in caused)
        out += ["", *page.wrapped(names, "Follows from it: ")]
    for incident in apart:
        first = incident.evidence[0]
        out += page.wrapped(
            f"{incident.severity.value}, {incident.kind.value} (line {first.line}): {incident.title}",
            "Also: ",
        )
    return out


def _more(page: _Page, root: Incident) -> list[str]:
    names = " | ".join([root.kind.value, *root.topics[:2]])
    return [
        "",
        *[page.paint(row, "2") for row in page.wrapped(f"vllm-triage explain {names}", "More: ")],
    ]


def _plain(text: str) -> str:
    return text.replace("`", "")
