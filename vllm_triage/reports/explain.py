"""A kind's or topic's page."""

import difflib
import textwrap
from collections.abc import Sequence

from vllm_triage.catalogue import Catalogue
from vllm_triage.errors import TriageError
from vllm_triage.fixes import render_steps, render_verify, steps
from vllm_triage.kinds import Kind
from vllm_triage.model import FixStep
from vllm_triage.rules import Rule, Topic
from vllm_triage.templates import fill

WIDTH = 80


def explain(name: str, catalogue: Catalogue, version: str | None = None) -> str:
    """The page of a kind (`oom.load`) or topic (`memory-budget`), for a release or the newest.

    Raises TriageError when there is no such name.
    """
    wanted = name.strip().lower()
    for kind, rule in catalogue.rules.items():
        if kind.value == wanted:
            return _kind(kind, rule, catalogue, version)
    if wanted in catalogue.topics:
        return _topic(catalogue.topics[wanted], version)
    known = [kind.value for kind in catalogue.rules] + list(catalogue.topics)
    near = (
        difflib.get_close_matches(wanted, known, 3, 0.5)
        or [one for one in known if wanted in one][:3]
    )
    hint = f"did you mean {', '.join(near)}?" if near else "see vllm-triage kinds"
    message = f"{name}: no such kind or topic; {hint}"
    raise TriageError(message)


def _kind(kind: Kind, rule: Rule, catalogue: Catalogue, version: str | None) -> str:
    out = [f"{kind.value}: {_plain(rule.title)}", f"{rule.severity.value}, {rule.role.value}", ""]
    if rule.symptom:
        out += _para(f"Symptom: {rule.symptom}")
    out += [
        *_para(f"What happens: {_plain(rule.summary)}"),
        *_para(f"Why: {_plain(rule.cause)}"),
        "",
        "What to do",
    ]
    out += _steps(render_steps(rule, None, version))
    verify = render_verify(rule, {}, version)
    if verify:
        out += ["", *_para(f"Check: {_plain(verify)}")]
    if rule.collect:
        out += [
            "",
            "Where the cause is not in the log, collect",
            *(f"  - {item}" for item in rule.collect),
        ]
    out += ["", "Recognised by"]
    if rule.variant is not None:
        how = " ".join(
            [
                *(f"with {need} at work" for need in rule.variant.needs),
                f"while {rule.variant.when}" if rule.variant.when else "",
            ]
        )
        out += _para(f"the same lines as {rule.variant.of.value}, {how.strip()}", "  ")
    for pattern in rule.pattern:
        span = " - ".join(part for part in (pattern.since, pattern.until) if part)
        printed = f"{pattern.printed_by} {span}".strip() + (
            " and later" if pattern.since and not pattern.until else ""
        )
        out.append(f"  {pattern.name} ({printed})")
        out += textwrap.wrap(
            " ".join(pattern.hits[0].split())[:200],
            WIDTH,
            initial_indent="      ",
            subsequent_indent="      ",
        )
    topics = [name for name, topic in catalogue.topics.items() if kind in topic.kinds]
    if topics:
        out += ["", "See also: " + ", ".join(f"vllm-triage explain {name}" for name in topics)]
    out += [*(["", "Documentation"] if rule.docs else []), *(f"  {url}" for url in rule.docs)]
    return "\n".join(out) + "\n"


def _topic(topic: Topic, version: str | None) -> str:
    out = [topic.title, "", *_para(topic.text)]
    if topic.rows:
        out += ["", *_table(topic.columns, topic.rows)]
    if topic.fix:
        out += ["", *_steps(steps(topic.fix, None, version))]
    if topic.kinds:
        out += ["", *_para("Belongs to: " + ", ".join(kind.value for kind in topic.kinds))]
    out += ["", *(f"  {url}" for url in topic.docs)] if topic.docs else []
    return "\n".join(out) + "\n"


def _steps(rendered: Sequence[FixStep]) -> list[str]:
    out: list[str] = []
    for step in rendered:
        marks = [
            f"vLLM {step.holds_for}" if step.holds_for else "",
            "documented" if step.documented else "",
        ]
        note = ", ".join(mark for mark in marks if mark)
        out += _para(
            step.do.replace("`", "") + (f" [{note}]" if note else ""),
            f"{step.number:>3}. ",
            "     ",
        )
        if step.command:
            out.append(f"       {step.command}")
        if step.documented_as:
            out += _para(f"documented as: {step.documented_as}", "     ", "       ")
        if step.why:
            out += _para(f"({step.why})".replace("`", ""), "     ", "      ")
    return out


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[index]) for row in [columns, *rows]) for index in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        return (
            "  "
            + "  ".join(
                cell.ljust(width) for cell, width in zip(cells, widths, strict=True)
            ).rstrip()
        )

    return [
        line(columns),
        "  " + "  ".join("-" * width for width in widths),
        *(line(row) for row in rows),
    ]


def _para(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest or " " * len(first),
        break_on_hyphens=False,
    )


def _plain(template: str) -> str:
    return (fill(template, {}) or template).replace("`", "")
