"""Artefact check: what patterns make of the files that their hits and misses are."""

from collections.abc import Callable, Iterator

from vllm_triage.artefacts.formats import format_of
from vllm_triage.catalogue import Catalogue
from vllm_triage.evidence import Evidence
from vllm_triage.expressions import expression
from vllm_triage.kinds import Kind
from vllm_triage.matches import Match
from vllm_triage.rules import Pattern
from vllm_triage.run import Run

_FILE = expression(r"(?m)^==> (\S+) <==\n")


class Excerpt:
    """A text in a pattern file that stands for a whole artefact, or a part of one."""

    def __init__(self, name: str, text: str) -> None:
        rows = text.split("\n")
        self.name = name
        self.lines = len(rows)
        self.bytes = len(text)
        self.truncated_lines = 0
        self.is_open = False
        self.problem: str | None = None
        self._rows = rows

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter(enumerate(self._rows, 1))


def files(text: str) -> list[tuple[str, str]]:
    """The files of a hit: one, or several, each under a line as `tail` prints it, `==> NAME <==`."""
    parts = _FILE.split(text)
    named = list(zip(parts[1::2], parts[2::2], strict=True))
    return named or [("hit", text)]


def matches(
    text: str, pattern: Pattern, catalogue: Catalogue, run_of: Callable[[str], Run]
) -> list[Match]:
    """What the rules make of the files of a hit; those that are no artefacts are logs."""
    evidence = Evidence(catalogue)
    run = Run("hit", 1)
    for name, content in files(text):
        form = format_of(content)
        if form is None:
            run = run_of(content)
        else:
            evidence.read(Excerpt(name, content), form)
    for need in pattern.needs:
        run.arguments.setdefault(need.replace("-", "_"), "yes")
    if not evidence.is_empty:
        evidence.tell(run)
    return list(evidence.matches(run, 0))


def problems(
    kind: Kind, pattern: Pattern, catalogue: Catalogue, run_of: Callable[[str], Run]
) -> Iterator[str]:
    """What is wrong with a pattern that judges artefacts, a sentence each."""
    if not (pattern.at_least or pattern.at_most or pattern.equals):
        yield "asks nothing of the artefact; give at_least, at_most or equals"
    own = f"{kind}:{pattern.name}"
    for hit in pattern.hits:
        found = matches(hit, pattern, catalogue, run_of)
        if not any(one.recogniser.id == own for one in found):
            yield f"does not match its hit {_short(hit)}"
        for other in found:
            if other.kind is not kind:
                yield f"hit {_short(hit)} is claimed by {other.recogniser.id} too"
    for miss in pattern.misses:
        found = matches(miss, pattern, catalogue, run_of)
        if any(one.recogniser.id == own for one in found):
            yield f"matches its miss {_short(miss)}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 100 else line[:97] + "...")
