"""The commands that attach to a running log."""

import contextlib
import math
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from vllm_triage.loop import Loop
from vllm_triage.metrics import MetricsFile
from vllm_triage.model import Update
from vllm_triage.redact import redact
from vllm_triage.reports import LINES
from vllm_triage.reports.clean import clean
from vllm_triage.reports.records import Context
from vllm_triage.scanner import Scanner
from vllm_triage.sinks import FileSink, to_stderr
from vllm_triage.stream import Filter, Protocol

_INTERRUPTED = 130
_SIGINT = 2


class Seconds(click.FloatRange):
    """A time to wait, a day at most."""

    def __init__(self, at_least: float) -> None:
        super().__init__(min=at_least, max=86_400)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse what is no number, which no comparison refuses."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a valid float.", param, ctx)
        return seconds


def no_empty(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...]
) -> str | tuple[str, ...]:
    """Refuse an empty name: a variable of the caller's that is not set."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        message = "is empty"
        raise click.BadParameter(message, ctx, param)
    return value


@click.command(
    "filter",
    short_help="Pass a log on unchanged and tell its incidents beside it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("logs", nargs=-1, metavar="")
@click.option(
    "--protocol",
    type=click.Choice([protocol.value for protocol in Protocol]),
    default=Protocol.LINES.value,
    show_default=True,
    help="lines: text. json: a record a line. rsyslog: mmexternal, a reply a message.",
)
@click.option(
    "--incidents",
    callback=no_empty,
    metavar="FILE|-|stderr",
    help="Write incidents there, one a line; - is standard output, between the lines.  "
    "[default: stderr; with json and rsyslog only what found no record]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(LINES)),
    default="ndjson",
    show_default=True,
    help="How incidents are written; otel is OTLP's JSON, ecs Elastic's Common Schema.",
)
@click.option(
    "--metrics-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.prom",
    help="Keep counts of the incidents there for node_exporter's textfile collector.",
)
@click.option(
    "--key",
    callback=no_empty,
    default="vllm_triage",
    show_default=True,
    metavar="NAME",
    help="The field that is added to the record which completes an incident.",
)
@click.option(
    "--message-key",
    "message_keys",
    callback=no_empty,
    multiple=True,
    metavar="KEY",
    help="The field with the printed text, a.b for a nested one.  [default: the usual ones]",
)
@click.option(
    "--source",
    "source_keys",
    callback=no_empty,
    multiple=True,
    metavar="KEY",
    help="A field that tells pods or hosts apart; repeat it for several.  [default: the usual ones]",
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
def filter_command(
    logs: tuple[str, ...],
    protocol: str,
    incidents: str | None,
    form: str,
    metrics_file: Path | None,
    key: str,
    message_keys: tuple[str, ...],
    source_keys: tuple[str, ...],
    idle: float,
    rules: tuple[str, ...],
    *,
    no_redact: bool,
) -> int:
    """Pass a log on unchanged, from standard input to standard output, and tell its incidents.

    Every line comes out at once, byte for byte and in order. An incident is told when the
    exception that states it has ended, and again, with the same id and the next revision,
    when the log shows more of it.
    """
    if logs:
        message = f"{logs[0]}: filter reads standard input; to follow a file: vllm-triage watch {shlex.quote(logs[0])}"
        raise click.UsageError(message)
    spoken = Protocol(protocol)
    if incidents in ("-", "stderr") and spoken is Protocol.RSYSLOG:
        message = f"--incidents {incidents}: rsyslog reads it as its replies; name a file"
        raise click.UsageError(message)
    if sys.stdin is None or sys.stdin.isatty():
        message = "no log on standard input: journalctl -fu vllm | vllm-triage filter"
        raise click.UsageError(message)
    if sys.__stdout__ is None:
        message = (
            "standard output is closed: nobody would get the log; send it to a file or a pipe"
        )
        raise click.UsageError(message)
    scanner = Scanner(
        "<stdin>", rules=rules, redact=not no_redact, message_keys=message_keys, max_runs=64
    )
    scanner.forgets_past_runs = True
    for text in scanner.catalogue.unmet:
        warn(text)
    aside: list[Callable[[bytes], None]] = []
    render = rendered(form, Context(service=service(), has_files=False))
    tell = _sink(incidents, render, aside)
    is_text = spoken is Protocol.LINES
    metrics = MetricsFile(metrics_file, warn) if metrics_file else nowhere
    stream = Filter(
        spoken,
        tell=all_of(metrics, tell or (to_stderr(render) if is_text else nowhere)),
        missed=nowhere if tell or is_text else to_stderr(render),
        scanner=scanner,
        key=key,
        source_keys=source_keys,
        idle_s=idle,
        warn=warn,
    )
    if spoken is Protocol.RSYSLOG and sys.stderr is not None:
        # mmexternal reads standard error as replies: one warning would shift all that follow.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    loop = Loop(stream, sys.stdin.fileno(), sys.stdout.fileno(), idle_s=idle)
    aside.append(loop.aside)
    # Where the reader has gone nothing is left to do.
    with contextlib.suppress(BrokenPipeError):
        loop.run()
    return _INTERRUPTED if loop.signal == _SIGINT else 0


def rendered(form: str, context: Context) -> Callable[[Update], str]:
    """How one incident is written."""
    return lambda update: LINES[form](update, context)


def service() -> str:
    """The service's name, as OpenTelemetry's SDKs find it."""
    return os.environ.get("OTEL_SERVICE_NAME") or "vllm-triage"


def warn(text: str) -> None:
    """Say a sentence on standard error; when that is closed or full, nowhere: the log goes on."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"vllm-triage: {clean(redact(text))}", err=True)


def nowhere(_: Update) -> None:
    """Nobody listens."""


def all_of(*sinks: Callable[[Update], None]) -> Callable[[Update], None]:
    """A sink that hands each incident to several."""

    def tell(update: Update) -> None:
        for sink in sinks:
            sink(update)

    return tell


def _sink(
    incidents: str | None,
    render: Callable[[Update], str],
    aside: list[Callable[[bytes], None]],
) -> Callable[[Update], None] | None:
    if incidents is None:
        return None
    if incidents == "stderr":
        return to_stderr(render)
    if incidents == "-":
        return lambda update: aside[0]((render(update) + "\n").encode())
    return FileSink(Path(incidents), warn, render)
