"""Trails: tracebacks line by line, of which a line that came before costs a look-up.

A server that dies prints the same frames and source lines from each worker, at each restart. The
lines of all tracebacks make one tree; where a process is in it tells all of its lines so far.
"""

from collections.abc import Iterator

from vllm_triage.kinds import Phase
from vllm_triage.lines import Key, Prefix
from vllm_triage.tracebacks import Frame

MAX_SOURCE = 12
"""So many source lines after a frame are kept."""
MAX_STEPS = 400
"""The steps of one traceback; longer ones are taken apart line by line."""
_MAX_TREE = 8_192

Kept = tuple[Prefix, str, int, bytes, str, int, Phase | None]
"""All that it takes to make a `Line` of an ASCII line, which is rarely needed: its prefix, source,
number, the line as printed, its text, run and phase."""


class Step(dict[bytes, "Step"]):
    """A line of a traceback, after all those before it; holds the steps that have followed."""

    __slots__ = (
        "_frames",
        "before",
        "depth",
        "frame",
        "held_bytes",
        "held_lines",
        "place",
        "raw",
        "text",
    )

    def __init__(
        self,
        before: "Step | None" = None,
        raw: bytes = b"",
        text: str = "",
        frame: Frame | None = None,
    ) -> None:
        super().__init__()
        self.before = before
        self.raw = raw
        """The line behind its prefix."""
        self.text = text
        self.frame = frame
        self.depth: int = 0 if before is None else before.depth + 1
        self.place: int = 0 if before is None or frame is not None else before.place + 1
        """How many source lines there are since the last frame."""
        is_held = 0 < self.place <= MAX_SOURCE
        self.held_lines: int = is_held + (0 if before is None else before.held_lines)
        self.held_bytes: int = is_held * len(raw) + (0 if before is None else before.held_bytes)
        self._frames: tuple[Frame, ...] | None = None

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames up to here."""
        if self._frames is None:
            self._frames = tuple(
                step.frame for step in self._back(self.depth) if step.frame is not None
            )[::-1]
        return self._frames

    @property
    def source(self) -> list["Step"]:
        """The source lines since the last frame, as many as are kept."""
        return list(self._back(self.place))[::-1][:MAX_SOURCE]

    def _back(self, count: int) -> Iterator["Step"]:
        step: Step | None = self
        while count and step is not None:
            yield step
            step = step.before
            count -= 1


NOWHERE = Step()
"""No line is known to follow here."""


class Tree:
    """The tracebacks that have been seen; begins anew when there are very many lines in it."""

    def __init__(self) -> None:
        self.root = Step()
        self._size = 0

    def follow(self, before: Step, raw: bytes, text: str, frame: Frame | None) -> Step:
        """The step that follows another; it is found by what it says after its first blank."""
        known = before.get(raw[1:])
        if known is not None:
            return known
        if self._size >= _MAX_TREE:
            self._clear()
        self._size += 1
        step = before[raw[1:]] = Step(before, raw, text, frame)
        return step

    def _clear(self) -> None:
        """Let the steps know no more of each other than what was before them."""
        steps = [self.root]
        while steps:
            step = steps.pop()
            steps += step.values()
            step.clear()
        self._size = 0


class Trail:
    """A prefix and its process, which may be on its way through a traceback."""

    __slots__ = ("key", "numbers", "phase", "prefix", "run", "shown", "step")

    def __init__(self, prefix: Prefix, shown: bytes, key: Key) -> None:
        self.prefix = prefix
        self.shown = shown
        self.key = key
        self.step = NOWHERE
        self.numbers: list[int] = []
        """The numbers of the lines so far."""
        self.run = 0
        self.phase: Phase | None = None

    def begin(self, root: Step, run: int, phase: Phase | None) -> None:
        """Be before the first line of a traceback that is said in a run."""
        self.step, self.run, self.phase = root, run, phase
        self.numbers = []

    def end(self) -> None:
        """Be nowhere."""
        self.step = NOWHERE
        self.numbers = []

    @property
    def held(self) -> int:
        """How many characters its source lines have."""
        return self.step.held_lines * len(self.shown) + self.step.held_bytes

    @property
    def source(self) -> list[Kept]:
        """The source lines since the last frame, as many as are kept."""
        steps = self.step.source
        numbers = self.numbers[len(self.numbers) - self.step.place :]
        return [
            (
                self.prefix,
                self.key[0],
                number,
                self.shown + step.raw,
                step.text,
                self.run,
                self.phase,
            )
            for number, step in zip(numbers, steps, strict=False)
        ]
