"""Foreign members of a group: the consumer's watch and the metric. See :mod:`ringfence_kafka.admin.group_watch`."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from ringfence_client.consumer.assignor import is_ours
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch

log: Final = logging.getLogger("ringfence.consumer")


def foreign_metric(watches: Iterable[GroupWatch | None]) -> Metric:
    """Return the foreign members of groups as a metric. A group without foreign members has no sample."""
    family = GaugeMetricFamily(
        "ringfence_foreign_member",
        "1 = this client is a member of a group of Ringfence and is not Ringfence's.",
        labels=["consumer_group", "client_id", "host", "protocol"],
    )
    for watch in (watch for watch in watches if watch is not None):
        for item in watch.foreign:
            family.add_metric([watch.group_id, item.client_id, item.host, item.protocol], 1)
    return family


def watch_of(cluster: Cluster, topic: str, member_id: Callable[[], str] = lambda: "") -> GroupWatch:
    """Return a watch over the cluster's group. ``member_id`` returns the member ID of this process; empty = not a member."""
    return GroupWatch(
        cluster,
        [topic],
        partial(is_ours, topic),
        log,
        "handlers do not get the messages of the partitions that it has",
        member_id,
    )
