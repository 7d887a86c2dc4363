"""Events: what was said at once, of one line or several."""

from typing import NamedTuple

from vllm_triage.kinds import Level
from vllm_triage.lines import Line, Origin
from vllm_triage.tracebacks import Frame, exception_name


class Event(NamedTuple):
    """What was said at once: a log record, or an exception with its frames.

    `chain` is shared by the exceptions of one printed chain; `link` tells how this
    one relates to the one before: `head` (a message before its own traceback),
    `cause` (raised from it) or `context` (raised while handling it).
    """

    lines: tuple[Line, ...]
    text: str
    level: Level | None
    origin: Origin = Origin.LOG
    exception: str | None = None
    frames: tuple[Frame, ...] = ()
    chain: int = 0
    link: str | None = None
    observed: tuple[tuple[str, float], ...] = ()
    restored: bool = False
    table: tuple[tuple[str, ...], ...] = ()
    """What an artefact's values are beside each other; the first row holds the headings."""
    unwrapped: str | None = None
    """The text with its line ends, where `text` has blanks in their place."""

    @property
    def first(self) -> Line:
        """The line that states it."""
        return self.lines[0]

    def line_at(self, offset: int) -> Line:
        """The line that holds a position of `text`."""
        if len(self.lines) == 1:
            return self.lines[0]
        index = (self.unwrapped or self.text).count("\n", 0, offset)
        return self.lines[min(index, len(self.lines) - 1)]


def record(lines: list[Line], *, chain: int = 0) -> Event:
    """A record and the lines that continue it."""
    first = lines[0]
    level = first.level
    name = exception_name(first.text.strip(), in_traceback=False)
    if name is not None and name.endswith("Warning"):
        level = Level.WARNING
    text = first.text if len(lines) == 1 else "\n".join(line.text for line in lines)
    return Event(tuple(lines), text, level, chain=chain, link="head" if chain else None)


def table(found: tuple[tuple[Line, ...], tuple[tuple[str, float], ...]]) -> Event:
    """A benchmark's table with what follows from it."""
    lines, observed = found
    return Event(
        lines,
        "\n".join(line.text for line in lines),
        None,
        Origin.STATISTICS,
        observed=observed,
    )
