"""``ringfence config``: its commands and their options."""

import json
from pathlib import Path

import click

from app.commands.options import JSON
from app.commands.verb_group import VerbGroup
from ringfence_kafka.process.command_line import config_option, document_of


@click.group(cls=VerbGroup)
def config() -> None:
    """Show and check the configuration. No verb asks a broker."""


@config.command()
@click.option("--changed", is_flag=True, help="Only values that are not defaults.")
@JSON
@config_option
def show(config: Path, changed: bool, as_json: bool) -> int:
    """Print each value in force with its origin: a line of the file, a variable, an option, or the default.

    Secrets are hidden.
    """
    from app.commands.config import show as verb

    return verb.show(document_of(config), changed=changed, as_json=as_json)


@config.command()
@config_option
def check(config: Path) -> int:
    """Validate the configuration, and list its parts.

    Exit code 2: it is not valid; each error names the key, the value and the correction. `ringfence topics check` asks the
    cluster whether the topics fit.
    """
    from app.commands.config import show as verb

    return verb.check(document_of(config))


@config.command()
def schema() -> int:
    """Print the JSON Schema of the file, for editors and other programs."""
    from ringfence_kafka.config import schema as module

    click.echo(json.dumps(module.document(), indent=2))
    return 0
