"""The list of kinds and topics, short for a terminal and whole as Markdown."""

import textwrap
from collections.abc import Iterator

from vllm_triage.catalogue import Catalogue
from vllm_triage.conditions import in_words
from vllm_triage.fixes import render_steps
from vllm_triage.kinds import Kind
from vllm_triage.model import FixStep
from vllm_triage.rules import Pattern, Rule
from vllm_triage.templates import fill_sentences
from vllm_triage.thresholds import thresholds

WIDTH = 80
_MAX_EXAMPLE = 160


def kinds(catalogue: Catalogue) -> str:
    """All kinds by area with title and severity, then the topics."""
    out: list[str] = []
    for area, found in _areas(catalogue):
        out += ["", area] if out else [area]
        for kind, rule in found:
            out += textwrap.wrap(
                _plain(rule.title),
                WIDTH,
                initial_indent=f"  {kind.value:<34}{rule.severity.value:<10}",
                subsequent_indent=" " * 46,
            )
    out += ["", "topics"]
    out += [f"  {name:<34}{topic.title}" for name, topic in sorted(catalogue.topics.items())]
    out += ["", "thresholds (--threshold NAME=VALUE)"]
    for one in thresholds():
        out += textwrap.wrap(
            one.meaning,
            WIDTH,
            initial_indent=f"  {one.name:<26}{f'{one.value:g} {one.unit}':<16}",
            subsequent_indent=" " * 44,
        )
    return "\n".join(out) + "\n"


def kinds_page(catalogue: Catalogue) -> str:
    """Every kind as Markdown: what it means, the steps, the patterns and the releases."""
    out = [
        "# Kinds",
        "",
        "Written by `vllm-triage kinds --format markdown`; do not edit it by hand.",
        "Releases are those of the package that prints the line, as far as its published releases show.",
    ]
    for area, found in _areas(catalogue):
        out += ["", f"## {area}"]
        for kind, rule in found:
            out += _kind(kind, rule)
    out += [
        "",
        "## Thresholds",
        "",
        "From where on a value counts as a fault; `--threshold NAME=VALUE` sets another.",
        "",
        "| name | value | what |",
        "|---|---|---|",
    ]
    out += [
        f"| `{one.name}` | {one.value:g} {one.unit} | {one.meaning}{', as documented' if one.documented else ''} |"
        for one in thresholds()
    ]
    return "\n".join(out) + "\n"


def _areas(catalogue: Catalogue) -> Iterator[tuple[str, list[tuple[Kind, Rule]]]]:
    areas: dict[str, list[tuple[Kind, Rule]]] = {}
    for kind in Kind:
        rule = catalogue.rules.get(kind)
        if rule is not None:
            areas.setdefault(kind.area, []).append((kind, rule))
    yield from areas.items()


def _kind(kind: Kind, rule: Rule) -> Iterator[str]:
    yield from ("", f"### {kind.value}", "")
    yield f"**{_plain(rule.title)}** · {rule.severity.value} · {rule.role.value}"
    yield from ("", f"{_plain(rule.summary)} {_plain(rule.cause)}", "")
    if rule.symptom:
        yield from (f"Symptom: {rule.symptom}", "")
    for step in render_steps(rule, None, None):
        yield from _step(step)
    if rule.explained_by:
        yield from ("", "Explained by: " + ", ".join(f"`{one}`" for one in rule.explained_by))
    if rule.variant is not None:
        shown = [*rule.variant.needs, *([str(rule.variant.when)] if rule.variant.when else [])]
        yield from ("", f"The same lines as `{rule.variant.of.value}`, with: {', '.join(shown)}.")
    if rule.pattern:
        yield from ("", "| pattern | printed by | example |", "|---|---|---|")
        yield from (_pattern(pattern) for pattern in rule.pattern)


def _step(step: FixStep) -> Iterator[str]:
    notes = [
        f"vLLM {step.holds_for}" if step.holds_for else "",
        f"documented as {_code(step.documented_as)}" if step.documented_as else "",
    ]
    note = "; ".join(one for one in notes if one)
    yield f"{step.number}. {step.do}" + (f" ({note})" if note else "")
    if step.command:
        yield from ("", "   ```sh", *(f"   {row}" for row in step.command.split("\n")), "   ```")


def _pattern(pattern: Pattern) -> str:
    span = " - ".join(part for part in (pattern.since, pattern.until) if part)
    later = " and later" if pattern.since and not pattern.until else ""
    shown = pattern.hits[0] if pattern.artefact is None else in_words(pattern)
    example = textwrap.shorten(" ".join(shown.split()), _MAX_EXAMPLE, placeholder=" …")
    return f"| {pattern.name} | {pattern.printed_by} {span}".rstrip() + f"{later} | {_code(example)} |"  # fmt: skip


def _code(text: str) -> str:
    """Inline code whose fence is longer than any run of backticks inside; a table's bar escaped."""
    fence = "``" if "`" in text else "`"
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{blank}{text}{blank}{fence}".replace("|", "\\|")


def _plain(template: str) -> str:
    return fill_sentences(template, {})
