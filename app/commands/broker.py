"""``ringfence broker``: an embedded Kafka in the foreground."""

from pathlib import Path

import click

from ringfence_kafka.process.command_line import PORT, config_option, refuse_connection, settings_if_any


@click.command()
@click.option(
    "--port", type=PORT, default=9092, show_default=True, help="Where clients connect; 0 = any free port."
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("data/broker"),
    show_default=True,
    help="Folder of data and log; the next start continues with it.",
)
@click.option(
    "--property",
    "broker_properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="Property of the broker, such as log.retention.ms=60000; repeat it for more. It applies to "
    "this start only.",
)
@click.option(
    "--kafka-version",
    metavar="VERSION",
    help="Version of Kafka, such as 3.9.1; an error lists the known ones. Not given = "
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
    settings_if_any(config)  # not used here, but an invalid file on the command line is always an error
    from app.embedded.command import run_broker

    return run_broker(port, directory, broker_properties, kafka_version)
