"""The assembler: lines put together to events per process, though processes interleave."""

from collections import OrderedDict
from collections.abc import Iterable

from vllm_triage.events import Event, record, table
from vllm_triage.expressions import expression
from vllm_triage.kinds import Level
from vllm_triage.lines import Key, Line, Origin
from vllm_triage.plateaus import Steady
from vllm_triage.processes import Process, full
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
from vllm_triage.trails import MAX_SOURCE, Kept

MAX_MESSAGE_LINES = 60
MAX_PROCESSES = 2048
_MANY = 512
"""From how many processes on what the oldest have said last is taken as ended."""
MAX_HELD = 16_777_216
"""Characters of unfinished messages; beyond them the process that was silent longest is ended."""

# Text that another program prints at once, never the rest of an exception's message.
_SELF_STANDING = expression(
    r"(?:Killed|Out of memory: |oom-kill|\w*kernel: |NVRM: |nvidia-\w+|curl: \(|(?:[\w./ -]{0,60}: )?error: |make(?:\[\d+\])?: "
    r"|Process \S+:$|Exception ignored in|Segmentation fault|Aborted|Bus error|Illegal instruction|Fatal Python error"
    r"|terminate called|slurmstepd: |srun: |!!!!!!!|The above exception|During handling|INFO|WARNING|ERROR|DEBUG"
    r"|={8,}|\*{8,}|\+-{8,}|Failures:|Root Cause|Loading safetensors|Capturing|Processed prompts)"
)
_IGNORED = "Exception ignored in"


