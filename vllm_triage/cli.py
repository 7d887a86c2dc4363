"""The command: options in, exit code out; the only module that speaks to the terminal."""

import contextlib
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

import click

from vllm_triage.cli_group import DEFAULT, NAME, Default, Group
from vllm_triage.cli_options import HELP, rules_option, thresholds_option
from vllm_triage.errors import TriageError
from vllm_triage.kinds import Severity
from vllm_triage.model import Report
from vllm_triage.numbers import whole
from vllm_triage.paths import shown
from vllm_triage.pipeline import triage_paths
from vllm_triage.redact import redact
from vllm_triage.reports import FORMATS, text
from vllm_triage.reports.clean import clean
from vllm_triage.thresholds import parsed
from vllm_triage.versions import __version__

FOUND = 1
FAILED = 2
INTERRUPTED = 130
_MAX_JOBS = 4


@click.group(cls=Group, context_settings=HELP, invoke_without_command=False)
@click.version_option(__version__, prog_name=NAME)
def main_group() -> None:
    """Say what broke in a vLLM log, show the proof, give the fix steps."""


@main_group.command(DEFAULT, cls=Default, hidden=True, context_settings=HELP)
@click.argument("logs", nargs=-1, metavar="[LOG]...")
@click.option(
    "--format", "-f", "form", type=click.Choice(list(FORMATS)), default="text", show_default=True
)
@click.option(
    "--fail-on",
    type=click.Choice([*(severity.value for severity in Severity), "never"]),
    default="degraded",
    show_default=True,
    help="The least severity that makes the exit code 1.",
)
@click.option(
    "--all", "every", is_flag=True, help="Show every incident in full, not just the root cause."
)
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file."
)
@click.option(
    "--apply-steps",
    metavar="N,N",
    help="Write the server's command with the changes of these steps, not of the first.",
)
@rules_option
@thresholds_option
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Processes that read a plain file over 64 MiB.  [default: one a CPU, at most 4]",
)
@click.option("--no-redact", is_flag=True, help="Keep tokens, keys and passwords in the output.")
@click.option("--no-pager", is_flag=True, help="Print a long report at once, not page by page.")
@click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True
)
def triage_command(
    logs: tuple[str, ...],
    form: str,
    fail_on: str,
    *,
    every: bool,
    output: Path | None,
    apply_steps: str | None,
    rules: tuple[str, ...],
    thresholds: tuple[str, ...],
    jobs: int | None,
    no_redact: bool,
    no_pager: bool,
    color: str,
) -> int:
    """Say what broke in vLLM logs, show the lines that prove it, give the fix steps.

    LOG is a file, a folder, a glob or - for standard input; compressed files are read as they are.
    Several logs are one deployment.
    """
    if not logs:
        if sys.stdin is None or sys.stdin.isatty():
            message = f"no log given: {NAME} pod.log, or kubectl logs POD | {NAME}"
            raise click.UsageError(message)
        logs = ("-",)
    if output is not None and output.exists() and any(_is_same(output, log) for log in logs):
        message = f"{output}: is one of the logs; choose another file for the report"
        raise TriageError(message)
    numbers = _numbers(apply_steps)
    with _interrupts() as interrupts:
        report = triage_paths(
            logs,
            rules=rules,
            redact=not no_redact,
            apply_steps=numbers,
            progress=_progress(),
            interrupted=lambda: interrupts.append(signal.SIGINT),
            jobs=min(_cpus(), _MAX_JOBS) if jobs is None else jobs,
            thresholds=parsed(thresholds),
            warn=lambda text: _complain(f"{NAME}: {text}"),
        )
    _check_steps(report, numbers)
    content = _rendered(report, form, every=every, color=color, to_file=output is not None)
    if form == "text" and output is None and not no_pager and _is_longer_than_screen(content):
        _page(content)
    else:
        _write(content, output)
    problems = [source.problem for source in report.sources if source.problem]
    for problem in problems:
        _complain(f"{NAME}: {problem}")
    if interrupts:
        return INTERRUPTED
    if problems:
        return FAILED
    return _exit_code(report, fail_on)


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The Ctrl-C of this stretch: Python drops the exception where a callback of C code runs."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or current_thread() is not main_thread():
        # Somebody else's, as in a program that calls the command, or ignored, as under nohup.
        yield received
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, before)


