"""Processes: what is still open of what one process says."""

from collections.abc import Sequence

from vllm_triage.events import Event
from vllm_triage.kinds import Level
from vllm_triage.lines import Line
from vllm_triage.tracebacks import Frame
from vllm_triage.trails import Kept, Trail

MAX_FRAMES = 400


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


class Process:
    """What is still open for one process."""

    __slots__ = (
        "after_frame", "blank", "chain", "exception", "flat", "frames", "held", "ignored",
        "is_open", "last", "link", "message", "pending", "source", "trail",
    )  # fmt: skip

    def __init__(self) -> None:
        self.message: list[Line] = []
        self.exception: str | None = None
        self.link: str | None = None
        self.frames: Sequence[Frame] = ()
        self.source: list[Line | Kept] = []
        self.is_open = False
        self.flat = False
        self.ignored = False
        self.after_frame = False
        self.blank = False
        self.chain = 0
        self.pending: str | None = None
        self.last = 0
        self.held = 0
        self.trail: Trail | None = None
        """Where it is in the open traceback, while only that tells its frames and source lines."""

    @property
    def is_unfinished(self) -> bool:
        """Whether more lines may belong to what was said last."""
        return self.is_open or self.pending is not None or self.exception is not None

    def add_frame(self, found: Frame) -> None:
        """Take a frame of the open traceback; of very many the last takes the place of the one before."""
        frames = self.frames
        if not isinstance(frames, list):
            self.frames = frames = [*frames]
        if len(frames) < MAX_FRAMES:
            frames.append(found)
        else:
            frames[-1] = found
        self.source = []
        self.after_frame = True
        self.blank = False

    def settle(self) -> int:
        """Leave the trail, with what it tells; give the characters that are held from now on."""
        trail, self.trail = self.trail, None
        if trail is None:
            return 0
        held = trail.held
        if trail.numbers:
            self.frames = trail.step.frames
            self.source = [*trail.source]
            self.after_frame = trail.step.frame is not None
            self.blank = False
            self.last = max(self.last, trail.numbers[-1])
            self.held += held
        trail.end()
        return held

    def leave(self, frames: Sequence[Frame]) -> None:
        """Leave the trail at the end of a traceback, of which only the frames are of use."""
        self.frames = frames
        if self.trail is not None:
            self.trail.end()
            self.trail = None

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
