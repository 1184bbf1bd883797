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
