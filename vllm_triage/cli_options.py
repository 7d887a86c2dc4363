"""The options that several commands have."""

import click

HELP = {"help_option_names": ["-h", "--help"]}

rules_option = click.option(
    "--rules",
    "rules",
    metavar="FOLDER",
    multiple=True,
    help="Add or replace rules from AREA/KIND.toml files.",
)
