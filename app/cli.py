"""The command line. Thin: each verb reads the configuration, calls one function, and returns its exit code.

Verbs import what they run when they run, so that ``--help`` and a usage error do not wait for Faust and Kafka
clients to load.
"""

import logging
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NoReturn

import click
from click.core import ParameterSource

from conf.errors import RingfenceError
from conf.load import load
from conf.settings import Settings

DEFAULT_CONFIG: Final = Path("conf/ringfence.toml")
EXIT_INTERRUPTED: Final = 130

_port = click.IntRange(0, 65535)
_seconds = click.FloatRange(0, min_open=True)
_config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=DEFAULT_CONFIG,
    show_default=True,
    metavar="FILE",
    help="The TOML file; RINGFENCE_<SECTION>__<KEY> in the environment overrides its keys.",
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a verb and exit: 0 well, 1 the checked thing is not well, 2 could not run, 3 unknown, 130 interrupted."""
    try:
        code = cli.main(arguments, prog_name="ringfence", standalone_mode=False)
    except RingfenceError as error:
        click.echo(f"ringfence: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    try:
        click.echo(f"ringfence {version('ringfence')}")
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

    Exit codes: 0 well, 1 the checked thing is not well, 2 could not run (usage, configuration, broker away),
    3 unknown because evidence is gone.
    """


@cli.command()
@click.option(
    "--port", type=_port, default=9092, show_default=True, help="Where clients connect; 0 = any free port."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data/broker"),
    show_default=True,
    help="Keeps data and log; the next start goes on with it.",
)
@_config
def broker(port: int, directory: Path, config: Path) -> int:
    """Run an embedded Kafka of one node in the foreground, for a first look and for tests.

    Ctrl-C or SIGTERM stops it cleanly. It needs Java 17; the first start fetches Kafka, 45 MB.
    """
    _settings_if_any(config)  # needs none of them, but a faulty file that was named is an error everywhere
    from app.embedded.command import run_broker  # noqa: PLC0415

    return run_broker(port, directory)


@cli.group()
def topics() -> None:
    """Create or verify the topics that the configuration needs."""
    _silence_clients()


@topics.command("create")
@_config
def topics_create(config: Path) -> int:
    """Create what is missing; existing topics are left as they are."""
    settings = load(config)
    from app import topics as topics_module  # noqa: PLC0415

    return topics_module.create(settings)


@topics.command("check")
@_config
def topics_check(config: Path) -> int:
    """Verify all topics: a line a fault, with the way out. Exit code 1 if there is one."""
    settings = load(config)
    from app import topics as topics_module  # noqa: PLC0415

    return topics_module.check(settings)


@cli.command()
@click.option("--web-port", type=_port, help="Overrides app.web_port; 0 = no web server.")
@_config
def worker(web_port: int | None, config: Path) -> int:
    """Run lanes: detect duplicates, keep groups together, write what is accepted.

    Run as many workers as you like; they share the lanes. GET /live says that the process runs, GET /health is
    200 when all assigned lanes are open. SIGTERM drains and commits.
    """
    settings = load(config)
    from app import worker as worker_module  # noqa: PLC0415

    return worker_module.run(settings, web_port)


@cli.command()
@click.argument("address")
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@_config
def send(address: str, file: str | None, config: Path) -> int:
    """Send JSON lines from FILE, or from standard input, to ADDRESS.

    A line is {"id": ..., "group": ..., "value": ..., "headers": {...}}; all but the value may be left out.
    """
    settings = load(config)
    from app import send as send_module  # noqa: PLC0415

    return send_module.run(settings, address, None if file == "-" else file)


@cli.command()
@click.argument("address")
@click.option("--handler", required=True, metavar="MODULE:FUNCTION", help="Called with each message.")
@click.option("--consumer-group", "group", required=True, metavar="NAME", help="Its progress is its own.")
@click.option(
    "--concurrency", type=click.IntRange(1), default=10, show_default=True, help="Handlers that run at once."
)
@click.option(
    "--prefetch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Messages of its group a handler holds.",
)
@click.option(
    "--max-attempts", type=click.IntRange(1), default=5, show_default=True, help="Then it is a dead letter."
)
@click.option(
    "--ack-interval",
    type=_seconds,
    default=0.1,
    show_default=True,
    help="Seconds between writes of the progress.",
)
@click.option(
    "--drain-timeout",
    type=_seconds,
    default=30.0,
    show_default=True,
    help="Seconds that handlers get to end.",
)
@click.option("--web-port", type=_port, help="0 = no web server; not given = any free port.")
@_config
def consume(
    address: str,
    handler: str,
    group: str,
    concurrency: int,
    prefetch: int,
    max_attempts: int,
    ack_interval: float,
    drain_timeout: float,
    web_port: int | None,
    config: Path,
) -> int:
    """Run a handler over the accepted messages of ADDRESS: each group in order, groups beside one another.

    Returning acknowledges a message; raising tries it again later. Run as many consumers as you like. SIGTERM drains
    and writes the progress.
    """
    settings = load(config)
    from app import consume as consume_module  # noqa: PLC0415
    from ringfence_client import ConsumerOptions  # noqa: PLC0415

    options = ConsumerOptions(
        concurrency=concurrency,
        prefetch=prefetch,
        max_attempts=max_attempts,
        ack_interval=ack_interval,
        drain_timeout=drain_timeout,
    )
    return consume_module.run(settings, address, handler, group, options, web_port)


