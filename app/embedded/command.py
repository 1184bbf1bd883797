"""``ringfence broker``: the embedded broker in the foreground."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from app.embedded import properties
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.process.command_line import print_next
from ringfence_kafka.process.signals import InterruptedBySignalError, Interruption


def run_broker(port: int, directory: Path, pairs: Sequence[str] = (), version: str | None = None) -> int:
    """Run the broker until SIGTERM, Ctrl-C or a closed terminal, then end it in order.

    Args:
        port: Port for clients; 0 = a free one, printed on standard output.
        directory: Folder of the data. The next start continues with it.
        pairs: Properties of the broker as ``KEY=VALUE``, for this start only.
        version: Version of Kafka; None = from the environment, else the default.

    Returns:
        The exit code: 0.

    Raises:
        PrerequisiteError: The broker cannot run, or ended by itself.
        ConfigurationError: A property cannot be set, or Kafka does not have it.
    """
    wanted = properties.parsed(pairs)
    broker = EmbeddedBroker(directory, port, properties=wanted, version=version)
    try:
        with Interruption() as interruption, interruption.immediate():
            try:
                broker.start()
                if wanted:
                    _require_known(broker, wanted)
                click.echo(
                    f"Kafka {broker.version} answers at {broker.bootstrap_servers}, data in {broker.directory}; "
                    "Ctrl-C stops it"
                )
                print_next("ringfence", "init", "TOPIC", "--bootstrap-servers", broker.bootstrap_servers)
                broker.wait()
            finally:
                broker.stop()
    except InterruptedBySignalError:
        return 0
    raise PrerequisiteError(
        f"the broker ended by itself: fix what its log names, and start it again:\n{broker.log_tail()}"
    )


def _require_known(broker: EmbeddedBroker, wanted: Mapping[str, str]) -> None:
    """Refuse properties that Kafka silently ignores, such as misspelt ones."""
    described = broker.described_properties()
    if strange := properties.unknown(wanted, described):
        raise properties.no_such(strange, described)
