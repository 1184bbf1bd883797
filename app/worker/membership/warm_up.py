"""Restores the lanes that a worker will get before it joins. Meanwhile their present workers go on."""

import asyncio
import logging
import time
from typing import Final

from aiokafka.errors import KafkaError

from agents.worker.lanes import Lanes
from app.worker.membership.assignor import LaneAssignor
from ringfence_kafka.admin.cluster import Cluster

log: Final = logging.getLogger("ringfence.worker")

LIMIT_S: Final = 120.0
"""Time after which the worker joins with the lanes restored so far, in seconds."""


async def restore_before_joining(
    lanes: Lanes, cluster: Cluster, assignor: LaneAssignor, topics: set[str], instance: str | None
) -> None:
    """Restore the lanes that the present group would assign to one more member. Never raises; logs errors.

    In an empty group, lanes wait until this worker joins, so there is nothing to gain. The same is true for a
    static member that returns as ``instance``.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(LIMIT_S):
            members = await cluster.groups.static_members()
            if not members or (
                instance is not None and any(member.instance == instance for member in members)
            ):
                return
            counts = await cluster.topics.partition_counts(sorted(topics))
            await lanes.warm_up.restore(assignor.foresee(members, topics, counts))
    except TimeoutError:
        log.warning(
            "restoring lanes takes more than %.0f s: joining the group with the lanes restored so far",
            LIMIT_S,
        )
    except (KafkaError, OSError, NotImplementedError) as error:  # the last: brokers before 2.4
        log.info("cannot predict the assignment; lanes will be restored when they open: %r", error)
    else:
        log.info("lanes are restored after %.1f s: joining the group", time.monotonic() - began)
