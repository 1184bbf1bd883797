"""Before a worker joins others, it restores the lanes that it is about to be given; until then these go on where they are."""

import asyncio
import logging
import time
from types import SimpleNamespace
from typing import Any, Final

from aiokafka.errors import KafkaError
from faust.assignor.partition_assignor import PartitionAssignor

from agents.lanes import Lanes, Partition
from ringfence_kafka.cluster import Cluster
from ringfence_kafka.static import Member

log: Final = logging.getLogger("ringfence.worker")

LIMIT_S: Final = 120.0
"""Then it joins with what it has."""
_NEWCOMER: Final = ""
"""Stands for a member ID that the group is still to give."""


async def warm_up(
    lanes: Lanes, cluster: Cluster, assignor: PartitionAssignor, topics: set[str], instance: str | None
) -> None:
    """Restore what the group, as it is now, would give to one more member. Never fails, and says what keeps it.

    Where nobody else is in the group, lanes stand still until we join: then there is nothing to do before. So it is for a static member
    that comes back, ``instance``: its lanes wait for it.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(LIMIT_S):
            members = await cluster.static_members()
            if not members or (instance is not None and any(each.instance == instance for each in members)):
                return
            counts = await cluster.partition_counts(sorted(topics))
            await lanes.warm_up(share(assignor, members, topics, counts))
    except TimeoutError:
        log.warning("restoring lanes takes more than %.0f s: joining the group with what is there", LIMIT_S)
    except (
        KafkaError,
        OSError,
        NotImplementedError,
    ) as error:  # the last: brokers before 2.4 are not asked so
        log.info(
            "the group cannot be asked what it will give us, lanes are restored when they open: %r", error
        )
    else:
        log.info("lanes are restored after %.1f s: joining the group", time.monotonic() - began)


def share(
    assignor: PartitionAssignor, members: list[Member], topics: set[str], counts: dict[str, int]
) -> set[Partition]:
    """What the assignor would give to a newcomer; nothing while the group rebalances, and does not say what its members have."""
    if any(each.metadata is None for each in members):
        return set()
    joined = {each.member_id: each.metadata for each in members} | {_NEWCOMER: assignor.metadata(topics)}
    cluster: Any = SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts.get(topic, 0))))
    given = assignor.assign(cluster, joined)[_NEWCOMER].assignment
    return {(topic, number) for topic, numbers in given for number in numbers}
