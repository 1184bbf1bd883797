"""The watch over the group of a consumer: see :mod:`ringfence_kafka.group_watch`."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ringfence_client.assignor import is_ours
from ringfence_kafka.cluster import Cluster
from ringfence_kafka.group_watch import GroupWatch

log: Final = logging.getLogger("ringfence.consumer")


def watch_of(cluster: Cluster, topic: str, member_id: Callable[[], str] = lambda: "") -> GroupWatch:
    """Return the watch over the cluster's group, which consumes a topic; ``member_id``: of this process, empty = it is no member."""
    return GroupWatch(
        cluster,
        [topic],
        partial(is_ours, topic),
        log,
        "handlers do not get the messages of the partitions that it has",
        member_id,
    )
