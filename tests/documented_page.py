"""The table of documented steps that differ; `python -m tests.documented_page` writes it."""

from collections.abc import Iterator

from tests.conftest import FIXTURES
from vllm_triage.catalogue import load
from vllm_triage.rules import Fix
from vllm_triage.templates import fill
from vllm_triage.versions import span

PAGE = FIXTURES.parent / "docs" / "documented-steps.md"
START, END = "<!-- steps -->\n", "<!-- end of steps -->\n"


def differing() -> Iterator[tuple[str, Fix]]:
    """The documented steps whose command is not the guide's, with their kind or topic."""
    catalogue = load()
    entries = [(kind.value, rule.fix) for kind, rule in catalogue.rules.items()]
    entries += [(name, topic.fix) for name, topic in catalogue.topics.items()]
    for name, fixes in entries:
        yield from ((name, fix) for fix in fixes if fix.documented_as)


def table() -> str:
    """One row a step: what the guide says, what is true, what is shown in which release."""
    rows = [
        "| kind or topic | the guide | what is true | what is shown |",
        "|---|---|---|---|",
    ]
    for name, fix in differing():
        cells = (f"`{name}`", f"`{fix.documented_as}`", fix.why or "", _shown(fix))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _shown(fix: Fix) -> str:
    if fix.form:
        return "<br>".join(
            f"`{fill(form.command or '', {})}` ({span(form.since, form.until) or 'all releases'})"
            for form in fix.form
        )
    if fix.command:
        return f"`{fill(fix.command, {})}`"
    return fill(fix.do, {}) or fix.do


def main() -> None:
    head, _, rest = PAGE.read_text("utf-8").partition(START)
    PAGE.write_text(f"{head}{START}{table()}{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
