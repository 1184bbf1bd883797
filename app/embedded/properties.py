"""``--property KEY=VALUE`` of ``ringfence broker``: properties that users may set, and the others. Pure."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ringfence_kafka.errors import ConfigurationError

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


def parsed(pairs: Sequence[str]) -> dict[str, str]:
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


def unknown(properties: Iterable[str], described: Mapping[str, bool]) -> list[str]:
    """Return properties that Kafka does not know and silently ignores.

    Args:
        properties: Names that were set.
        described: Properties of the running broker, and whether each value is hidden. Kafka hides unknown
            ones.
    """
    return [
        name
        for name in properties
        if described.get(name, True) and not _SECRET.search(name) and not name.startswith(_OF_A_LISTENER)
    ]


def no_such(names: Sequence[str], described: Mapping[str, bool]) -> ConfigurationError:
    """Return the error for unknown properties, with similar names."""
    known = sorted(set(described) - set(names))
    near = {name: difflib.get_close_matches(name, known, n=1) for name in names}
    shown = [f"{name} (did you mean {close[0]}?)" if close else name for name, close in near.items()]
    return ConfigurationError(f"--property: Kafka has no property {', '.join(shown)}: correct or remove it")
