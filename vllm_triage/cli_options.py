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

thresholds_option = click.option(
    "--threshold",
    "thresholds",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set from where on a value is a fault; vllm-triage kinds lists them.",
)
