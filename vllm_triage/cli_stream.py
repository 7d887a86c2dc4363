"""The commands that attach to a running log."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import click

from vllm_triage.loop import Loop
from vllm_triage.model import Update
from vllm_triage.pipeline import Scanner
from vllm_triage.reports import ndjson
from vllm_triage.sinks import FileSink, to_stderr
from vllm_triage.stream import Filter, Protocol

_INTERRUPTED = 130
_SIGINT = 2


@click.command(
    "filter",
    short_help="Pass a log on unchanged and tell its incidents beside it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--protocol",
    type=click.Choice([protocol.value for protocol in Protocol]),
    default=Protocol.LINES.value,
    show_default=True,
    help="lines: text. json: a record a line. rsyslog: mmexternal, a reply a message.",
)
@click.option(
    "--incidents",
    metavar="FILE|-|stderr",
    help="Write incidents there as NDJSON; - is standard output, between the lines.  "
    "[default: stderr; with json and rsyslog only what found no record]",
)
@click.option(
    "--key",
    default="vllm_triage",
    show_default=True,
    metavar="NAME",
    help="The field that is added to the record which completes an incident.",
)
@click.option(
    "--message-key",
    "message_keys",
    multiple=True,
    metavar="KEY",
    help="The field with the printed text, a.b for a nested one.  [default: the usual ones]",
)
@click.option(
    "--source",
    "source_keys",
    multiple=True,
    metavar="KEY",
    help="A field that tells pods or hosts apart; repeat it for several.  [default: the usual ones]",
)
@click.option(
    "--idle",
    type=click.FloatRange(min=0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Tell an incident when its process has printed nothing for so long.",
)
@click.option(
    "--rules",
    multiple=True,
    metavar="FOLDER",
    help="Add or replace rules from AREA/KIND.toml files.",
)
@click.option("--no-redact", is_flag=True, help="Keep tokens, keys and passwords in incidents.")
def filter_command(
    protocol: str,
    incidents: str | None,
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
    spoken = Protocol(protocol)
    if incidents == "-" and spoken is Protocol.RSYSLOG:
        message = (
            "--incidents -: rsyslog reads one reply a message from standard output; name a file"
        )
        raise click.UsageError(message)
    if sys.stdin is None or sys.stdin.isatty():
        message = "no log on standard input: journalctl -fu vllm | vllm-triage filter"
        raise click.UsageError(message)
    if sys.__stdout__ is None:
        message = (
            "standard output is closed: nobody would get the log; send it to a file or a pipe"
        )
        raise click.UsageError(message)
    scanner = Scanner("<stdin>", rules=rules, redact=not no_redact, message_keys=message_keys)
    aside: list[Callable[[bytes], None]] = []
    tell = _sink(incidents, aside)
    is_text = spoken is Protocol.LINES
    nowhere: Callable[[Update], None] = lambda _: None  # noqa: E731
    stream = Filter(
        spoken,
        tell=tell or (to_stderr() if is_text else nowhere),
        missed=nowhere if tell or is_text else to_stderr(),
        scanner=scanner,
        key=key,
        source_keys=source_keys,
        idle_s=idle,
        warn=_warn,
    )
    loop = Loop(stream, sys.stdin.fileno(), sys.stdout.fileno(), idle_s=idle)
    aside.append(loop.aside)
    # Where the reader has gone nothing is left to do.
    with contextlib.suppress(BrokenPipeError):
        loop.run()
    return _INTERRUPTED if loop.signal == _SIGINT else 0


def _sink(
    incidents: str | None, aside: list[Callable[[bytes], None]]
) -> Callable[[Update], None] | None:
    if incidents is None:
        return None
    if incidents == "stderr":
        return to_stderr()
    if incidents == "-":
        return lambda update: aside[0]((ndjson.line(update) + "\n").encode())
    return FileSink(Path(incidents), _warn)


def _warn(text: str) -> None:
    # Standard error may be closed or full: the log goes on.
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"vllm-triage: {text}", err=True)
