"""The express: lines inside tracebacks and around them, taken without the long road.

A server that dies prints the same frames and source lines from each worker, at each restart. Of
such a line all is known but its number as soon as its prefix and its text have been seen: it ends
nothing, begins nothing and states nothing. What the same processes print between tracebacks is
read, but cut without regexes. Whatever is not surely so takes the long road.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from vllm_triage.assembler import Assembler
from vllm_triage.envelopes import Unwrapper
from vllm_triage.escapes import is_clean
from vllm_triage.kinds import Level, Phase
from vllm_triage.lines import (
    FOLDED_BY_RAY,
    REQUESTS,
    WRITTEN_WORDS,
    Line,
    Origin,
    parse,
    usual_prefix,
)
from vllm_triage.processes import Process
from vllm_triage.releases import own_frame
from vllm_triage.run import Run
from vllm_triage.runs import Runs, is_idle_talk, says_nothing
from vllm_triage.tracebacks import Frame, Part, frame, separator
from vllm_triage.trails import MAX_STEPS, NOWHERE, Trail, Tree

_MAX_LANES = 128
_MAX_MESSAGES = 512
_MAX_TEXT = 500
_MAX_SAID = 2000
_MAX_PREFIX = 202
_INDENT = b"  "
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_BEGINNINGS = (b"(", b"E", b"W")
_MARKS = (Part.BLANK, Part.CAUSE, Part.CONTEXT)
_SPEAKING = (None, Level.WARNING, Level.ERROR)


_SAMPLE = "(Worker pid=1) ERROR 01-01 00:00:00 [a.py:1] "
# What other parts of the road look for anywhere in a line.
_NOT_JUST_CODE = ("NCCL ", "Rank ", "%|", "\\n", "Benchmark Result", FOLDED_BY_RAY, *WRITTEN_WORDS)
_NOT_JUST_TEXT = (*_NOT_JUST_CODE, '" ', *REQUESTS, "Avg prompt throughput: ", "[resource")


class _Inner(NamedTuple):
    """A frame or source line as each process prints it."""

    text: str
    frame: Frame | None
    own: Frame | None
    """The frame, where it is in vLLM's own code."""


class _Lane(Trail):
    """A prefix, and the process that prints it."""

    __slots__ = ("process",)

    process: Process | None
    """What was open for it when it printed last."""


Row = tuple[int, bytes]
"""A physical line with its number."""

Said = tuple[Line | None, Part, Trail, Run, bool]
"""What one of the processes printed around its tracebacks: its line, None where that is no more
than its part; what it is to the traceback; the process; its run, and whether that learns no more
from it than that it was said."""


