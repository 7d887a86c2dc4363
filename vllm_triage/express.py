"""The express: lines inside tracebacks, taken without the long road.

A server that dies prints the same frames and source lines from each worker, at each restart. Of
such a line all is known but its number as soon as its prefix and its text have been seen: it ends
nothing, begins nothing and states nothing. Whatever is not surely so takes the long road.
"""

from functools import lru_cache
from typing import NamedTuple

from vllm_triage.assembler import Assembler, Kept
from vllm_triage.envelopes import Unwrapper, is_clean
from vllm_triage.kinds import Level
from vllm_triage.lines import Key, Origin, Prefix, parse, usual_prefix
from vllm_triage.releases import own_frame
from vllm_triage.runs import Runs, says_nothing
from vllm_triage.tracebacks import Frame, frame, separator

_MAX_LANES = 128
_MAX_TEXT = 500
_SPEAKING = (None, Level.WARNING, Level.ERROR)


_SAMPLE = "(Worker pid=1) ERROR 01-01 00:00:00 [a.py:1] "
# What other parts of the road look for anywhere in a line.
_NOT_JUST_CODE = ("NCCL ", "Rank ", "%|", "\\n", "content", "Benchmark Result")


class _Lane(NamedTuple):
    """A prefix, and the process that prints it."""

    shown: str
    prefix: Prefix
    key: Key


class _Inner(NamedTuple):
    """A frame or source line as each process prints it."""

    text: str
    frame: Frame | None
    own: Frame | None
    """The frame, where it is in vLLM's own code."""


class Express:
    """Takes the lines of open tracebacks of one input."""

    def __init__(
        self, source: str, unwrapper: Unwrapper, assembler: Assembler, runs: Runs
    ) -> None:
        self._source = source
        self._unwrapper = unwrapper
        self._assembler = assembler
        self._runs = runs
        self._lanes: dict[str, _Lane] = {}

    def take(self, number: int, text: str) -> bool:
        """Take a physical line; False when it must go the long road."""
        end = text.find("] ") + 2
        lane = self._lanes.get(text[:end])
        if lane is None:
            lane = self._lane(text)
            if lane is None:
                return False
            end = len(lane.shown)
        if (
            not text.startswith(("  ", "\t"), end)
            or len(text) - end > _MAX_TEXT
            or not self._unwrapper.is_plain
            or not self._assembler.traceback(lane.key)
        ):
            return False
        inner = _inner(text[end:])
        if inner is None:
            return False
        run = self._runs.inside(lane.key, lane.prefix, inner.text, inner.own)
        if run is None:
            return False
        self._unwrapper.count_plain()
        if inner.frame is not None:
            self._assembler.add_frame(lane.key, number, inner.frame)
        else:
            kept = Kept(lane.prefix, self._source, number, text, inner.text, run.index, run.phase)
            self._assembler.add_source(lane.key, kept)
        return True

    def _lane(self, text: str) -> _Lane | None:
        found = usual_prefix(text)
        if found is None:
            return None
        prefix, end = found
        shown = text[:end]
        lane = self._lanes.get(shown)
        if lane is None and prefix.level in _SPEAKING and is_clean(shown):
            key = (self._source, None, prefix.process, prefix.pid, None)
            if len(self._lanes) >= _MAX_LANES:
                self._lanes.clear()
            lane = self._lanes[shown] = _Lane(shown, prefix, key)
        return lane


@lru_cache(maxsize=4096)
def _inner(text: str) -> _Inner | None:
    """What an indented text is inside a traceback, where it is no more than a part of it."""
    # Its line end may be that of a terminal.
    text = text.rstrip("\r")
    if not is_clean(text) or separator(text) is not None or not says_nothing(text):
        return None
    if any(words in text for words in _NOT_JUST_CODE):
        return None
    lines = parse("", 0, _SAMPLE + text)
    if len(lines) != 1 or lines[0].text != text or lines[0].origin is not Origin.LOG:
        return None
    return _Inner(text, frame(text), own_frame(text))
