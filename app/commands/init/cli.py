"""``ringfence init``: its options."""

from pathlib import Path

import click


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--bootstrap-servers",
    "--bootstrap-server",
    metavar="HOST:PORT,…",
    help="Brokers of the cluster with the topics.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A broker.xml of ActiveMQ Artemis, or a hornetq-configuration.xml, to import.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    default=Path("ringfence.toml"),
    show_default=True,
    metavar="FILE",
    help="Path of the new file; - prints it.",
)
def init(topics: tuple[str, ...], bootstrap_servers: str | None, source: Path | None, output: Path) -> int:
    """Write a commented configuration with an address for each TOPIC.

    It overwrites no file, and writes the JSON Schema for editors beside the new one. With --from it imports addresses,
    bridges and cluster connections of another broker. It lists all settings that have no counterpart.
    """
    if not (topics or source):
        raise click.UsageError("name a topic, or a file with --from")
    from app.commands.init import create

    return create.create_file(topics, bootstrap_servers, source, output)
