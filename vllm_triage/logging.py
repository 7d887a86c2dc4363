"""A handler for Python's logging, so that a vLLM process triages itself."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vllm_triage.contract import Update, validated
from vllm_triage.errors import SourceError
from vllm_triage.library import Scanner
from vllm_triage.redact import redact
from vllm_triage.reports.clean import clean, located
from vllm_triage.sinks import FileSink

LOGGER = "vllm_triage"
# A record beyond these is cut or, when it is no warning, skipped: a log that floods must not cost
# the application its time.
MAX_TEXT = 65_536
MAX_PER_SECOND = 2000
_NAME = "<logging>"
_MARK = "\0"

Tell = Callable[[Update], None]


class LineFormatter(logging.Formatter):
    """Formats records as vLLM prints them, the prefix before each line of a message or traceback."""

    def __init__(self, fmt: str | None = None, datefmt: str | None = None) -> None:
        super().__init__(
            fmt
            or "(%(processName)s pid=%(process)d) %(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s",
            datefmt or "%m-%d %H:%M:%S",
        )

    def format(self, record: logging.LogRecord) -> str:
        """A line a row, each with the prefix."""
        text = super().format(record)
        if "\n" not in text:
            return text
        # The message may be a word of the prefix.
        message, record.message = record.message, _MARK
        prefix, found, _ = self.formatMessage(record).partition(_MARK)
        record.message = message
        return text.replace("\r\n", "\n").replace("\n", f"\n{prefix if found else ''}")


class TriageHandler(logging.Handler):
    """Tells what broke in what a process logs, while it logs it.

        logging.getLogger("vllm").addHandler(TriageHandler(file="incidents.ndjson"))

    Incidents go to `tell`, else as NDJSON to `file`, else to the logger `vllm_triage` at WARNING.
    Records are read in the thread that logs them, one at a time: a process that dies or forks
    loses nothing that a queue still held. A record costs some tens of microseconds; of more than
    2000 in a second those below WARNING are skipped. Nothing that goes wrong here reaches the
    application: the handler says so once on the logger and begins anew; when the file cannot be
    opened the incidents go to the logger. What the logger `vllm_triage` says is never read.
    The source is `<logging PID>`, so that the processes that write one file can be told apart.

    Raises RuleError when a rule folder is wrong.
    """

    def __init__(
        self,
        level: int | str = logging.NOTSET,
        *,
        tell: Tell | None = None,
        file: str | Path | None = None,
        rules: Sequence[Path | str] = (),
        redact: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(level)
        self._like = Scanner(rules=rules, redact=redact)
        self._sink: FileSink | None = None
        if tell is None and file is not None:
            try:
                tell = self._sink = FileSink(Path(file), self._warn)
            except SourceError as error:
                # A server must not fail to start over its triage.
                self._warn(f"{str(error).partition(';')[0]}; incidents are logged here")
        self._tell = tell or _log
        self._clock = clock
        self._busy = threading.local()
        self._has_failed = False
        self._second = 0
        self._in_second = 0
        self.skipped = 0
        """Records that were not read, because there were too many."""
        self.formatter = LineFormatter()
        self._scanner = self._anew()

    def _anew(self) -> Scanner:
        return Scanner(_NAME, like=self._like)

    def handle(self, record: logging.LogRecord) -> bool:
        """Take a record, unless it is our own or comes out of telling one."""
        if record.name.partition(".")[0] == LOGGER or getattr(self._busy, "is_set", False):
            return False
        return bool(super().handle(record))

    def emit(self, record: logging.LogRecord) -> None:
        """Read one record; tell what it completes."""
        is_grave = record.levelno >= logging.WARNING
        if not self._has_room() and not is_grave:
            self.skipped += 1
            return
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001
            # A fault of the call that logs it, which its other handlers tell.
            return
        self._ask(lambda scanner: self._read(scanner, text, is_grave=is_grave))

    @staticmethod
    def _read(scanner: Scanner, text: str, *, is_grave: bool) -> Iterable[Update]:
        if len(text) > MAX_TEXT:
            # The exception stands at the end.
            text = f"{text[: MAX_TEXT // 2]}\n{text[-MAX_TEXT // 2 :]}"
        yield from scanner.feed(text)
        if is_grave:
            # A record is whole: what it says has ended.
            yield from scanner.quiet(scanner.number)

    def _has_room(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second <= MAX_PER_SECOND

    def _ask(self, question: Callable[[Scanner], Iterable[Update]]) -> None:
        self._busy.is_set = True
        try:
            try:
                news = list(question(self._scanner))
            except Exception as error:  # noqa: BLE001
                # The application goes on, whatever becomes of its triage.
                news = []
                number = self._scanner.number
                self._scanner = self._anew()
                # No incident gets the id of an older one.
                self._scanner.number = number
                self._fail("a record could not be analysed", error)
            for update in news:
                try:
                    self._tell(_named(update))
                except Exception as error:  # noqa: BLE001
                    self._fail("an incident could not be told", error)
        finally:
            self._busy.is_set = False

    def _fail(self, what: str, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._warn(f"{what} ({type(error).__name__}: {error}); logging goes on")

    @staticmethod
    def _warn(text: str) -> None:
        logging.getLogger(LOGGER).warning("%s", clean(redact(text)))

    def flush(self) -> None:
        """Tell what is complete but waits for more."""
        with self.lock or threading.RLock():
            self._ask(lambda scanner: scanner.quiet(scanner.number))

    def close(self) -> None:
        """Tell the rest and end."""
        with self.lock or threading.RLock():
            self._ask(Scanner.close)
            if self._sink is not None:
                self._sink.close()
        super().close()


def _named(update: Update) -> Update:
    """The incident under the name of the process, which may have forked since the handler was made."""
    name = f"<logging {os.getpid()}>"

    def of(one: str | None) -> str | None:
        return one.replace(_NAME, name, 1) if one is not None else None

    evidence = tuple(one.model_copy(update={"source": of(one.source)}) for one in update.evidence)
    ids = {key: of(getattr(update, key)) for key in ("id", "caused_by", "root_cause")}
    return update.model_copy(update={**ids, "evidence": evidence})


def _log(update: Update) -> None:
    first = update.evidence[0]
    word = "no incident after all: " if update.withdrawn else ""
    cause = f", caused by {update.caused_by}" if update.caused_by else ""
    step = next((one.command or one.do for one in update.fix_steps), None)
    do = f" First step: {clean(step)}" if step and not update.caused_by else ""
    logging.getLogger(LOGGER).warning(
        "%s",
        f"{word}{update.severity.value}: {clean(update.title)} ({update.kind.value}{clean(cause)}), "
        f"{located(first.source, first.line)}: {clean(first.text)[:300]}{do}",
        extra={"vllm_triage": validated(update).model_dump(mode="json")},
    )
