"""A worker as a static member of its group, under the name of its instance."""

import logging
from typing import Final

from aiokafka.errors import KafkaError

from app.worker.membership.lane_assignment import LaneTopics
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError
from ringfence_kafka.groups import static_members
from ringfence_kafka.protocol import wire_names

log: Final = logging.getLogger("ringfence.worker")


def group_instance(settings: Settings) -> str | None:
    """Return the worker's name in its consumer group; None = not a static member."""
    return settings.app.instance if settings.app.static_membership else None


def subscribed(settings: Settings) -> set[str]:
    """Return all topics that a worker reads as a member of its group."""
    return {topic for address in lane_topics(settings) for topic in address.names}


def lane_topics(settings: Settings) -> list[LaneTopics]:
    """Return the topics of each address that a worker reads."""
    return [
        LaneTopics(
            address.input_topic,
            wire_names.forward_topic(settings.app.id, address.name) if address.forwards else "",
            address.lanes,
        )
        for address in settings.addresses
    ]


def replaced(settings: Settings) -> str:
    """Return the error of a worker that another worker with the same name replaced."""
    return (
        f"another worker has joined the group {settings.app.id} as app.instance = {settings.app.instance}, and has its lanes: if it "
        "is this one's replacement, leave this one ended; else give each its own app.instance (RINGFENCE_APP__INSTANCE), then start "
        "this one again"
    )


async def renew(settings: Settings) -> None:
    """Request a new assignment before joining, if the predecessor read other topics, or unknown ones.

    Raises:
        BrokerUnavailableError: The group does not answer.
    """
    instance = settings.app.instance
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        try:
            await cluster.groups.await_coordinator()
            outdated = await static_members.forget_outdated(
                cluster.connection.admin, cluster.group_id, instance, subscribed(settings)
            )
        except KafkaError as error:
            raise BrokerUnavailableError(
                f"the consumer group {settings.app.id} does not report what {instance} read in its last run "
                f"({error!r}): start this worker again; if that does not help, set app.static_membership = "
                "false"
            ) from error
    if outdated:
        log.info(
            "%s had other addresses in its last run, or the group does not report them: asking for a new "
            "assignment",
            instance,
        )
