"""The command that follows logs and prints incidents as they come."""

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from vllm_triage import pipes
from vllm_triage.cli_stream import Seconds, no_empty, nowhere, rendered, service, warn
from vllm_triage.hooks import Hook
from vllm_triage.kinds import Severity
from vllm_triage.loop import wakeup
from vllm_triage.metrics import MetricsFile
from vllm_triage.model import Update
from vllm_triage.reports import LINES
from vllm_triage.reports.brief import Brief
from vllm_triage.reports.records import Context
from vllm_triage.scanner import Scanner
from vllm_triage.watch import Watch

_POLL_S = 0.25
_FOUND = 1
_FAILED = 2
_INTERRUPTED = 130
_SIGINT = 2


@click.command("watch", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("logs", nargs=-1, metavar="[LOG]...", callback=no_empty)
@click.option(
    "--journal",
    "units",
    multiple=True,
    callback=no_empty,
    metavar="UNIT",
    help="Follow a systemd unit's journal.",
)
@click.option(
    "--docker",
    "containers",
    multiple=True,
    callback=no_empty,
    metavar="NAME",
    help="Follow a container's log.",
)
@click.option(
    "--kube",
    "pods",
    multiple=True,
    callback=no_empty,
    metavar="POD",
    help="Follow a pod's containers.",
)
@click.option("--namespace", callback=no_empty, metavar="NAME", help="The namespace of --kube.")
@click.option("--from-start", is_flag=True, help="Tell also what the logs hold already.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", *LINES]),
    default="text",
    show_default=True,
    help="text: a few lines an incident; the others: a line of JSON.",
)
@click.option("--fail-fast", is_flag=True, help="End with exit code 1 at a fatal incident.")
@click.option(
    "--exec",
    "command",
    callback=no_empty,
    metavar="COMMAND",
    help="Run it once an incident, with the incident as JSON on its standard input.",
)
@click.option(
    "--exec-most",
    type=click.IntRange(min=1, max=600),
    default=12,
    show_default=True,
    metavar="N",
    help="Start --exec at most so often in a minute, and never twice at a time.",
)
@click.option(
    "--exec-timeout",
    type=Seconds(0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Kill --exec after so long.",
)
@click.option(
    "--metrics-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.prom",
    help="Keep counts of the incidents there for node_exporter's textfile collector.",
)
@click.option(
    "--idle",
    type=Seconds(0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Tell an incident when its process has printed nothing for so long.",
)
@click.option(
    "--rules",
    callback=no_empty,
    multiple=True,
    metavar="FOLDER",
    help="Add or replace rules from AREA/KIND.toml files.",
)
@click.option("--no-redact", is_flag=True, help="Keep tokens, keys and passwords in incidents.")
def watch_command(
    logs: tuple[str, ...],
    units: tuple[str, ...],
    containers: tuple[str, ...],
    pods: tuple[str, ...],
    namespace: str | None,
    *,
    from_start: bool,
    form: str,
    fail_fast: bool,
    command: str | None,
    exec_most: int,
    exec_timeout: float,
    metrics_file: Path | None,
    idle: float,
    rules: tuple[str, ...],
    no_redact: bool,
) -> int:
    """Follow logs and print each incident as it comes.

    LOG is a file, a folder or a quoted glob; files are followed through rotation and truncation,
    and waited for when they are not there yet. What a log holds already is read for the
    server's arguments and release, but not told.

    Exit code: 0 the log commands ended, 1 --fail-fast found something, 2 could not run or a log
    command failed, 130 interrupted.
    """
    if not (logs or units or containers or pods):
        message = "nothing to watch: vllm-triage watch vllm.log, or --journal, --docker, --kube"
        raise click.UsageError(message)
    if "-" in logs:
        message = "standard input is for the filter: journalctl -fu vllm | vllm-triage filter"
        raise click.UsageError(message)
    scanner = Scanner(rules=rules, redact=not no_redact)
    for text in scanner.catalogue.unmet:
        warn(text)
    hook = Hook(command, warn, most=exec_most, timeout_s=exec_timeout) if command else None
    metrics = MetricsFile(metrics_file, warn) if metrics_file else nowhere
    show = _printer(form)
    has_fatal = False

    def tell(update: Update) -> None:
        nonlocal has_fatal
        has_fatal |= update.severity is Severity.FATAL and not update.withdrawn
        metrics(update)
        if hook is not None:
            hook(update)
        show(update)

    watch = Watch(scanner, tell, warn, from_start=from_start, idle_s=idle)
    if logs:
        watch.add_files(logs)
    commands = _commands(units, containers, pods, namespace)
    for pipe in commands:
        watch.add(pipe)
    received: int | None = None
    # Where the reader has gone nothing is left to do.
    with contextlib.suppress(BrokenPipeError):
        received = _run(watch, commands, hook, lambda: fail_fast and has_fatal)
    if fail_fast and has_fatal:
        return _FOUND
    if received is not None:
        return _INTERRUPTED if received == _SIGINT else 0
    return _FAILED if any(pipe.status for pipe in commands) else 0


def _run(
    watch: Watch, commands: list[pipes.Pipe], hook: Hook | None, is_done: Callable[[], bool]
) -> int | None:
    """Follow until nothing is left, it is done, or a signal came; give the signal."""
    received: int | None = None
    with wakeup() as waker:
        try:
            while not watch.is_over and not is_done():
                is_busy = watch.step(time.monotonic())
                if hook is not None:
                    hook.tick()
                files = [pipe.file for pipe in commands if not pipe.is_over]
                wait_s = 0.0 if is_busy else _POLL_S
                if waker in select.select([waker, *files], [], [], wait_s)[0]:
                    received = os.read(waker, 1)[0]
                    break
        finally:
            try:
                watch.close()
            finally:
                if hook is not None:
                    hook.close(is_hurried=received is not None)
    return received


def _printer(form: str) -> Callable[[Update], None]:
    if form == "text":
        is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        brief = Brief(colour=is_coloured)
        # A blank line sets a new incident apart.
        return lambda update: click.echo(brief(update) + "\n", color=True)
    render = rendered(form, Context(service=service()))
    return lambda update: click.echo(render(update))


def _commands(
    units: tuple[str, ...],
    containers: tuple[str, ...],
    pods: tuple[str, ...],
    namespace: str | None,
) -> list[pipes.Pipe]:
    start_ns = time.time_ns()
    found: list[pipes.Pipe] = []
    try:
        found += [pipes.journal(unit, warn, start_ns) for unit in units]
        found += [pipes.docker(name, warn, start_ns) for name in containers]
        found += [pipes.kube(pod, warn, start_ns, namespace=namespace) for pod in pods]
    except BaseException:
        for pipe in found:
            pipe.close()
        raise
    return found
