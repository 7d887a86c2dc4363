"""Events: lines that belong together, assembled per process though processes interleave."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_triage.expressions import expression
from vllm_triage.kinds import Level
from vllm_triage.lines import Line, Origin
from vllm_triage.statistics import Benchmark, Windows
from vllm_triage.tracebacks import (
    HEADER,
    Frame,
    Part,
    exception_name,
    frame,
    is_source,
    raised,
    separator,
)

MAX_MESSAGE_LINES = 60
MAX_FRAMES = 400
MAX_PROCESSES = 2048
MAX_HELD = 16_777_216
"""Characters of unfinished messages; beyond them the process that was silent longest is ended."""
_MAX_SOURCE = 12

# Text that another program prints at once, never the rest of an exception's message.
_SELF_STANDING = expression(
    r"(?:Killed|Out of memory: |oom-kill|\w*kernel: |NVRM: |nvidia-\w+|curl: \(|(?:[\w./ -]{0,60}: )?error: |make(?:\[\d+\])?: "
    r"|Process \S+:$|Exception ignored in|Segmentation fault|Aborted|Bus error|Illegal instruction|Fatal Python error"
    r"|terminate called|slurmstepd: |srun: |!!!!!!!|The above exception|During handling|INFO|WARNING|ERROR|DEBUG"
    r"|={8,}|\*{8,}|\+-{8,}|Failures:|Root Cause|Loading safetensors|Capturing|Processed prompts)"
)
_IGNORED = "Exception ignored in"


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
    unwrapped: str | None = None
    """The text with its line ends, where `text` has blanks in their place."""

    @property
    def first(self) -> Line:
        """The line that states it."""
        return self.lines[0]

    def line_at(self, offset: int) -> Line:
        """The line that holds a position of `text`."""
        index = (self.unwrapped or self.text).count("\n", 0, offset)
        return self.lines[min(index, len(self.lines) - 1)]


@dataclass(slots=True)
class _Process:
    """What is still open for one process."""

    message: list[Line] = field(default_factory=list)
    exception: str | None = None
    link: str | None = None
    frames: list[Frame] = field(default_factory=list)
    source: list[Line] = field(default_factory=list)
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
        return self.is_open or self.pending is not None or self.exception is not None


class Assembler:
    """Turns lines into events, with bounded state per process."""

    def __init__(self) -> None:
        self._processes: OrderedDict[tuple[object, ...], _Process] = OrderedDict()
        self._chains = 0
        self.held = 0
        """How many characters unfinished messages hold."""
        self._windows = Windows()
        self._benchmark = Benchmark()

    def feed(self, line: Line) -> Iterator[Event]:
        """Take one line and give the events that it completes."""
        if line.origin is Origin.REQUEST:
            return
        if line.origin is Origin.ACCESS:
            state = self._processes.get(line.key)
            if state is not None and not state.is_open:
                yield from self._flush(state)
            yield Event((line,), line.text, line.level, Origin.ACCESS)
            return
        if line.origin is Origin.STATISTICS:
            observed = self._windows.feed(line)
            if observed is not None:
                yield Event((line,), line.text, line.level, Origin.STATISTICS, observed=observed)
            return
        table = self._benchmark.feed(line)
        if table is not None:
            yield _table(table)
        if self._benchmark.is_open:
            return
        yield from self._assemble(line)
        while self.held > MAX_HELD and self._processes:
            yield from self._end(self._processes.popitem(last=False)[1])

    def close(self) -> Iterator[Event]:
        """Give what is still open."""
        table = self._benchmark.close()
        if table is not None:
            yield _table(table)
        for state in list(self._processes.values()):
            yield from self._end(state)
        self._processes.clear()

    def is_open(self, key: tuple[object, ...]) -> bool:
        """Tell whether a process is in the middle of a chain of exceptions."""
        state = self._processes.get(key)
        return state is not None and state.is_unfinished

    def message(self, key: tuple[object, ...]) -> list[Line]:
        """The lines of a process's last message, which may go on; none inside a traceback."""
        state = self._processes.get(key)
        return [] if state is None or state.is_open else state.message

    @property
    def is_in_table(self) -> bool:
        """Whether the last line belongs to a benchmark's table."""
        return self._benchmark.is_open

    def skip_windows(self, key: tuple[object, ...], *, is_busy: bool) -> None:
        """Take windows of one engine that no rule asks for, of which the last was busy or not."""
        self._windows.skip(key, is_busy=is_busy)

    def quiet(self, since: int) -> Iterator[Event]:
        """Give the last message of the processes that said nothing after line `since`."""
        for state in self._processes.values():
            if state.last > since:
                # The one that spoke last stands last.
                return
            yield from self._flush(state)

    def _state(self, line: Line) -> tuple[_Process, _Process | None]:
        key = line.key
        state = self._processes.get(key)
        if state is not None:
            self._processes.move_to_end(key)
            return state, None
        state = self._processes[key] = _Process()
        evicted = None
        if len(self._processes) > MAX_PROCESSES:
            _, evicted = self._processes.popitem(last=False)
        return state, evicted

    def _assemble(self, line: Line) -> Iterator[Event]:
        state, evicted = self._state(line)
        if evicted is not None:
            yield from self._end(evicted)
        state.last = line.number
        text = line.text
        if not text.strip():
            state.blank = True
            state.after_frame = False
            if state.message and state.exception is None and not state.is_open:
                yield from self._flush(state)
            return
        part = separator(text)
        if part is Part.HEADER:
            yield from self._header(state, line)
            return
        if part is not None:
            yield from self._flush(state)
            state.pending = "cause" if part is Part.CAUSE else "context"
            return
        found = frame(text)
        if found is not None:
            yield from self._frame(state, line, found)
            return
        yield from self._text(state, line)

    def _header(self, state: _Process, line: Line) -> Iterator[Event]:
        head = line.text[: line.text.index(HEADER)].rstrip(" ,|")
        if head and exception_name(head.strip(), in_traceback=False) is None:
            yield from self._end(state, keep_pending=True)
            state.message = [line._replace(text=head)]
        is_head = self._is_head(state, line)
        ignored = is_head and state.message[0].text.startswith(_IGNORED)
        if is_head:
            self._chain(state, new=True)
            yield from self._flush(state, as_head=True)
            state.pending = "head"
        else:
            pending = state.pending
            yield from self._end(state, keep_pending=True)
            state.pending = pending
        self._open(state)
        state.ignored = ignored

    @staticmethod
    def _is_head(state: _Process, line: Line) -> bool:
        if not state.message or state.exception is not None or state.is_open:
            return False
        last = state.message[-1]
        if last.place is not None and last.place == line.place:
            return True
        return last.number == line.number or last.text.startswith(
            (_IGNORED, "Process ", "Exception in")
        )

    def _open(self, state: _Process) -> None:
        if state.pending is None:
            self._chain(state, new=True)
        state.link, state.pending = state.pending, None
        state.is_open = True
        state.flat = False
        state.ignored = False
        state.after_frame = False
        state.frames = []
        state.source = []

    def _chain(self, state: _Process, *, new: bool) -> None:
        if new or not state.chain:
            self._chains += 1
            state.chain = self._chains

    def _frame(self, state: _Process, line: Line, found: Frame) -> Iterator[Event]:
        if not state.is_open:
            yield from self._flush(state)
            self._open(state)
        state.flat = line.text[:1] not in (" ", "\t")
        if len(state.frames) < MAX_FRAMES:
            state.frames.append(found)
        else:
            state.frames[-1] = found
        state.source = []
        state.after_frame = True
        state.blank = False

    def _text(self, state: _Process, line: Line) -> Iterator[Event]:
        text = line.text
        blank, state.blank = state.blank, False
        if state.is_open:
            name = exception_name(text, in_traceback=bool(state.frames) and not state.flat)
            if name is not None:
                state.is_open = False
                state.exception = name
                state.message = [line]
                return
            if is_source(text, flat=state.flat, just_after_frame=state.after_frame):
                state.after_frame = False
                if len(state.source) < _MAX_SOURCE:
                    state.source.append(line)
                    self._hold(state, line)
                return
            # Another writer's line in between: said on its own, the traceback goes on.
            yield _record([line])
            return
        if state.message and self._continues(state, line, blank=blank):
            if len(state.message) < MAX_MESSAGE_LINES:
                state.message.append(line)
                self._hold(state, line)
            return
        yield from self._flush(state)
        state.pending = None
        state.message = [line]
        self._hold(state, line)
        state.exception = exception_name(text.strip(), in_traceback=False)
        if state.exception is not None:
            state.link = None
            state.frames = []
            self._chain(state, new=True)

    def _continues(self, state: _Process, line: Line, *, blank: bool) -> bool:
        last = state.message[-1]
        text = line.text
        if line.place is not None or last.place is not None:
            same = line.place == last.place and line.level == last.level and line.time == last.time
            if not same or line.level in (Level.INFO, Level.DEBUG):
                return False
        elif line.level != last.level and line.level is not None:
            return False
        if exception_name(text.strip(), in_traceback=False) is not None:
            return False
        if text[:1] in (" ", "\t"):
            return True
        if state.message[0].text.startswith("Root Cause (first") and text.startswith("["):
            return True
        if state.exception is None:
            return line.place is not None and not blank
        return not _SELF_STANDING.match(text)

    def _hold(self, state: _Process, line: Line) -> None:
        state.held += len(line.raw)
        self.held += len(line.raw)

    def _release(self, state: _Process) -> None:
        self.held -= state.held
        state.held = 0

    def _flush(self, state: _Process, *, as_head: bool = False) -> Iterator[Event]:
        """Give the open message, if there is one."""
        if not state.is_open:
            self._release(state)
        if not state.message:
            return
        lines, state.message = state.message, []
        if state.exception is None:
            yield _record(lines, chain=state.chain if as_head else 0)
            return
        yield _exception(lines, state)
        state.exception = None

    def _end(self, state: _Process, *, keep_pending: bool = False) -> Iterator[Event]:
        """Give the open message and what a traceback without its last line still tells."""
        yield from self._flush(state)
        if state.is_open and state.source:
            found = raised([line.text for line in state.source])
            if found is not None:
                index, name, text = found
                state.exception = name
                lines = [state.source[index]._replace(text=f"{name}: {text}")]
                yield _exception(lines, state, restored=True)
                state.exception = None
        state.is_open = False
        state.frames = []
        state.source = []
        self._release(state)
        if not keep_pending:
            state.pending = None


def _record(lines: list[Line], *, chain: int = 0) -> Event:
    first = lines[0]
    level = first.level
    name = exception_name(first.text.strip(), in_traceback=False)
    if name is not None and name.endswith("Warning"):
        level = Level.WARNING
    text = first.text if len(lines) == 1 else "\n".join(line.text for line in lines)
    return Event(tuple(lines), text, level, chain=chain, link="head" if chain else None)


def _exception(lines: list[Line], state: _Process, *, restored: bool = False) -> Event:
    level = lines[0].level
    if state.ignored:
        level = Level.DEBUG
    elif state.exception is not None and state.exception.endswith("Warning"):
        level = Level.WARNING
    return Event(
        tuple(lines),
        "\n".join(line.text for line in lines),
        level,
        exception=state.exception,
        frames=tuple(state.frames),
        chain=state.chain,
        link=state.link,
        restored=restored,
    )


def _table(found: tuple[tuple[Line, ...], tuple[tuple[str, float], ...]]) -> Event:
    lines, observed = found
    return Event(
        lines,
        "\n".join(line.text for line in lines),
        None,
        Origin.STATISTICS,
        observed=observed,
    )
