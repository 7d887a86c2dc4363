"""The commands that show what the tool knows: kinds, topics, rules and the schema."""

import json
from pathlib import Path

import click

from vllm_triage import flags, versions
from vllm_triage.catalogue import load
from vllm_triage.cli_group import NAME
from vllm_triage.cli_options import HELP, rules_option, thresholds_option
from vllm_triage.contract import Report
from vllm_triage.expressions import expression
from vllm_triage.reports.explain import explain
from vllm_triage.reports.kinds import kinds, kinds_page
from vllm_triage.rule_check import check
from vllm_triage.thresholds import parsed

_FAILED = 2
_RELEASE = expression(
    r"v?\d{1,4}\.\d{1,4}(?:\.\d{1,4})?(?:\.?(?:post|rc|dev|a|b)\d{1,6}){0,4}(?:[+-][\w.+-]{1,60})?"
)


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    catalogue = load()
    names = [*(kind.value for kind in catalogue.rules), *catalogue.topics]
    return [name for name in names if name.startswith(incomplete)]


@click.command("explain", context_settings=HELP)
@click.argument("name", metavar="KIND|TOPIC", shell_complete=_names)
@click.option(
    "--vllm",
    metavar="VERSION",
    multiple=True,
    help="Show the steps for this vLLM release; given twice, side by side.",
)
@rules_option
@thresholds_option
def explain_command(
    name: str, vllm: tuple[str, ...], rules: tuple[str, ...], thresholds: tuple[str, ...]
) -> int:
    """Show what a kind means and its steps, or a reference topic."""
    for release in vllm:
        if _RELEASE.fullmatch(release) is None:
            message = f"--vllm {release}: not a release; write it as 0.10.2"
            raise click.UsageError(message)
    catalogue = load(rules, thresholds=parsed(thresholds))
    for release in vllm:
        note = _unknown(release)
        if note is not None:
            click.echo(f"{NAME}: {note}", err=True)
    click.echo(explain(name, catalogue, tuple(dict.fromkeys(vllm))), nl=False)
    return 0


def _unknown(release: str) -> str | None:
    """Half a line on a release beyond those whose flags were read."""
    known = flags.releases()
    if not versions.holds(release, None, known[-1]):
        return f"vLLM {release} is newer than {known[-1]}, the newest release known here; the steps are those for {known[-1]}"
    if not versions.holds(release, known[0], None):
        return f"vLLM {release} is older than {known[0]}, the oldest release known here"
    return None


@click.command("kinds", context_settings=HELP)
@click.option(
    "--format",
    "-f",
    "form",
    type=click.Choice(["text", "markdown"]),
    default="text",
    show_default=True,
)
@rules_option
def kinds_command(form: str, rules: tuple[str, ...]) -> int:
    """List all kinds and topics; in Markdown, with their steps."""
    click.echo((kinds_page if form == "markdown" else kinds)(load(rules)), nl=False)
    return 0


@click.command("check-rules", context_settings=HELP)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
def check_rules_command(folder: Path | None) -> int:
    """Check rule files: hits, misses, templates, linear time."""
    problems = check(folder)
    for problem in problems:
        click.echo(problem)
    if not problems:
        click.echo("All rules keep their promises.", err=True)
    return _FAILED if problems else 0


@click.command("schema", context_settings=HELP)
def schema_command() -> int:
    """Print the JSON Schema of --format json."""
    click.echo(json.dumps(Report.model_json_schema(), indent=2))
    return 0
