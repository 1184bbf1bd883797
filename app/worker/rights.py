"""What this user may not do and a worker must: asked before it starts.

Without it a worker that may not use its group would wait for partitions forever and say nothing, and one that may
not read a topic would end with a trace of Faust's.
"""

import asyncio
from collections.abc import Collection
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from agents.topic_faults import rights_on
from app.verbs.topic_rules import Findings
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.security import confluent_options
from ringfence_kafka.topics import lacking

ANSWER_LIMIT_S: Final = 5.0


async def missing(settings: Settings) -> Findings:
    """A fault with the way out for each topic or group; none where the cluster does not tell, or has no ACLs."""
    return await asyncio.to_thread(_missing, settings)


def _missing(settings: Settings) -> Findings:
    admin = AdminClient(confluent_options(settings.kafka))
    roles = {each.name: each.topics(settings.app.id) for each in settings.addresses}
    needed = [topic for topics in roles.values() for topic in topics.values()]
    options: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": ANSWER_LIMIT_S}
    topics = admin.describe_topics(TopicCollection(needed), **options)
    group = admin.describe_consumer_groups([settings.app.id], **options)[settings.app.id]
    return Findings(
        shared=_faults("group", settings.app.id, {"Read"}, group),
        by_address={
            name: [
                fault
                for role, topic in own.items()
                for fault in _faults("topic", topic, rights_on(role), topics[topic])
            ]
            for name, own in roles.items()
        },
    )


def _faults(kind: str, name: str, needed: Collection[str], described: Any) -> list[str]:
    """What is missing on one topic or group; nothing if nothing is, or nobody knows."""
    try:
        granted = described.result().authorized_operations
    except KafkaException as error:
        refused = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
        if error.args[0].code() not in refused:
            return []
        granted = []
    if granted is None:
        return []
    rights = set(needed) - {each.name.capitalize() for each in granted}
    return [lacking(kind, name, rights)] if rights else []
