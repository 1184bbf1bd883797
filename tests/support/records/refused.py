"""Records of quarantine and dead-letter topics for tests."""

from typing import Any, NamedTuple

from app.commands.repair.records import Place, RedriveOptions, Refused
from app.commands.repair.republish import Publisher
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.settings import AddressSettings


class Fetched(NamedTuple):
    """Fields of aiokafka's record that are read."""

    headers: tuple[tuple[str, bytes | None], ...] = ()
    value: bytes | None = b"value"
    key: bytes | None = b"group"
    partition: int = 1
    offset: int = 7
    timestamp: int = 1_000_000


def refused_record(**changes: Any) -> Refused:
    given = {"place": Place("q", 1, 7), "key": b"k", "value": b"v", "headers": (), "timestamp": 1_000_000}
    return Refused(**{**given, **changes})


def publisher_of(
    *, bytes_max: int = 1_000, bridged: bool = False, force: bool = False, **address: Any
) -> Publisher:
    target = TopicDescription("orders", 4, {"max.message.bytes": str(bytes_max)})
    return Publisher(
        target, AddressSettings(name="orders", **address), RedriveOptions(force=force), bridged=bridged
    )
