"""What lines that are not read change: the runs, the engines' windows, and which of them must be read."""

from collections.abc import Iterator

from vllm_triage.assembler import Assembler
from vllm_triage.envelopes import Unwrapper
from vllm_triage.lines import Key, Origin
from vllm_triage.matches import Matcher
from vllm_triage.run import Run
from vllm_triage.runs import Runs
from vllm_triage.shapes import Record, owner
from vllm_triage.stretches import Stretch, Summary

_MANY = 256


class Quiet:
    """Applies stretches of one input to what the lines before them have left open."""

    def __init__(
        self, source: str, unwrapper: Unwrapper, assembler: Assembler, matcher: Matcher, runs: Runs
    ) -> None:
        self._source = source
        self._unwrapper = unwrapper
        self._assembler = assembler
        self._matcher = matcher
        self._runs = runs
        self._speakers: dict[Key, bool | None] = {}
        """The processes with an open message, as many as the assembler keeps; True where it is nothing to any rule."""
        self._many = _MANY

    @property
    def reads_records(self) -> bool:
        """Whether any logged record may say something: of the release, or that a table has ended."""
        return self._assembler.is_in_table or self._runs.may_learn_release(self._source)

    def speaks(self, key: Key) -> None:
        """Note that a process has printed a line that was read."""
        self._speakers[key] = None
        if len(self._speakers) > self._many:
            self._count()

    def _count(self) -> None:
        """Keep the processes whose last message may yet go on."""
        for key in tuple(self._speakers):
            if not self._assembler.message(key) and not self._assembler.is_open(key):
                del self._speakers[key]
        self._many = max(_MANY, 2 * len(self._speakers))

    def awaited(self, part: Stretch) -> int | None:
        """The first line that must be read: it ends a message of its process, or goes on with it."""
        self._count()
        owners = {owner(key) for key in self._speakers}
        shapes = {
            id(shape)
            for shape in part.shapes
            if shape.owner in owners and shape.origin in (Origin.ACCESS, Origin.LOG)
        }
        if not shapes:
            return None
        for index in range(part.start, part.stop):
            shape = part.shape(index)
            if id(shape) in shapes:
                key = part.key(self._source, index)
                if key in self._speakers and (
                    bool(self._assembler.message(key))
                    if shape.origin is Origin.ACCESS
                    else self._goes_on(key, shape.record(part.block.raw[index]))
                ):
                    return index
        return None

    def may_await(self, part: Summary) -> bool:
        """Whether one of the lines may have to be read; False is sure."""
        self._count()
        for key in self._speakers:
            name = owner(key)
            if name in part.answering and self._assembler.message(key):
                return True
            if name in part.recording and not self._is_settled(key):
                return True
        return False

    def _goes_on(self, key: Key, record: Record) -> bool:
        """Whether a record that says nothing matters to its process's message or traceback."""
        if not self._is_settled(key):
            return True
        lines = self._assembler.message(key)
        return bool(lines) and record == (lines[-1].level, lines[-1].time, lines[-1].place)

    def _is_settled(self, key: Key) -> bool:
        """Whether a process's message is a record of vLLM's logger that is nothing to any rule, or none."""
        if self._assembler.is_open(key):
            return False
        lines = self._assembler.message(key)
        if self._speakers[key] is None:
            self._speakers[key] = not lines or (
                len(lines) == 1
                and lines[0].place is not None
                and not self._matcher.is_asked_for(lines[0])
            )
        return bool(self._speakers[key])

    def serve(self, first: int, part: Summary) -> Iterator[Run]:
        """Take lines of a block that begins with line `first`; give the runs that answered requests."""
        for name, count in part.envelopes:
            self._unwrapper.counts[name] += count
        runs: dict[object, int] = {}
        for container, served in part.served:
            run = self._runs.serve(self._source, container, first, served)
            runs[container] = run.index
            if served.last_answer is not None:
                yield run
        for key, engine in part.engines:
            self._assembler.skip_windows(
                key, runs.get(key[1]), engine.windows,
                is_busy=engine.is_busy, cache_pct=engine.cache_pct,
            )  # fmt: skip
            self._matcher.skip_windows(key, None if engine.was_idle else engine.ids)
