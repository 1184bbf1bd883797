"""What this user may not do and a worker must: asked before it starts.

Without it a worker that may not use its group would wait for partitions forever and say nothing, and one that may
not read a topic would end with a trace of Faust's.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from conf.settings import Settings
from tables.access import confluent_options

ANSWER_LIMIT_S: Final = 5.0

_READ: Final = frozenset({AclOperation.READ})
_WRITE: Final = frozenset({AclOperation.WRITE})
_TOPIC_RIGHTS: Final[Mapping[str, frozenset[AclOperation]]] = {
    "input topic": _READ,
    "changelog": _READ | _WRITE,
    "forward topic": _READ | _WRITE,
}
"""By role; of the others, which are outputs, Write."""


async def missing(settings: Settings) -> list[str]:
    """Faults with the way out, one a topic or group; none where the cluster does not tell, or has no ACLs."""
    return await asyncio.to_thread(_missing, settings)


def _missing(settings: Settings) -> list[str]:
    admin = AdminClient(confluent_options(settings.kafka))
    needed = {
        topic: _TOPIC_RIGHTS.get(role, _WRITE)
        for address in settings.addresses
        for role, topic in address.topics(settings.app.id).items()
    }
    options: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": ANSWER_LIMIT_S}
    topics = admin.describe_topics(TopicCollection(list(needed)), **options)
    group = admin.describe_consumer_groups([settings.app.id], **options)[settings.app.id]
    faults = [_fault("topic", name, rights, topics[name]) for name, rights in needed.items()]
    return [each for each in (*faults, _fault("group", settings.app.id, _READ, group)) if each]


def _fault(kind: str, name: str, needed: frozenset[AclOperation], described: Any) -> str | None:
    """What is missing on one topic or group; None if nothing is, or nobody knows."""
    try:
        granted = described.result().authorized_operations
    except KafkaException as error:
        refused = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
        if error.args[0].code() not in refused:
            return None
        granted = []
    if granted is None:
        return None
    lacking = " and ".join(sorted(each.name.capitalize() for each in needed - set(granted)))
    return (
        f"{kind} {name}: this user may not use it as a worker does: allow {lacking} on it"
        if lacking
        else None
    )