class Assembler:
    """Turns lines into events, with bounded state per process."""

    def __init__(self) -> None:
        self._processes: OrderedDict[Key, Process] = OrderedDict()
        self._many = _MANY
        self._chains = 0
        self.held = 0
        """How many characters unfinished messages hold."""
        self._windows = Windows()
        self._benchmark = Benchmark()
        self._done: list[Event] = []
        self.is_mixed = False
        """Whether processes on trails have spoken since the last was put in its place."""

    def feed(self, line: Line) -> list[Event]:
        """Take one line and give the events that it completes."""
        done: list[Event] = []
        self._done = done
        if line.origin is not Origin.LOG:
            self._other(line)
            return done
        rows = self._benchmark.feed(line)
        if rows is not None:
            done.append(table(rows))
        if not self._benchmark.is_open:
            self._assemble(line)
            while self.held > MAX_HELD and self._processes:
                self._end_first()
        return done

    def mark(self, key: Key, number: int, part: Part) -> list[Event]:
        """Take a line that is no more than a blank one or one that chains exceptions; there must be no open table."""
        done = self._done = []
        state = self._state(key, number)
        if part is Part.BLANK:
            self._blank(state)
        else:
            self._separate(state, part)
        return done

    def _other(self, line: Line) -> None:
        if line.origin is Origin.ACCESS:
            state = self._processes.get(line.key)
            if state is not None and not state.is_open:
                self._flush(state)
            self._done.append(Event((line,), line.text, line.level, Origin.ACCESS))
        elif line.origin is Origin.STATISTICS:
            observed = self._windows.feed(line)
            if observed is not None:
                self._done.append(
                    Event((line,), line.text, line.level, Origin.STATISTICS, observed=observed)
                )

    def close(self) -> list[Event]:
        """Give what is still open."""
        done = self._done = []
        rows = self._benchmark.close()
        if rows is not None:
            done.append(table(rows))
        for state in self._by_age().values():
            self._end(state)
        self._processes.clear()
        return done

    def _by_age(self) -> OrderedDict[Key, Process]:
        """The processes, the one that was silent longest first."""
        if self.is_mixed:
            self.is_mixed = False
            for state in self._processes.values():
                if state.trail is not None and state.trail.numbers:
                    state.last = max(state.last, state.trail.numbers[-1])
            self._processes = OrderedDict(
                sorted(self._processes.items(), key=lambda item: item[1].last)
            )
        return self._processes

    def _end_some(self) -> None:
        """End the quarter of the processes that was silent longest; of tracebacks only where there are very many."""
        processes = self._by_age()
        is_full = len(processes) > MAX_PROCESSES
        for key in list(processes)[: len(processes) // 4]:
            if is_full or not processes[key].is_open:
                self._end(processes.pop(key))
        self._many = max(_MANY, len(processes) + _MANY // 4)

    def _end_first(self) -> None:
        """End the process that was silent longest."""
        self._end(self._by_age().popitem(last=False)[1])

    def is_open(self, key: Key) -> bool:
        """Tell whether a process is in the middle of a chain of exceptions."""
        state = self._processes.get(key)
        return state is not None and state.is_unfinished

    def message(self, key: Key) -> list[Line]:
        """The lines of a process's last message, which may go on; none inside a traceback."""
        state = self._processes.get(key)
        return [] if state is None or state.is_open else state.message

    @property
    def is_in_table(self) -> bool:
        """Whether the last line belongs to a benchmark's table."""
        return self._benchmark.is_open

    def skip_windows(
        self,
        key: tuple[object, ...],
        run: int | None,
        windows: Iterable[Steady | None],
        *,
        is_busy: bool,
        cache_pct: float,
    ) -> None:
        """Take windows of one engine that no rule asks for, of which the last was busy or not."""
        self._windows.skip(key, run, windows, is_busy=is_busy, cache_pct=cache_pct)

    def quiet(self, since: int) -> list[Event]:
        """Give the last message of the processes that said nothing after line `since`."""
        done = self._done = []
        for state in self._by_age().values():
            if state.last > since:
                # The one that spoke last stands last.
                break
            self._flush(state)
        return done

    def traceback(self, key: Key) -> Process | None:
        """A process in whose open traceback an indented line is a frame or a source line, whatever it says."""
        state = self._processes.get(key)
        return state if state is not None and self.is_inside(state) else None

    def is_inside(self, state: Process) -> bool:
        """Tell whether that holds for a process still; one that was let go has nothing open."""
        return (
            state.is_open
            and not state.flat
            and self.held < MAX_HELD
            and not self._benchmark.is_open
        )

    @property
    def can_follow(self) -> bool:
        """Whether lines of processes on their trails may be taken."""
        return self.held < MAX_HELD and not self._benchmark.is_open

    def settle(self, state: Process) -> None:
        """Have a process leave its trail, if it is on one, with what that tells."""
        if state.trail is not None:
            self.held += state.settle()

    def add_frame(self, state: Process, key: Key, number: int, found: Frame) -> None:
        """Take an indented frame line of an open traceback."""
        self._processes.move_to_end(key)
        state.last = number
        state.add_frame(found)

    def add_source(self, state: Process, key: Key, number: int, kept: Kept) -> None:
        """Take an indented source line of an open traceback."""
        self._processes.move_to_end(key)
        state.last = number
        state.blank = state.after_frame = False
        if len(state.source) < MAX_SOURCE:
            state.source.append(kept)
            size = len(kept[3])
            state.held += size
            self.held += size

    def _state(self, key: Key, number: int) -> Process:
        state = self._processes.get(key)
        if state is None:
            state = self._processes[key] = Process()
        else:
            self._processes.move_to_end(key)
        state.last = number
        if len(self._processes) > min(self._many, MAX_PROCESSES):
            self._end_some()
        return state

    def _assemble(self, line: Line) -> None:
        state = self._state(line.key, line.number)
        text = line.text
        if not text.strip():
            self._blank(state)
            return
        part = separator(text)
        if part is Part.HEADER:
            self._header(state, line)
            return
        if part is not None:
            self._separate(state, part)
            return
        found = frame(text)
        if found is None:
            self._text(state, line)
            return
        self.settle(state)
        if not state.is_open:
            self._flush(state)
            self._open(state)
        state.flat = text[:1] not in (" ", "\t")
        state.add_frame(found)

    def _blank(self, state: Process) -> None:
        self.settle(state)
        state.blank = True
        state.after_frame = False
        if state.message and state.exception is None and not state.is_open:
            self._flush(state)

    def _separate(self, state: Process, part: Part) -> None:
        self.settle(state)
        self._flush(state)
        state.pending = "cause" if part is Part.CAUSE else "context"

    def _header(self, state: Process, line: Line) -> None:
        head = line.text[: line.text.index(HEADER)].rstrip(" ,|")
        if head and exception_name(head.strip(), in_traceback=False) is None:
            self._end(state, keep_pending=True)
            state.message = [line._replace(text=head)]
        is_head = self._is_head(state, line)
        ignored = is_head and state.message[0].text.startswith(_IGNORED)
        if is_head:
            self._chain(state, new=True)
            self._flush(state, as_head=True)
            state.pending = "head"
        else:
            pending = state.pending
            self._end(state, keep_pending=True)
            state.pending = pending
        self._open(state)
        state.ignored = ignored

    @staticmethod
    def _is_head(state: Process, line: Line) -> bool:
        if not state.message or state.exception is not None or state.is_open:
            return False
        last = state.message[-1]
        if last.place is not None and last.place == line.place:
            return True
        return last.number == line.number or last.text.startswith(
            (_IGNORED, "Process ", "Exception in")
        )

    def _open(self, state: Process) -> None:
        if state.pending is None:
            self._chain(state, new=True)
        state.link, state.pending = state.pending, None
        state.is_open = True
        state.flat = False
        state.ignored = False
        state.after_frame = False
        state.frames = ()
        state.source = []

    def _chain(self, state: Process, *, new: bool) -> None:
        if new or not state.chain:
            self._chains += 1
            state.chain = self._chains

    def _text(self, state: Process, line: Line) -> None:
        text = line.text
        blank, state.blank = state.blank, False
        if state.is_open:
            frames = state.frames if state.trail is None else state.trail.step.frames
            name = exception_name(text, in_traceback=bool(frames) and not state.flat)
            if name is not None:
                state.leave(frames)
                state.is_open = False
                state.exception = name
                state.message = [line]
                return
            self.settle(state)
            if is_source(text, flat=state.flat, just_after_frame=state.after_frame):
                state.after_frame = False
                if len(state.source) < MAX_SOURCE:
                    state.source.append(line)
                    self._hold(state, line)
                return
            # Another writer's line in between: said on its own, the traceback goes on.
            self._done.append(record([line]))
            return
        if state.message and self._continues(state, line, blank=blank):
            if len(state.message) < MAX_MESSAGE_LINES:
                state.message.append(line)
                self._hold(state, line)
            return
        self._flush(state)
        state.pending = None
        state.message = [line]
        self._hold(state, line)
        state.exception = exception_name(text.strip(), in_traceback=False)
        if state.exception is not None:
            state.link = None
            state.frames = ()
            self._chain(state, new=True)

    def _continues(self, state: Process, line: Line, *, blank: bool) -> bool:
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

    def _hold(self, state: Process, line: Line) -> None:
        state.held += len(line.raw)
        self.held += len(line.raw)

    def _release(self, state: Process) -> None:
        self.held -= state.held
        state.held = 0

    def _flush(self, state: Process, *, as_head: bool = False) -> None:
        """Give the open message, if there is one."""
        if not state.is_open:
            self._release(state)
        if not state.message:
            return
        lines, state.message = state.message, []
        if state.exception is None:
            self._done.append(record(lines, chain=state.chain if as_head else 0))
            return
        self._done.append(state.raised(lines))
        state.exception = None

    def _indented(self, state: Process, lines: list[Line]) -> None:
        """Give the exception of a traceback that stands indented as a whole, as pip shows its children's."""
        for line in lines:
            text = line.text.strip()
            name = exception_name(text, in_traceback=False)
            if name is not None and text.startswith(f"{name}: "):
                state.exception = name
                self._done.append(state.raised([line._replace(text=text)]))
                state.exception = None
                return

    def _end(self, state: Process, *, keep_pending: bool = False) -> None:
        """Give the open message and what a traceback without its last line still tells."""
        self.settle(state)
        self._flush(state)
        if state.is_open and state.source:
            lines = [full(line) for line in state.source]
            found = raised([line.text for line in lines])
            if found is not None:
                index, name, text = found
                state.exception = name
                lines = [lines[index]._replace(text=f"{name}: {text}")]
                self._done.append(state.raised(lines, restored=True))
                state.exception = None
            else:
                self._indented(state, lines)
        state.is_open = False
        state.frames = ()
        state.source = []
        self._release(state)
        if not keep_pending:
            state.pending = None
