"""Start position of a new consumer group."""

import logging
from typing import Final

from aiokafka.errors import KafkaError

from ringfence_client.progress.progress_record import encode_key
from ringfence_client.progress.progress_topic import ProgressTopic
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.errors import named
from ringfence_kafka.groups.committed_offsets import Committed

log: Final = logging.getLogger("ringfence.consumer")


async def begin_at_end(cluster: Cluster, progress: ProgressTopic, group: str, topic: str) -> bool:
    """Set the offsets of a new consumer group to the present end of its topic; return whether they were set.

    All partitions get an offset at once, before the first consumer joins. A partition that is assigned later therefore starts at the same
    moment. A group that has consumed the topic, or has a member, continues at its position.

    Raises:
        KafkaError: The cluster does not answer.
    """
    numbers = range((await cluster.topics.partition_counts([topic]))[topic])
    for number in numbers:
        known = await cluster.groups.committed_offset(topic, number) is not None
        if known or await progress.latest(encode_key(group, topic, number)) is not None:
            return False
    ends = {number: Committed(await cluster.offsets.stable_end(topic, number), "") for number in numbers}
    try:
        await cluster.groups.commit(topic, ends)
    except KafkaError as error:
        if await cluster.groups.state() in NO_MEMBERS:
            raise
        log.info(
            "consumer group %s has members already, and starts at their position: %s", group, named(error)
        )
        return False
    log.info(
        "new consumer group %s begins at the end of %s; up to %d messages before it are not handled",
        group, topic, sum(end.offset for end in ends.values()),
    )  # fmt: skip
    return True
