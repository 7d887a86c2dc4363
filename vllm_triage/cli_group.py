"""The command's subcommands, imported when they are asked for, and the one that needs no name."""

import os
import shlex
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from vllm_triage.kinds import Kind

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

NAME = "vllm-triage"
DEFAULT = "triage "
_ALIKE = 0.7
# Each is imported when it is asked for: most calls are for none of them.
_COMMANDS = {
    "explain": "cli_pages",
    "kinds": "cli_pages",
    "filter": "cli_stream",
    "watch": "cli_watch",
    "report": "cli_report",
    "check-rules": "cli_pages",
    "schema": "cli_pages",
}


class Default(click.Command):
    """The command that runs when no subcommand is named."""

    def get_usage(self, ctx: click.Context) -> str:
        """As if it had no name."""
        return f"Usage: {NAME} [OPTIONS] [LOG]..."


class Group(click.Group):
    """Anything that is no subcommand is a log to triage."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Those that have a name."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a subcommand."""
        if name in _COMMANDS and name not in self.commands:
            module = import_module(f"vllm_triage.{_COMMANDS[name]}")
            self.add_command(getattr(module, f"{name.replace('-', '_')}_command"))
        return super().get_command(ctx, name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put in the name of the one that is not named."""
        if ctx.resilient_parsing and not args:
            return super().parse_args(ctx, args)
        if args and args[0] not in _COMMANDS:
            self._hint(args)
        if not args or (args[0] not in _COMMANDS and args[0] not in ("-h", "--help", "--version")):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    @staticmethod
    def _hint(args: Sequence[str]) -> None:
        """Say what was meant where the first word is nearly a subcommand, or a kind, and no word is a file."""
        name = args[0]
        if not name.replace("-", "").replace(".", "").replace("_", "").isalpha() or name[0] == "-":
            return
        if any(os.path.exists(one) for one in args):  # noqa: PTH110
            return
        if name in tuple(Kind):
            message = f"{name}: no such file; {NAME} explain {name} shows that kind"
            raise click.UsageError(message)
        import difflib

        near = difflib.get_close_matches(name, _COMMANDS, 1, _ALIKE)
        if near:
            rest = " ".join(shlex.quote(one) for one in args[1:])
            message = f"{name}: neither a command nor a file; did you mean {NAME} {near[0]}{' ' if rest else ''}{rest}?"
            raise click.UsageError(message)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Subcommands, options and files."""
        from click import shell_completion

        default = self.commands[DEFAULT]
        found = super().shell_complete(ctx, incomplete)
        found += default.shell_complete(click.Context(default, parent=ctx), incomplete)
        if not incomplete.startswith("-"):
            found.append(shell_completion.CompletionItem(incomplete, type="file"))
        return found

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of the one that is not named, then the subcommands."""
        default = self.commands[DEFAULT]
        formatter.write_usage(NAME, "[OPTIONS] [LOG]...")
        default.format_help_text(ctx, formatter)
        default.format_options(ctx, formatter)
        commands = {name: self.get_command(ctx, name) for name in _COMMANDS}
        rows = [
            (name, command.get_short_help_str(60)) for name, command in commands.items() if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write_text(
            "Exit code: 0 nothing found, 1 incidents found, 2 could not run. "
            f"A log named like a command: {NAME} ./kinds"
        )
