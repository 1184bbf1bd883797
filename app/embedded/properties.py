"""``--property KEY=VALUE`` of ``ringfence broker``: what a person may set, and what the embedded broker sets itself. Pure."""

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
"""What nobody else may set, and why."""

_SECRET: Final = re.compile("password|secret|key|certificate|jaas")
"""In names of properties whose values Kafka shows to nobody."""
_OF_A_LISTENER: Final = "listener.name."


def parsed(pairs: Sequence[str]) -> dict[str, str]:
    """Properties by their names.

    Raises:
        ConfigurationError: one is no pair, stands twice, or is none to set; says which, and why.
    """
    found: dict[str, str] = {}
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
        if key in found:
            raise ConfigurationError(
                f"--property {key} stands twice, with {found[key]!r} and {value!r}: keep one"
            )
        found[key] = value
    return found


def unknown(properties: Iterable[str], described: Mapping[str, bool]) -> list[str]:
    """Those that Kafka does not know: it would pass over them without a word.

    Args:
        properties: Names that were set.
        described: Of the running broker, each property's name, and whether its value is hidden: Kafka hides those it does not know.
    """
    return [
        property_
        for property_ in properties
        if described.get(property_, True)
        and not _SECRET.search(property_)
        and not property_.startswith(_OF_A_LISTENER)
    ]


def no_such(names: Sequence[str], described: Mapping[str, bool]) -> ConfigurationError:
    """The error for them, with what may have been meant."""
    known = sorted(set(described) - set(names))
    near = {name: difflib.get_close_matches(name, known, n=1) for name in names}
    told = [f"{name} (did you mean {found[0]}?)" if found else name for name, found in near.items()]
    return ConfigurationError(
        f"--property: Kafka knows none of the name {', '.join(told)}: correct or remove it"
    )
