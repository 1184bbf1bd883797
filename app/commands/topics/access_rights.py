"""Finds rights that a worker needs and this user lacks, before a worker starts and in ``topics check``.

Without this check, a worker without access to its group waits for partitions forever, and one without access
to a topic ends with a traceback.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from agents.topic_checks.topics import of_target, rights_on
from app.commands.topics.required_topics import Findings
from ringfence_kafka.admin.topics import lacking
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.settings import AddressSettings, Settings

ANSWER_LIMIT_S: Final = 5.0
_OPTIONS: Final[dict[str, Any]] = {"include_authorized_operations": True, "request_timeout": ANSWER_LIMIT_S}
Granted = frozenset[str] | None
"""Kafka's names of the operations that this user may do; None = unknown."""


async def missing(settings: Settings) -> Findings:
    """Return a problem for each topic or group; empty if the cluster does not answer or has no ACLs."""
    of_topics, of_group = await asyncio.gather(
        asyncio.to_thread(missing_on_topics, settings), asyncio.to_thread(_missing_on_group, settings)
    )
    of_topics.merge(Findings(shared=of_group))
    return of_topics


def missing_on_topics(settings: Settings) -> Findings:
    """Check only topics, since a question about a group makes a new cluster create its offsets topic."""
    needed = dict.fromkeys(
        topic for address in settings.addresses for topic in address.topics(settings.app.id).values()
    )
    admin = AdminClient(confluent_options(settings.kafka))  # kept: without it no answer comes
    described = admin.describe_topics(TopicCollection(list(needed)), **_OPTIONS)
    granted = {topic: _granted(future) for topic, future in described.items()}
    return Findings(
        by_address={address.name: _of_address(settings, address, granted) for address in settings.addresses}
    )


def _missing_on_group(settings: Settings) -> list[str]:
    group = settings.app.id
    admin = AdminClient(confluent_options(settings.kafka))
    described = admin.describe_consumer_groups([group], **_OPTIONS)[group]
    return _faults("group", group, {"Read"}, _granted(described))


def _of_address(settings: Settings, address: AddressSettings, granted: Mapping[str, Granted]) -> list[str]:
    def faults(role: str, topic: str) -> list[str]:
        return _faults("topic", topic, rights_on(role), granted[topic])

    own = [fault for role, topic in address.topics(settings.app.id).items() for fault in faults(role, topic)]
    return own + [
        of_target(address, target, fault)
        for target in settings.transaction_targets(address)
        for fault in faults("accepted topic", target.accepted_topic)
    ]


def _granted(described: Any) -> Granted:
    try:
        operations = described.result().authorized_operations
    except KafkaException as error:
        refused = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
        return frozenset() if error.args[0].code() in refused else None
    return None if operations is None else frozenset(operation.name.capitalize() for operation in operations)


def _faults(kind: str, name: str, needed: Collection[str], granted: Granted) -> list[str]:
    if granted is None:
        return []
    rights = set(needed) - granted
    return [lacking(kind, name, rights)] if rights else []