class Express:
    """Takes the lines of open tracebacks of one input."""

    def __init__(
        self, source: str, unwrapper: Unwrapper, assembler: Assembler, runs: Runs
    ) -> None:
        self._source = source
        self._place = (source, None)
        self._unwrapper = unwrapper
        self._assembler = assembler
        self._runs = runs
        self._tree = Tree()
        self._lanes: dict[bytes, _Lane] = {}
        """By what stands before the first two blanks in a row."""
        self._said: set[bytes] = set()
        self._index = -1
        self._phase: Phase | None = None
        self._is_settled = False
        """Whether that is still so: what has been said since tells a run nothing."""
        self._now: Run | None = None
        """The run for which lines may be taken that follow what was said."""

    def take(self, number: int, rows: Iterator[Row]) -> Row | None:
        """Take physical lines without LF, the first of which has this number, as far as it goes.

        Gives the line that must go the long road, which is the last one gone from `rows`; None
        when all have been taken.
        """
        while (row := self._follow(number, rows)) is not None:
            here, raw = row
            # No line that is taken is without, and most that are left are.
            if _INDENT not in raw or not self._take(here, raw):
                break
            number = here + 1
        return row

    def said(self, number: int, raw: bytes) -> Said | None:
        """The line that `take` has just left, as it is read; None when it must go the long road."""
        run = self._now
        if run is None or len(raw) > _MAX_SAID:
            return None
        head, bracket, rest = raw.partition(b"] ")
        if not bracket or b"033" in raw or b"1b[" in raw:
            return None
        mapped = rest.translate(_DIGITS)
        lane = self._lanes.get(head + b"]")
        if lane is None:
            lane = self._new_lane(raw) if self._is_said_again(mapped) else None
            if lane is None or len(lane.shown) != len(head) + 2:
                return None
        known = _talk(mapped)
        if known is None:
            return None
        part, is_idle = known
        self._is_settled = is_idle
        self._unwrapper.bare += 1
        time, level, process, pid, rank, place, _ = lane.prefix
        if is_idle and part in _MARKS:
            return None, part, lane, run, True
        line = Line(
            self._source, number, raw.decode("ascii"), rest.decode("ascii").rstrip(),
            time, level, process, pid, rank, place, run=run.index, phase=run.phase,
        )  # fmt: skip
        return line, part, lane, run, is_idle

    def begin(self, trail: Trail, run: Run) -> None:
        """Have a process whose traceback was opened follow those that have been seen."""
        lane = self._lanes.get(trail.shown[:-1])
        process = self._assembler.traceback(trail.key)
        if lane is trail and process is not None and process.trail is None:
            lane.process = process
            self._may_follow(lane, process, run)

    def _follow(self, number: int, rows: Iterator[Row]) -> Row | None:
        """Take lines that are known to follow what their processes have said; give the next one."""
        run = self._now
        if not self._is_settled or run is None or run.phase is not self._phase:
            run = self._now = self._run()
        elif not self._assembler.can_follow:
            run = self._now = None
        self._is_settled = False
        if run is None:
            return next(rows, None)
        lane_of = self._lanes.get
        here, last, row = number - 1, None, None
        for here, raw in rows:
            head, _, rest = raw.partition(_INDENT)
            lane = lane_of(head)
            if lane is None or (step := lane.step.get(rest)) is None:
                row = here, raw
                break
            lane.step = step
            lane.numbers.append(here)
            last = lane
        else:
            here += 1
        if last is not None:
            self._unwrapper.bare += here - number
            self._assembler.is_mixed = True
            self._runs.go_on(run, here - number, *self._times(run, number, last))
        return row

    def _times(self, run: Run, number: int, last: _Lane) -> tuple[str | None, str | None]:
        """When the first and the last of the lines from this one on were said, of those that tell it."""
        if last.prefix.time is not None and run.first_seen is not None:
            return None, last.prefix.time
        timed = [
            lane for lane in self._lanes.values()
            if lane.prefix.time is not None and lane.numbers and lane.numbers[-1] >= number
        ]  # fmt: skip
        if not timed:
            return None, None
        first = min(timed, key=lambda lane: lane.numbers[bisect_left(lane.numbers, number)])
        last = max(timed, key=lambda lane: lane.numbers[-1])
        return first.prefix.time, last.prefix.time

    def _run(self) -> Run | None:
        """The run that lines may be taken for which follow what was said; None for none."""
        if not self._unwrapper.is_plain or not self._assembler.can_follow:
            return None
        run = self._runs.in_progress(self._place)
        if run is not None and (run.phase is not self._phase or run.index != self._index):
            self._index, self._phase = run.index, run.phase
            for lane in self._lanes.values():
                if lane.step is not NOWHERE and lane.process is not None:
                    self._assembler.settle(lane.process)
        return run

    def _take(self, number: int, raw: bytes) -> bool:
        lane = self._lane(raw)
        if lane is None or not self._unwrapper.is_plain:
            return False
        process = lane.process
        if process is None or not self._assembler.is_inside(process):
            process = lane.process = self._assembler.traceback(lane.key)
            if process is None:
                return False
        end = len(lane.shown)
        if raw[end : end + 2] != _INDENT or len(raw) - end > _MAX_TEXT:
            return False
        inner = _inner(raw[end:])
        if inner is None:
            return False
        text, found, own = inner
        run = self._runs.inside(self._place, lane.key, lane.prefix, text, own)
        if run is None:
            return False
        self._unwrapper.bare += 1
        if self._may_follow(lane, process, run):
            lane.step = self._tree.follow(lane.step, raw[end:], text, found)
            lane.numbers.append(number)
            self._assembler.is_mixed = True
        elif found is not None:
            self._assembler.add_frame(process, lane.key, number, found)
        else:
            kept = (lane.prefix, self._source, number, raw, text, run.index, run.phase)
            self._assembler.add_source(process, lane.key, number, kept)
        return True

    def _may_follow(self, lane: _Lane, process: Process, run: Run) -> bool:
        """Whether only the trail is to tell of the next line; a process that is on another leaves it."""
        is_usual = (
            not run.release.is_open
            and not run.echoes.is_waiting
            and run.phase is self._phase
            and run.index == self._index
        )
        if process.trail is None:
            if not is_usual or process.frames or process.source:
                return False
            lane.begin(self._tree.root, run.index, run.phase)
            process.trail = lane
            return True
        if is_usual and process.trail is lane and lane.step.depth < MAX_STEPS:
            return True
        self._assembler.settle(process)
        return False

    def _lane(self, raw: bytes) -> _Lane | None:
        head = raw[:_MAX_PREFIX]
        if b"]   " not in head and b")   " not in head:
            return None
        lane = self._lanes.get(raw.partition(_INDENT)[0])
        if lane is not None:
            return lane
        return self._new_lane(raw)

    def _is_said_again(self, mapped: bytes) -> bool:
        """Whether a message, every digit made 0, has been said before; a new one costs more to know than to read."""
        if mapped in self._said:
            return True
        if len(self._said) >= _MAX_MESSAGES:
            self._said.clear()
        self._said.add(mapped)
        return False

    def _new_lane(self, raw: bytes) -> _Lane | None:
        head = raw[:_MAX_PREFIX]
        if raw[:1] not in _BEGINNINGS or not head.isascii():
            return None
        found = usual_prefix(head.decode("ascii"))
        if found is None:
            return None
        prefix, end = found
        shown = raw[:end]
        if (
            prefix.level not in _SPEAKING
            or not is_clean(shown.decode("ascii"))
            or _INDENT in shown
        ):
            return None
        if len(self._lanes) >= _MAX_LANES:
            self._lanes.clear()
        key = (self._source, None, prefix.process, prefix.pid, None)
        lane = self._lanes[shown[:-1]] = _Lane(prefix, shown, key)
        lane.process = None
        return lane


