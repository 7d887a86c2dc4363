"""The command that makes a bug report."""

import os
import sys
from pathlib import Path

import click

from vllm_triage.archive import files, zipped
from vllm_triage.bundle import Bundle, gather
from vllm_triage.cli_options import HELP, rules_option
from vllm_triage.errors import TriageError
from vllm_triage.issue import body
from vllm_triage.outputs import check_target, write
from vllm_triage.paths import shown
from vllm_triage.reports.clean import clean
from vllm_triage.system import gather as look_at_system
from vllm_triage.templates import counted

_FAILED = 2


@click.command(
    "report",
    context_settings=HELP,
    short_help="Make a bug report: a zip, or the body of an issue.",
)
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Where to write it, - for standard output. A file of that name is replaced.",
)
@click.option(
    "--attach", "attached", multiple=True, metavar="FILE", help="Take this text file along too."
)
@click.option(
    "--context",
    type=click.IntRange(0, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="Lines around each line of evidence; a log up to 256 KiB is taken whole.",
)
@click.option(
    "--no-system", is_flag=True, help="Leave out this machine: the logs are of another one."
)
@click.option(
    "--for-github", is_flag=True, help="Print the body of an issue for vLLM in place of a zip."
)
@rules_option
def report_command(
    logs: tuple[str, ...],
    output: Path | None,
    *,
    attached: tuple[str, ...],
    context: int,
    no_system: bool,
    for_github: bool,
    rules: tuple[str, ...],
) -> int:
    """Make a bug report: a zip of the triage, redacted log lines, versions, GPUs and environment.

    LOG is a file, a folder, a glob or - for standard input. Nothing is sent anywhere, no package
    is imported, and of this machine's programs only nvidia-smi is run.

    Exit code: 0 the report is written, whether something was found or not, 2 could not run or
    an input could not be read.
    """
    _check(logs, attached, output, for_github=for_github)
    system = None if no_system else look_at_system(os.environ)
    found = gather(logs, attached=attached, rules=rules, context=context, system=system)
    target = None if output is None or str(output) == "-" else output
    if for_github:
        _write(target, body(found).encode("utf-8", "replace"))
    else:
        texts = files(found)
        data = zipped(texts)
        _write(target, data)
        if target is not None:
            click.echo(_summary(found, target, len(texts), len(data)), nl=False)
    for problem in found.problems:
        click.echo(f"vllm-triage: {clean(problem)}", err=True)
    return _FAILED if found.problems else 0


def _check(
    logs: tuple[str, ...], attached: tuple[str, ...], output: Path | None, *, for_github: bool
) -> None:
    """Say what cannot work before anything is read."""
    if not logs:
        message = "no log given: vllm-triage report -o bundle.zip pod.log, or - for standard input"
        raise click.UsageError(message)
    if output is None:
        if not for_github:
            message = "where to? vllm-triage report -o bundle.zip pod.log, or --for-github"
            raise click.UsageError(message)
        return
    if str(output) == "-":
        if not for_github and sys.stdout.isatty():
            message = "a zip is nothing for a terminal; name a file: -o bundle.zip"
            raise click.UsageError(message)
        return
    target = check_target(output)
    for name in (*logs, *attached):
        if _is_same(target, name):
            message = f"{output}: is one of the inputs; choose another file for the report"
            raise TriageError(message)


def _is_same(target: Path, name: str) -> bool:
    try:
        return target.samefile(name)
    except (OSError, ValueError):
        return False


def _write(output: Path | None, data: bytes) -> None:
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write(output, data, is_private=True)


def _summary(found: Bundle, output: Path, count: int, size: int) -> str:
    root = found.report.root
    what = f"{root.title} ({root.kind.value})" if root else "no incident was found in these logs"
    return (
        f"{clean(shown(output))}: {counted(count, 'file')}, {max(1, size // 1000)} kB\n  {clean(what)}\n"
        "  Look through it before you share it: README.txt says what is in it.\n"
    )
