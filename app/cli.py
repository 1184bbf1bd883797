"""The command line. Thin: each verb reads the configuration, calls one function, and returns its exit code.

Verbs import what they run when they run, so that ``--help`` and a usage error do not wait for Faust and Kafka
clients to load.
"""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

import click

import native
from app.commands.audit import audit
from app.commands.bridges.cli import bridge
from app.commands.consumers.cli import consumers, groups
from app.commands.plan.plan import plan
from app.commands.reconcile import reconcile
from app.commands.repair.cli import dlq, quarantine
from app.commands.spark_check import require_spark
from app.commands.status.cli import status
from ringfence_kafka.config.addresses import MAX_PARTITIONS
from ringfence_kafka.process.command_line import (
    PORT,
    config_option,
    refuse_connection,
    run,
    settings_if_any,
    settings_with_addresses,
    silence_clients,
)
from ringfence_kafka.process.log_options import log_options


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a verb and exit (:func:`ringfence_kafka.process.command_line.run`)."""
    run(cli, arguments, "ringfence")


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    try:
        click.echo(f"ringfence {version('ringfence')} (path: {native.spoken})")
    except PackageNotFoundError:
        click.echo("ringfence, run from its source tree and not installed: 'make setup' installs it")
    context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
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


@cli.command()
@click.option(
    "--port", type=PORT, default=9092, show_default=True, help="Where clients connect; 0 = any free port."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data/broker"),
    show_default=True,
    help="Keeps data and log; the next start goes on with it.",
)
@click.option(
    "--property",
    "broker_properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="A property of the broker, such as log.retention.ms=60000; repeat it for more. It holds for this start.",
)
@click.option(
    "--kafka-version",
    metavar="VERSION",
    help="Kafka's version, 3.9.1 for example; an unknown one is refused with those that are known. Not given = "
    "RINGFENCE_KAFKA_VERSION, else 4.1.0.",
)
@config_option
def broker(
    port: int, directory: Path, broker_properties: tuple[str, ...], kafka_version: str | None, config: Path
) -> int:
    """Run an embedded Kafka of one node in the foreground, for a first look and for tests.

    Ctrl-C or SIGTERM stops it cleanly. It needs Java 17 or newer; the first start of each version fetches Kafka, 45 MB.
    """
    refuse_connection("broker")
    settings_if_any(config)  # needs none of them, but a faulty file that was named is an error everywhere
    from app.embedded.command import run_broker

    return run_broker(port, directory, broker_properties, kafka_version)


@cli.group()
def topics() -> None:
    """Create or verify the topics that the configuration needs."""
    silence_clients()


_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")


@topics.command("create")
@click.option("--dry-run", is_flag=True, help="Create nothing; say what would be created, and how.")
@_json_option
@config_option
def topics_create(dry_run: bool, as_json: bool, config: Path) -> int:
    """Create what is missing; existing topics are left as they are.

    Outputs of an input that exists are like it: as many partitions, kept as long, and large enough for its messages.
    """
    settings = settings_with_addresses(config)
    from app.commands.topics import topics as topics_module

    return topics_module.create(settings, dry_run=dry_run, as_json=as_json)


@topics.command("check")
@_json_option
@config_option
def topics_check(as_json: bool, config: Path) -> int:
    """Verify all topics: a line a fault, with the way out. Exit code 1 if there is one; notes stop nothing."""
    settings = settings_with_addresses(config)
    from app.commands.topics import topics as topics_module

    return topics_module.check(settings, as_json=as_json)


@topics.command("grow")
@click.argument("address")
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS),
    required=True,
    help="How many it is to have: a multiple of what it had.",
)
@click.option(
    "--despite-backlog",
    is_flag=True,
    help="Also with messages that are not judged: a group's later ones may come before them.",
)
@click.option(
    "--dry-run", is_flag=True, help="Change nothing; say what would be done, and what is in the way now."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@_json_option
@config_option
def topics_grow(
    address: str,
    partitions: int,
    despite_backlog: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    config: Path,
) -> int:
    """Give the input of ADDRESS more partitions, and its new lanes what the others know.

    Stop producers and bridges, let workers come to a lag of 0, and stop them. It goes on where it ended, if it is run again.

    With --dry-run workers may run. Exit code 1 then: something is in the way.
    """
    settings = settings_with_addresses(config)
    from app.commands.topics import grow as grow_module

    return grow_module.grow(
        settings,
        address,
        partitions,
        despite_backlog=despite_backlog,
        dry_run=dry_run,
        as_json=as_json,
        yes=yes,
    )


@cli.command()
@click.option("--web-port", type=PORT, help="Overrides app.web_port; 0 = no web server.")
@log_options
@config_option
def worker(web_port: int | None, config: Path) -> int:
    """Run lanes: detect duplicates, keep groups together, write what is accepted.

    Run as many workers as you like; they share the lanes. GET /live says that the process runs, GET /health is
    200 when all assigned lanes are open. SIGTERM drains and commits.
    """
    settings = settings_with_addresses(config)
    from app.worker import run as worker_module

    return worker_module.run(settings, web_port)


@cli.command()
@click.argument("address")
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@config_option
def send(address: str, file: str | None, config: Path) -> int:
    """Send JSON lines from FILE, or from standard input, to ADDRESS.

    A line is {"id": ..., "group": ..., "value": ..., "headers": {...}}; all but the value may be left out. "value": null
    sends a null value.

    {"id": ..., "group": ..., "parts": [...]} is a transaction: all its parts are accepted, or none. A part is a line with
    "value", and may have an "address" of its own, one that ADDRESS lists in transaction_addresses. One "id" is enough. The
    "group" beside "parts" says where the transaction is judged.
    """
    settings = settings_with_addresses(config)
    from app.commands.send import send as send_module

    return send_module.run(settings, address, None if file == "-" else file)


@cli.group()
def rings() -> None:
    """Look at the rings of duplicate IDs."""
    silence_clients()


@rings.command("show")
@click.argument("address", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@config_option
def rings_show(address: str | None, as_json: bool, config: Path) -> int:
    """Size, capacity, oldest and newest ID of each lane's ring, of ADDRESS or of all.

    BRIDGE.ADDRESS shows what has come over bridges: source, where it arrived, floor, and how many offsets above it.
    """
    settings = settings_with_addresses(config)
    from app.commands.rings import hop_memory
    from app.commands.rings import show as rings_module

    if address is not None and (bridged := hop_memory.address_of(settings, address)) is not None:
        return hop_memory.show(settings, bridged, as_json)
    return rings_module.show(settings, address, as_json)


@rings.command("find")
@click.argument("address")
@click.argument("identifier", metavar="ID")
@click.option(
    "--of", metavar="OTHER", help="ID is one of address OTHER: a transaction of ADDRESS had a part for it."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@config_option
def rings_find(address: str, identifier: str, of: str | None, as_json: bool, config: Path) -> int:
    """Is ID known to ADDRESS, and where is its original? Exit code 1 if it is not known.

    ID is text, or hex:… or base64:… for other bytes, or digest:… as `rings show` names a long one; text:… for a text
    that begins so. With BRIDGE.ADDRESS it is a hop, <bridge>/<ID of its source topic>/<partition>/<offset>: has it come?
    """
    settings = settings_with_addresses(config)
    from app.commands.rings import find, hop_memory

    if (bridged := hop_memory.address_of(settings, address)) is not None:
        if of is not None:
            raise click.UsageError("--of is of duplicate IDs; a hop names its source itself: leave it out")
        return hop_memory.find(settings, bridged, identifier, as_json)
    return find.find(settings, address, identifier, as_json, of)


@rings.command("clear")
@click.argument("address")
@click.option(
    "--despite-lag", is_flag=True, help="Of BRIDGE.ADDRESS: also while lanes have not judged all that came."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
def rings_clear(address: str, despite_lag: bool, yes: bool, config: Path) -> int:
    """Forget all IDs of ADDRESS. Running workers take notice at their next message; resends pass from there on.

    BRIDGE.ADDRESS: forget what has come over bridges instead, once lanes have judged all that stands in the input. IDs stay known.
    """
    settings = settings_with_addresses(config)
    from app.commands.rings import clear

    return clear.clear(settings, address, despite_lag=despite_lag, yes=yes)


@rings.command("adopt")
@click.argument("address")
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
def rings_adopt(address: str, yes: bool, config: Path) -> int:
    """Have the lanes of ADDRESS go by the rules of this file: what is the ID, the group and the home of a message.

    Stop all workers first. A worker whose file has other rules than a lane does not open it, and names the difference. Rings forget their IDs
    if an old ID may equal the new ID of another message. It can be run again.
    """
    settings = settings_with_addresses(config)
    from app.commands.rings import adopt

    return adopt.adopt(settings, address, yes=yes)


@cli.command()
@click.option(
    "--messages", type=int, help="How many to publish; not given = 100,000, or 120,000 with --bridge."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, other traffic.")
@click.option("--keep", is_flag=True, help="Keep data and logs, and say where.")
@click.option(
    "--bridge", "bridged", is_flag=True, help="Show two clusters and a bridge between them instead."
)
@config_option
def demo(messages: int | None, seed: int, keep: bool, bridged: bool, config: Path) -> int:
    """Show it: broker, topics, worker, traffic with resends, a killed worker, an independent check.

    With --bridge: a bridge from one cluster to another that is killed twice, a link that is cut, a producer that fails over and sends
    again.

    It brings its own brokers and data and touches nothing else; what stays is the nightly job's report, in data/demo.
    Exit code 0 only if every message was accepted exactly once, in order and unchanged.
    """
    refuse_connection("demo")
    settings_if_any(config)  # needs none of them, but a faulty file that was named is an error everywhere
    if bridged:
        from app.demo import bridge as shown

        return shown.run(shown.MESSAGES if messages is None else messages, keep, seed)
    require_spark()  # its last step; better said before the first
    from app import demo as demo_module

    return demo_module.run(demo_module.MESSAGES if messages is None else messages, keep, seed)


@cli.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def consume(arguments: Sequence[str]) -> NoReturn:
    """Run a handler over the accepted messages of an address; the same as ringfence-consume.

    In a program of its own, which has loaded nothing of this one: a handler may live in a package of any name.
    """
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "ringfence_client", *arguments])  # noqa: S606 - this very Python


cli.add_command(audit)
cli.add_command(bridge)
cli.add_command(consumers)
cli.add_command(dlq)
cli.add_command(groups)
cli.add_command(plan)
cli.add_command(quarantine)
cli.add_command(reconcile)
cli.add_command(status)
