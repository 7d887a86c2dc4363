"""The express: lines inside tracebacks, taken without the long road.

A server that dies prints the same frames and source lines from each worker, at each restart. Of
such a line all is known but its number as soon as its prefix and its text have been seen: it ends
nothing, begins nothing and states nothing. Whatever is not surely so takes the long road.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from vllm_triage.assembler import Assembler
from vllm_triage.envelopes import Unwrapper, is_clean
from vllm_triage.kinds import Level
from vllm_triage.lines import WRITTEN_WORDS, Key, Origin, Prefix, parse, usual_prefix
from vllm_triage.processes import Process
from vllm_triage.releases import own_frame
from vllm_triage.runs import Runs, says_nothing
from vllm_triage.tracebacks import Frame, frame, separator

_MAX_LANES = 128
_MAX_TEXT = 500
_MAX_PREFIX = 202
_INDENTED = (b"  ", b"\t\t", b"\t ")
_BEGINNINGS = (b"(", b"E", b"W")
_SPEAKING = (None, Level.WARNING, Level.ERROR)


_SAMPLE = "(Worker pid=1) ERROR 01-01 00:00:00 [a.py:1] "
# What other parts of the road look for anywhere in a line.
_NOT_JUST_CODE = ("NCCL ", "Rank ", "%|", "\\n", "Benchmark Result", *WRITTEN_WORDS)


@dataclass(slots=True, eq=False, repr=False)
class _Lane:
    """A prefix, and the process that prints it."""

    length: int
    prefix: Prefix
    key: Key
    process: Process | None = None
    """What was open for it when it printed last."""


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
        self._place = (source, None)
        self._unwrapper = unwrapper
        self._assembler = assembler
        self._runs = runs
        self._lanes: dict[bytes, _Lane] = {}

    def take(self, number: int, raw: bytes) -> bool:
        """Take a physical line without LF; False when it must go the long road."""
        end = raw.find(b"] ") + 2
        lane = self._lanes.get(raw[:end]) or self._lane(raw)
        if lane is None or not self._unwrapper.is_plain:
            return False
        process = lane.process
        if process is None or not self._assembler.is_inside(process):
            process = lane.process = self._assembler.traceback(lane.key)
            if process is None:
                return False
        end = lane.length
        if raw[end : end + 2] not in _INDENTED or len(raw) - end > _MAX_TEXT:
            return False
        inner = _inner(raw[end:])
        if inner is None:
            return False
        text, found, own = inner
        run = self._runs.inside(self._place, lane.key, lane.prefix, text, own)
        if run is None:
            return False
        self._unwrapper.bare += 1
        if found is not None:
            self._assembler.add_frame(process, lane.key, number, found)
        else:
            kept = (lane.prefix, self._source, number, raw, text, run.index, run.phase)
            self._assembler.add_source(process, lane.key, number, kept)
        return True

    def _lane(self, raw: bytes) -> _Lane | None:
        head = raw[:_MAX_PREFIX]
        if (
            raw[:1] not in _BEGINNINGS
            or (b"]   " not in head and b")   " not in head)
            or not head.isascii()
        ):
            return None
        found = usual_prefix(head.decode("ascii"))
        if found is None:
            return None
        prefix, end = found
        shown = raw[:end]
        lane = self._lanes.get(shown)
        if lane is None and prefix.level in _SPEAKING and is_clean(shown.decode("ascii")):
            key = (self._source, None, prefix.process, prefix.pid, None)
            if len(self._lanes) >= _MAX_LANES:
                self._lanes.clear()
            lane = self._lanes[shown] = _Lane(end, prefix, key)
        return lane


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
