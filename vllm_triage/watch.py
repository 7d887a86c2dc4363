"""The watch: several logs, followed, each a source of its own, and what they newly tell."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from vllm_triage.follow import Files, Piece
from vllm_triage.model import Evidence, Update
from vllm_triage.reports.clean import located
from vllm_triage.scanner import Scanner
from vllm_triage.stream import Filter, Tell

Say = Callable[[str], None]


class Input(Protocol):
    """Something that is followed."""

    name: str
    is_over: bool

    def poll(self, now: float) -> Iterator[Piece]:
        """Give what has come since the last time."""

    def close(self) -> None:
        """End it."""


class _Log:
    """One input, what is known of its run, and what it has told."""

    def __init__(
        self,
        source: Input,
        like: Scanner,
        tell: Tell,
        say: Say,
        *,
        from_start: bool,
        idle_s: float,
    ) -> None:
        self.input = source
        self._tell = tell
        self._say = say
        self._scanner = Scanner(source.name, like=like)
        self._scanner.forgets_past_runs = True
        self._news: list[Update] = []
        self._stream = Filter(
            tell=self._news.append, scanner=self._scanner, idle_s=idle_s, warn=say
        )
        self._shows_past = from_start
        self._is_past = False
        self._past: dict[str, Update] = {}
        # A new file of the same name counts its lines anew; the scanner counts on.
        self._before = [0]
        self._ends_line = True

    def feed(self, piece: Piece, now: float) -> None:
        if piece.restarts and self._scanner.number:
            if not self._ends_line:
                self._stream.feed(b"\n", now)
                self._tell_news()
            self._before.append(self._scanner.number)
            self._ends_line = True
        self._is_past = piece.is_past and not self._shows_past
        if piece.skipped_lines:
            lines = piece.skipped_lines
            if not self._ends_line:
                # The first line end is that of the line whose beginning was read.
                self._stream.feed(b"\n", now)
                lines -= 1
            self._scanner.number += lines
            self._ends_line = True
        if piece.data:
            self._stream.feed(piece.data, now)
            self._ends_line = piece.data.endswith(b"\n")
        self._tell_news()
        if piece.ends_past and not self._shows_past:
            self._end_past()
        self._is_past = False

    def _end_past(self) -> None:
        """What was said last before anybody watched has been said: it is not new either."""
        self._is_past = True
        self._news += self._scanner.quiet(self._scanner.number)
        self._tell_news()
        self._scanner.end_past()
        found = [one for one in self._past.values() if not one.withdrawn]
        if found:
            root = next((one for one in found if one.id == one.root_cause), found[0])
            place = located(root.evidence[0].source, root.evidence[0].line)
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            self._say(
                f"{self.input.name}: holds {root.kind.value} ({place}){more} from before; "
                "--from-start tells them"
            )
        self._past.clear()

    def tick(self, now: float) -> None:
        self._stream.tick(now)
        self._tell_news()

    def close(self) -> None:
        self._stream.close()
        self._tell_news()

    def _tell_news(self) -> None:
        """Tell what has come up; outside of the filter, which would take a reader's fault for its own."""
        news = self._news[:]
        self._news.clear()
        for update in news:
            if self._is_past:
                self._past[update.id] = update
                continue
            evidence = tuple(map(self._placed, update.evidence))
            self._tell(update.model_copy(update={"evidence": evidence}))

    def _placed(self, one: Evidence) -> Evidence:
        before = self._before[bisect_left(self._before, one.line) - 1]
        return one.model_copy(update={"line": one.line - before}) if before else one


class Watch:
    """Follows inputs and tells what they newly say; waits for nothing and reads no clock.

        watch = Watch(scanner, tell=print, say=warn)
        watch.add(Follower(Path("vllm.log"), warn))
        while not watch.is_over:
            if not watch.step(time.monotonic()):
                time.sleep(0.25)
        watch.close()

    What a log held before is read for what it says of the run, and not told, unless `from_start`.
    When a server got ready again, its earlier incidents are closed: what comes is a new one.
    """

    def __init__(
        self,
        like: Scanner,
        tell: Tell,
        say: Say,
        *,
        from_start: bool = False,
        idle_s: float = 2.0,
    ) -> None:
        self._like = like
        self._tell = tell
        self._say = say
        self._from_start = from_start
        self._idle_s = idle_s
        self._files: Files | None = None
        self._logs: dict[int, _Log] = {}

    def add(self, source: Input) -> None:
        """Follow one more input."""
        self._logs[id(source)] = _Log(
            source,
            self._like,
            self._tell,
            self._say,
            from_start=self._from_start,
            idle_s=self._idle_s,
        )

    def add_files(self, names: Sequence[str]) -> None:
        """Follow files, and those that folders and globs will stand for."""
        self._files = Files(names, self._say, skips_past=not self._from_start)

    @property
    def is_over(self) -> bool:
        """Nothing is left to follow."""
        return self._files is None and not self._logs

    def step(self, now: float) -> bool:
        """Read what there is at a monotonic time in seconds; False when there was nothing."""
        if self._files is not None:
            self._files.scan(now)
            for follower in self._files.followers:
                if id(follower) not in self._logs:
                    self.add(follower)
        is_busy = False
        for key, log in list(self._logs.items()):
            for piece in log.input.poll(now):
                is_busy = True
                log.feed(piece, now)
            if log.input.is_over:
                log.input.close()
                log.close()
                del self._logs[key]
            else:
                log.tick(now)
        return is_busy

    def close(self) -> None:
        """End: tell the rest."""
        for log in self._logs.values():
            log.input.close()
        for log in self._logs.values():
            log.close()
        self._logs.clear()
        self._files = None
