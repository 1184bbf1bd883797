"""Before a worker joins others, it restores the lanes that it is about to be given; until then these go on where they are."""

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
"""Then it joins with what it has."""


async def warm_up(
    lanes: Lanes, cluster: Cluster, assignor: LaneAssignor, topics: set[str], instance: str | None
) -> None:
    """Restore what the group, as it is now, would give to one more member. Never fails, and says what keeps it.

    Where nobody else is in the group, lanes stand still until we join: then there is nothing to do before. So it is for a static member
    that comes back, ``instance``: its lanes wait for it.
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
            await lanes.warm_up(assignor.foresee(members, topics, counts))
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
