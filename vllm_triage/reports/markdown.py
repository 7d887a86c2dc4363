"""Markdown to paste into a ticket."""

from collections.abc import Sequence

from vllm_triage.expressions import expression
from vllm_triage.incidents import fact_texts
from vllm_triage.model import Evidence, FixStep, Incident, Report
from vllm_triage.reports.budget import heading, rows
from vllm_triage.reports.clean import clean, inert
from vllm_triage.reports.grid import cells
from vllm_triage.templates import counted

_MARKUP = expression(r"([\\`*_{}\[\]<>|#@~&$])")
_SPAN = expression(r"(?<!`)`([^`]+)`(?!`)")
# Addresses, mentions, numbers of issues, commits.
_LINKED = expression(r"(?i)://|\bwww\.|\bmailto:|@\w|#\d|\bgh-\d|\b[0-9a-f]{40}\b")
_WORD = expression(r"([^\s`]++)")
# What makes a list, a heading or a rule of a line.
_BLOCK = expression(r"^(\d{0,9})([-+=.)])(?=[\s=-]|$)")
_BACKTICKS = expression(r"`+")


def render(report: Report) -> str:
    """The root cause in full, the other incidents one line each."""
    root = report.root
    if root is None:
        lines = sum(source.lines for source in report.sources)
        return f"**vllm-triage {report.tool_version}**: no incident in {counted(lines, 'line')}.\n"
    out = [
        f"## {escape(root.title)}",
        "",
        f"`{root.kind.value}` · {root.severity.value} · {root.confidence.value}",
    ]
    out += ["", escape(root.summary), "", f"**Cause.** {escape(root.cause)}", ""]
    out += _facts(report, root)
    out += _table(root)
    out += ["**Evidence**", "", *fenced(_lines(root.evidence)), ""]
    if root.collect and root.role.value != "cause":
        out += ["**Collect next**", "", *(f"- {escape(item)}" for item in root.collect), ""]
    out += ["**Steps**", ""]
    for step in root.fix_steps:
        out += _step(step)
    if root.suggested_command:
        out += [
            "",
            "**The server's command with the first change**",
            "",
            *fenced([clean(root.suggested_command)], "sh"),
        ]
    out += _memory(root)
    if root.verify:
        out += ["", f"**Verify.** {escape(root.verify)}"]
    others = [incident for incident in report.incidents if incident is not root]
    if others:
        out += ["", "**Also seen**", ""]
        out += [
            f"- `{incident.kind.value}` at {code(f'{incident.evidence[0].source}:{incident.evidence[0].line}')}"
            + (", caused by the above" if incident.caused_by == root.id else "")
            for incident in others
        ]
    out += ["", f"<sub>vllm-triage {report.tool_version}</sub>"]
    return inert("\n".join(out)) + "\n"


def _facts(report: Report, incident: Incident) -> list[str]:
    rows = [(name, text) for name, text in fact_texts(incident.facts).items()]
    if report.runs:
        run = report.runs[0]
        inferred = " (from code lines)" if run.vllm_version_from == "code" else ""
        release = f"{run.vllm_version}{inferred}" if run.vllm_version else ""
        rows = [("vLLM", release), ("model", run.model or ""), *rows]
    rows = [(name, text) for name, text in rows if text]
    if not rows:
        return []
    return [
        "| fact | value |",
        "|---|---|",
        *(f"| {name} | {cell(text)} |" for name, text in rows),
        "",
    ]


def _table(incident: Incident) -> list[str]:
    shown = [[cell(one) for one in row] for row in cells(incident.table)]
    if not shown:
        return []
    head, *body = (f"| {' | '.join(row)} |" for row in shown)
    return [head, "|" + "---|" * len(shown[0]), *body, ""]


def _memory(incident: Incident) -> list[str]:
    out: list[str] = []
    if incident.memory is not None:
        whose, gap = heading(incident.memory)
        out += ["", f"**{escape(whose)}**" + (f": {gap}" if gap else "")]
        shown = rows(incident.memory)
        if shown:
            out += ["", "| memory | size | of total |", "|---|---:|---:|"]
            out += [f"| {label} | {size} | {share} |" for label, size, share in shown]
    return [*out, "", escape(incident.cards)] if incident.cards else out


def _lines(evidence: tuple[Evidence, ...]) -> list[str]:
    return [f"{clean(one.source)}:{one.line}: {clean(one.text)}" for one in evidence]


def _step(step: FixStep) -> list[str]:
    note = f" _({escape(step.why)})_" if step.why else ""
    out = [f"{step.number}. {escape(step.do)}{note}"]
    if step.command:
        out += ["", *(f"   {line}" for line in fenced([clean(step.command)], "sh")), ""]
    return out


def fenced(lines: Sequence[str], language: str = "") -> list[str]:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *lines, fence]


def code(text: str) -> str:
    """A text as a span of code, whatever backticks it holds."""
    text = clean(text)
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    if not longest:
        return f"`{text}`"
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"


def escape(text: str) -> str:
    """Backticked code stays code; the rest cannot become markup, a link, a mention or a reference."""
    parts = _SPAN.split(clean(text).strip())
    out = "".join(
        f"`{part}`" if index % 2 else _escaped(part) for index, part in enumerate(parts) if part
    )
    return _BLOCK.sub(r"\1\\\2", out)


def _escaped(text: str) -> str:
    # Platforms make links of what markup leaves, also of what a backslash stands before.
    return "".join(
        code(part) if _LINKED.search(part) else _MARKUP.sub(r"\\\1", part)
        for part in _WORD.split(text)
    )


def cell(text: str) -> str:
    """A text for a table's cell."""
    return escape(text.replace("`", "'")).replace("\\|", "|").replace("|", "\\|")
