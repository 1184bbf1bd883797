"""``ringfence broker``: the embedded broker in the foreground."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError
from ringfence_kafka.process.command_line import print_next
from ringfence_kafka.process.signals import InterruptedBySignalError, Interruption

_KEY: Final = re.compile(r"[A-Za-z0-9._-]+")
_WHERE: Final = "it listens on one port of this machine: choose that with --port"
_DATA: Final = "its data is in its folder: choose that with --dir"
_NODE: Final = "it is one node, broker and controller in one"

OWNED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name",
            "security.inter.broker.protocol", "controller.listener.names", "early.start.listeners",
        ),
        _WHERE,
    ),
    **dict.fromkeys(("log.dir", "log.dirs", "metadata.log.dir"), _DATA),
    **dict.fromkeys(
        ("process.roles", "node.id", "broker.id", "controller.quorum.voters", "controller.quorum.bootstrap.servers"), _NODE
    ),
}  # fmt: skip
"""Properties that the broker sets itself, with the reason."""

_SECRET: Final = re.compile("password|secret|key|certificate|jaas")
"""Parts of names of properties whose values Kafka hides."""
_OF_A_LISTENER: Final = "listener.name."


def run_broker(port: int, directory: Path, pairs: Sequence[str] = (), version: str | None = None) -> int:
    """Run the broker until SIGTERM, Ctrl-C or a closed terminal, then end it in order, and return 0.

    ``pairs``: properties as ``KEY=VALUE``, for this start only. The others are those of :class:`EmbeddedBroker`.

    Raises:
        PrerequisiteError: The broker cannot run, or ended by itself.
        ConfigurationError: A property cannot be set, or Kafka does not have it.
    """
    wanted = parse_properties(pairs)
    broker = EmbeddedBroker(directory, port, properties=wanted, version=version)
    try:
        with Interruption() as interruption, interruption.immediate():
            try:
                broker.start()
                if wanted:
                    require_known(wanted, broker.described_properties())
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


def parse_properties(pairs: Sequence[str]) -> dict[str, str]:
    """Parse properties from ``KEY=VALUE``.

    Raises:
        ConfigurationError: A text is not a pair, repeats a key, or names a property of the broker itself.
    """
    properties: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key) or "\n" in value:
            raise ConfigurationError(
                f"--property {pair!r} is not KEY=VALUE on one line: write for example --property log.retention.ms=60000"
            )
        if reason := OWNED.get(key):
            raise ConfigurationError(
                f"--property {key} cannot be set, the embedded broker does that: {reason}"
            )
        if key in properties:
            raise ConfigurationError(
                f"--property {key} is given twice, with {properties[key]!r} and {value!r}: keep one"
            )
        properties[key] = value
    return properties


def require_known(properties: Iterable[str], described: Mapping[str, bool]) -> None:
    """Refuse properties that Kafka does not know, and would silently ignore.

    ``described``: properties of the running broker, and whether each value is hidden. Kafka hides unknown ones.
    """
    unknown = [
        name
        for name in properties
        if described.get(name, True) and not _SECRET.search(name) and not name.startswith(_OF_A_LISTENER)
    ]
    if unknown:
        known = sorted(set(described) - set(unknown))
        near = {name: difflib.get_close_matches(name, known, n=1) for name in unknown}
        shown = [f"{name} (did you mean {close[0]}?)" if close else name for name, close in near.items()]
        raise ConfigurationError(
            f"--property: Kafka has no property {', '.join(shown)}: correct or remove it"
        )