def _cpus() -> int:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _numbers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        message = f"--apply-steps {text}: write step numbers with commas, as 1,3"
        raise click.UsageError(message)
    return tuple(whole(part.strip()) for part in parts)


def _check_steps(report: Report, numbers: tuple[int, ...]) -> None:
    if report.root is None:
        return
    changing = [step.number for step in report.root.fix_steps if step.change]
    wrong = [number for number in numbers if number not in changing]
    if wrong:
        having = f"these do: {', '.join(map(str, changing))}" if changing else "none does"
        message = (
            f"step {wrong[0]} of {report.root.kind} changes no argument of the server; {having}"
        )
        raise TriageError(message)
    values: dict[str, tuple[int, str]] = {}
    for step in report.root.fix_steps:
        for flag, value in step.change.items() if step.number in numbers else ():
            number, other = values.setdefault(flag, (step.number, value))
            if other != value:
                message = f"steps {number} and {step.number} of {report.root.kind} both change {flag}; choose one of them"
                raise TriageError(message)


def _is_same(output: Path, log: str) -> bool:
    try:
        return output.samefile(log)
    except (OSError, ValueError):
        return False


def _rendered(report: Report, form: str, *, every: bool, color: str, to_file: bool) -> str:
    if form != "text":
        return FORMATS[form](report)
    is_terminal = sys.stdout.isatty() and not to_file
    colour = color == "always" or (
        color == "auto" and is_terminal and not os.environ.get("NO_COLOR")
    )
    width = _terminal().columns if is_terminal else 80
    return text.render(report, width=width, colour=colour, every=every)


def _terminal() -> os.terminal_size:
    from shutil import get_terminal_size

    return get_terminal_size()


def _write(content: str, output: Path | None) -> None:
    if output is None:
        click.echo(content, nl=False, color=True)
        return
    from vllm_triage.outputs import write

    write(output, content.encode("utf-8", "replace"))


def _is_longer_than_screen(content: str) -> bool:
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return False
    return content.count("\n") >= _terminal().lines


def _page(content: str) -> None:
    """Start at the top, as git and systemctl do: there the answer stands."""
    os.environ.setdefault("LESS", "FRX")
    click.echo_via_pager(content, color=True)


def _exit_code(report: Report, fail_on: str) -> int:
    if fail_on == "never" or report.worst is None:
        return 0
    order = [severity.value for severity in Severity]
    return FOUND if order.index(report.worst.value) <= order.index(fail_on) else 0


def _progress() -> Callable[[int], None] | None:
    """A line on a terminal's stderr for work over a second."""
    if not sys.stderr.isatty():
        return None
    start = last = time.monotonic()

    def show(count: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - start > 1 and now - last > 0.2:
            last = now
            click.echo(
                f"\r{count / 1e6:,.0f} MB read, {now - start:.0f} s\x1b[K\r", nl=False, err=True
            )

    return show


def main(args: list[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # The caller closed it: what is said there goes nowhere, the exit code still tells.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            # Logs hold any character, and a report has the same bytes whatever the locale.
            stream.reconfigure(encoding="utf-8", errors=stream.errors)
    try:
        code = main_group.main(args=args, prog_name=NAME, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        context: click.Context | None = getattr(error, "ctx", None)
        is_own = context is None or context.info_name == DEFAULT
        name = NAME if is_own or context is None else context.command_path
        _complain(f"{NAME}: {error.format_message()}  ({name} --help shows the options)")
        code = FAILED
    except TriageError as error:
        _complain(f"{NAME}: {error}")
        code = FAILED
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader has gone: nothing is left to say, and nothing may be flushed to it.
        _silence()
        code = 0
    except OSError as error:
        if error.filename is None:
            _silence()
            what = "standard output: cannot be written"
        else:
            what = f"{shown(str(error.filename))}: cannot be used"
        _complain(f"{NAME}: {what}: {error.strerror or error}")
        code = FAILED
    # What the process leaves behind is not worth looking through.
    gc.freeze()
    sys.exit(code or 0)


def _complain(text: str) -> None:
    """Say it in one line: a file's name may hold line ends and what a terminal obeys."""
    with contextlib.suppress(OSError):
        click.echo(clean(redact(text)), err=True)


def _silence() -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
