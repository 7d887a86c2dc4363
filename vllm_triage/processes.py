"""Processes: what is still open of what one process says."""

from dataclasses import dataclass, field

from vllm_triage.events import Event
from vllm_triage.kinds import Level, Phase
from vllm_triage.lines import Line, Prefix
from vllm_triage.tracebacks import Frame

MAX_FRAMES = 400

Kept = tuple[Prefix, str, int, bytes, str, int, Phase | None]
"""All that it takes to make a `Line` of an ASCII line, which is rarely needed: its prefix, source,
number, the line as printed, its text, run and phase."""


def full(kept: Line | Kept) -> Line:
    """The line in full."""
    if isinstance(kept, Line):
        return kept
    prefix, source, number, raw, text, run, phase = kept
    time, level, process, pid, rank, place, _ = prefix
    return Line(
        source, number, raw.decode("ascii"), text, time, level, process, pid, rank, place,
        run=run, phase=phase,
    )  # fmt: skip


@dataclass(slots=True, eq=False, repr=False)
class Process:
    """What is still open for one process."""

    message: list[Line] = field(default_factory=list)
    exception: str | None = None
    link: str | None = None
    frames: list[Frame] = field(default_factory=list)
    source: list[Line | Kept] = field(default_factory=list)
    is_open: bool = False
    flat: bool = False
    ignored: bool = False
    after_frame: bool = False
    blank: bool = False
    chain: int = 0
    pending: str | None = None
    last: int = 0
    held: int = 0

    @property
    def is_unfinished(self) -> bool:
        """Whether more lines may belong to what was said last."""
        return self.is_open or self.pending is not None or self.exception is not None

    def add_frame(self, found: Frame) -> None:
        """Take a frame of the open traceback; of very many the last takes the place of the one before."""
        if len(self.frames) < MAX_FRAMES:
            self.frames.append(found)
        else:
            self.frames[-1] = found
        self.source = []
        self.after_frame = True
        self.blank = False

    def raised(self, lines: list[Line], *, restored: bool = False) -> Event:
        """Its exception, which these lines state."""
        level = lines[0].level
        if self.ignored:
            level = Level.DEBUG
        elif self.exception is not None and self.exception.endswith("Warning"):
            level = Level.WARNING
        return Event(
            tuple(lines),
            "\n".join(line.text for line in lines),
            level,
            exception=self.exception,
            frames=tuple(self.frames),
            chain=self.chain,
            link=self.link,
            restored=restored,
        )
