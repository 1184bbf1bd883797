"""The ``ringfence`` program: assembles the commands of :mod:`app.commands`.

A command reads the configuration, calls one function, and returns its exit code. It imports the function only
when it runs, so that ``--help`` and usage errors do not wait for the imports of Faust and Kafka clients.
"""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

import click

import native
from app.commands.audit import audit
from app.commands.bridges.cli import bridge
from app.commands.broker import broker
from app.commands.config.cli import config
from app.commands.consume import consume
from app.commands.consumers.cli import consumers
from app.commands.demo import demo
from app.commands.groups.cli import groups
from app.commands.init.cli import init
from app.commands.plan import plan
from app.commands.reconcile import reconcile
from app.commands.repair.cli import dlq, quarantine
from app.commands.rings.cli import rings
from app.commands.send.cli import send
from app.commands.status.cli import status
from app.commands.topics.cli import topics
from app.commands.verb_group import VerbGroup
from app.commands.verdict import verdict
from app.commands.worker import worker
from ringfence_kafka.process.command_line import run


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit (:func:`ringfence_kafka.process.command_line.run`)."""
    run(cli, arguments, "ringfence")


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    try:
        click.echo(f"ringfence {version('ringfence')} (path: {native.spoken})")
    except PackageNotFoundError:
        click.echo("ringfence, run from its source tree and not installed: 'make setup' installs it")
    context.exit()


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Duplicate detection, message groups and safe handover for a stock Apache Kafka cluster.

    Exit codes: 0 ok, 1 what was checked is not ok, 2 could not run (usage, configuration, broker away),
    3 unknown because evidence is gone.
    """


for command in (audit, bridge, broker, config, consume, consumers, demo, dlq, groups, init, plan):
    cli.add_command(command)
for command in (quarantine, reconcile, rings, send, status, topics, verdict, worker):
    cli.add_command(command)
