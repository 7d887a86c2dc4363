"""The README's table of kinds; `python -m tests.kinds_table` writes it."""

from collections import Counter

from tests.conftest import FIXTURES
from tests.test_messages import results
from vllm_triage.catalogue import load
from vllm_triage.templates import fill

README = FIXTURES.parent / "README.md"
START, END = "<!-- kinds -->\n", "<!-- end of kinds -->\n"


def table() -> str:
    """One row a kind: its meaning, its patterns, how many of the known messages it tells."""
    states: Counter[tuple[str, str]] = Counter(
        (result.message.kind, result.state) for result in results()
    )
    rows = ["| kind | what it says | patterns | known messages told |", "|---|---|---|---|"]
    for kind, rule in load().rules.items():
        known, missed = states[kind.value, "known"], states[kind.value, "missed"]
        told = f"{known} of {known + missed}" if known + missed else ""
        title = (fill(rule.title, {}) or rule.title).replace("|", "\\|")
        rows.append(f"| `{kind.value}` | {title} | {len(rule.pattern) or ''} | {told} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    head, _, rest = README.read_text("utf-8").partition(START)
    README.write_text(f"{head}{START}{table()}{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
