"""A kind's or topic's page."""

import difflib
import itertools
import textwrap
from collections.abc import Sequence

from vllm_triage.catalogue import Catalogue
from vllm_triage.conditions import in_words
from vllm_triage.errors import TriageError
from vllm_triage.fixes import render_steps, render_verify, steps
from vllm_triage.kinds import Kind
from vllm_triage.model import FixStep
from vllm_triage.rules import Fix, Rule, Topic
from vllm_triage.templates import fill_sentences, filled
from vllm_triage.versions import holds

WIDTH = 80


def explain(name: str, catalogue: Catalogue, releases: Sequence[str] = ()) -> str:
    """The page of a kind (`oom.load`) or topic (`memory-budget`), for a release or the newest.

    With several releases their steps side by side. Raises TriageError when there is no such name.
    """
    wanted = name.strip().lower()
    version = releases[0] if releases else None
    for kind, rule in catalogue.rules.items():
        if kind.value == wanted:
            heading = f"{kind.value}: {_plain(rule.title)}"
            return _compared(heading, rule, releases) if len(releases) > 1 else _kind(kind, rule, catalogue, version)  # fmt: skip
    if wanted in catalogue.topics:
        topic = catalogue.topics[wanted]
        return _compared(topic.title, topic, releases) if len(releases) > 1 else _topic(topic, version)  # fmt: skip
    known = [kind.value for kind in catalogue.rules] + list(catalogue.topics)
    near = (
        difflib.get_close_matches(wanted, known, 3, 0.5)
        or [one for one in known if wanted in one][:3]
    )
    hint = f"did you mean {', '.join(near)}?" if near else "see vllm-triage kinds"
    message = f"{name}: no such kind or topic; {hint}"
    raise TriageError(message)


def _kind(kind: Kind, rule: Rule, catalogue: Catalogue, version: str | None) -> str:
    marks = [rule.severity.value, rule.role.value, *([f"for vLLM {version}"] if version else [])]
    out = [*_para(f"{kind.value}: {_plain(rule.title)}", "", "  "), ", ".join(marks), ""]
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
        out += ["", *_para(f"Check: {verify}".replace("`", ""))]
    if rule.collect:
        out += [
            "",
            "Where the cause is not in the log, collect",
            *(row for item in filled(rule.collect, {}) for row in _para(item, "  - ")),
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
            in_words(pattern)
            if pattern.artefact is not None
            else " ".join(pattern.hits[0].split())[:200],
            WIDTH,
            initial_indent="      ",
            subsequent_indent="      ",
        )
    topics = [name for name, topic in catalogue.topics.items() if kind in topic.kinds]
    if topics:
        out += ["", *_para("See also: vllm-triage explain " + ", or ".join(topics))]
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


def _compared(heading: str, entry: Rule | Topic, releases: Sequence[str]) -> str:
    """What to do in each of several releases; what is the same in all stands once."""
    out = [
        *_para(heading, "", "  "),
        f"vLLM {' and '.join([', '.join(releases[:-1]), releases[-1]])}",
        "",
    ]
    number = 0
    for fix in entry.fix:
        rows = [(release, _written(fix, release)) for release in releases]
        if all(written is None for _, written in rows):
            continue
        number += 1
        mark = f" [documented{f', often given as {fix.documented_as}' if fix.documented_as else ''}]" if fix.documented else ""  # fmt: skip
        out += _para(f"{_plain(fix.do)}{mark}", f"{number:>3}. ", "     ")
        out += _side_by_side(rows, "       ")
        if fix.why:
            out += _para(f"({_plain(fix.why)})", "     ", "      ")
    if isinstance(entry, Rule) and entry.verify:
        shown = [
            (release, (render_verify(entry, {}, release) or "").replace("`", ""))
            for release in releases
        ]
        out += ["", "Check", *_side_by_side(shown, "  ", wrap=True)]
    return "\n".join(out) + "\n"


def _written(fix: Fix, release: str) -> str | None:
    """A step's command in a release, empty where it has none; None where the release has no such step."""
    if not any(holds(release, form.since or fix.since, form.until or fix.until) for form in fix.form or (fix,)):  # fmt: skip
        return None
    found = steps((fix,), None, release)
    return (found[0].command or "") if found else None


def _side_by_side(
    rows: Sequence[tuple[str, str | None]], margin: str, *, wrap: bool = False
) -> list[str]:
    texts = {text for _, text in rows}
    width = max(len(release) for release, _ in rows)
    out: list[str] = []
    for release, text in rows[:1] if len(texts) == 1 else rows:
        label = margin if len(texts) == 1 else f"{margin}{release:<{width}}  "
        if text is None:
            out.append(f"{label}not in {release}")
        elif text:
            out += _para(text, label) if wrap else [f"{label}{text}"]
    return out


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
            out += _para(f"often given as: {step.documented_as}", "     ", "       ")
        if step.why:
            out += _para(f"({step.why})".replace("`", ""), "     ", "      ")
    return out


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as the screen allows, their cells wrapped; blocks where words do not fit."""
    cells = list(zip(columns, *rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in cells]
    least = [
        max(len(word) for cell in column for word in cell.split() or [""]) for column in cells
    ]
    room = WIDTH - 2 * len(widths)
    while sum(widths) > room:
        index = max(range(len(widths)), key=lambda one: widths[one] - least[one])
        if widths[index] == least[index]:
            return _blocks(columns, rows)
        widths[index] -= 1
    out: list[str] = []
    for row in (columns, ["-" * width for width in widths], *rows):
        wrapped = [
            textwrap.wrap(cell, width, break_on_hyphens=False)
            for cell, width in zip(row, widths, strict=True)
        ]
        for pieces in itertools.zip_longest(*wrapped, fillvalue=""):
            padded = (piece.ljust(width) for piece, width in zip(pieces, widths, strict=True))
            out.append(f"  {'  '.join(padded)}".rstrip())
    return out


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table too wide for a screen: each row's first cell, and the others named below it."""
    out: list[str] = []
    for first, *others in rows:
        out += _para(first, "  ")
        for name, cell in zip(columns[1:], others, strict=True):
            out += _para(f"{name}: {cell}", "      ", "        ")
    return out


def _para(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest or " " * len(first),
        break_on_hyphens=False,
    )


def _plain(template: str) -> str:
    return fill_sentences(template, {}).replace("`", "")