@cli.group()
def groups() -> None:
    """Look at message groups and how far a consumer group is in them."""
    _silence_clients()


_consumer_group = click.option(
    "--consumer-group", "group", required=True, metavar="NAME", help="Whose progress."
)


@groups.command("show")
@click.argument("address")
@_consumer_group
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@_config
def groups_show(address: str, group: str, as_json: bool, config: Path) -> int:
    """Groups of ADDRESS with messages that are not finished: depth, acquired, owner, age of the first."""
    settings = load(config)
    from app import groups as groups_module  # noqa: PLC0415

    return groups_module.show(settings, address, group, as_json)


@groups.command("purge")
@click.argument("address")
@click.argument("name", metavar="GROUP")
@_consumer_group
@_config
def groups_purge(address: str, name: str, group: str, config: Path) -> int:
    """Drop all messages of GROUP at ADDRESS that are there now and no handler has; other consumer groups keep them.

    GROUP is text, or hex:... for other bytes; text:... for a text that begins so.
    """
    settings = load(config)
    from app import group_verbs  # noqa: PLC0415

    return group_verbs.drop(settings, address, group, name, skip=False)


@groups.command("skip")
@click.argument("address")
@click.argument("name", metavar="GROUP")
@_consumer_group
@_config
def groups_skip(address: str, name: str, group: str, config: Path) -> int:
    """Drop the first message of GROUP at ADDRESS, such as one that fails again and again; the next one follows."""
    settings = load(config)
    from app import group_verbs  # noqa: PLC0415

    return group_verbs.drop(settings, address, group, name, skip=True)


@cli.group()
def rings() -> None:
    """Look at the rings of duplicate IDs."""
    _silence_clients()


@rings.command("show")
@click.argument("address", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@_config
def rings_show(address: str | None, as_json: bool, config: Path) -> int:
    """Size, capacity, oldest and newest ID of each lane's ring, of ADDRESS or of all."""
    settings = load(config)
    from app import rings as rings_module  # noqa: PLC0415

    return rings_module.show(settings, address, as_json)


@rings.command("find")
@click.argument("address")
@click.argument("identifier", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON document for programs.")
@_config
def rings_find(address: str, identifier: str, as_json: bool, config: Path) -> int:
    """Is ID known to ADDRESS, and where is its original? Exit code 1 if it is not known.

    ID is text, or hex:… or base64:… for other bytes, or digest:… as `rings show` names a long one; text:… for a text
    that begins so.
    """
    settings = load(config)
    from app import ring_verbs  # noqa: PLC0415

    return ring_verbs.find(settings, address, identifier, as_json)


@rings.command("clear")
@click.argument("address")
@_config
def rings_clear(address: str, config: Path) -> int:
    """Forget all IDs of ADDRESS. Running workers take notice at their next message; resends pass from there on."""
    settings = load(config)
    from app import ring_verbs  # noqa: PLC0415

    return ring_verbs.clear(settings, address)


@cli.command()
@click.option("--messages", type=int, default=240_000, show_default=True, help="How many to publish.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, other traffic.")
@click.option("--keep", is_flag=True, help="Keep data and logs, and say where.")
@_config
def demo(messages: int, seed: int, keep: bool, config: Path) -> int:
    """Show it: broker, topics, worker, traffic with resends, a killed worker, an independent check.

    It brings its own broker and data and touches nothing else. Exit code 0 only if every message was accepted
    exactly once, in order and unchanged.
    """
    _settings_if_any(config)  # needs none of them, but a faulty file that was named is an error everywhere
    from app import demo as demo_module  # noqa: PLC0415

    return demo_module.run(messages, keep, seed)


def _silence_clients() -> None:
    """What aiokafka logs of a failed connection, the error that the verb ends with says better."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # A connection that is refused leaves futures that nobody awaits; the verb tells of it in one line.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def _settings_if_any(config: Path) -> Settings:
    """The settings of a file that was named or is there; else the defaults, for verbs that need no addresses."""
    named = click.get_current_context().get_parameter_source("config") is not ParameterSource.DEFAULT
    return load(config) if named or config.exists() else Settings()