@lru_cache(maxsize=256)
def _talk(mapped: bytes) -> tuple[Part, bool] | None:
    """What a message, every digit made 0, is to a traceback, and whether it tells a run nothing.

    None when it is not just one message.
    """
    if not mapped.isascii() or b"\x00" in mapped:
        return None
    text = mapped.decode("ascii").rstrip("\r")
    if (
        text.startswith(("(", "[", " ", "\t"))
        or not is_clean(text)
        or any(words in text for words in _NOT_JUST_TEXT)
    ):
        return None
    lines = parse("", 0, _SAMPLE + text)
    text = text.rstrip()
    if len(lines) != 1 or lines[0].text != text or lines[0].origin is not Origin.LOG:
        return None
    part = Part.BLANK if not text else separator(text) or Part.OTHER
    return part, is_idle_talk(text)


@lru_cache(maxsize=4096)
def _inner(raw: bytes) -> _Inner | None:
    """What an indented text is inside a traceback, where it is no more than a part of it."""
    if not raw.isascii() or b"\x00" in raw:
        return None
    # Its line end may be that of a terminal.
    text = raw.decode("ascii").rstrip("\r")
    if not is_clean(text) or separator(text) is not None or not says_nothing(text):
        return None
    if any(words in text for words in _NOT_JUST_CODE):
        return None
    lines = parse("", 0, _SAMPLE + text)
    if len(lines) != 1 or lines[0].text != text or lines[0].origin is not Origin.LOG:
        return None
    return _Inner(text, frame(text), own_frame(text))
