"""A consumer without a broker, with partitions in each state."""

import time
from types import SimpleNamespace
from typing import Any

from ringfence_client import GroupConsumer
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import Lease
from ringfence_client.progress.progress_record import Progress
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import Window
from ringfence_kafka.config.load import validate
from tests.support.consumers.windows import Fetched


async def handle(_: Any) -> None:
    """Nothing."""


def unconnected() -> GroupConsumer:
    """Return a consumer that was never connected: one partition is held, one draining, one waited for."""
    settings = validate({"addresses": [{"name": "orders"}]})
    consumer = GroupConsumer(settings, settings.addresses[0], "billing", handle)
    consumer.held_partitions.assigned = {0, 2}
    for number in (0, 1):
        lease = Lease("billing", "orders.accepted", number, "c1/1", token=3)
        window = Window(Progress(5), memory=MemoryBudget(64 * 2**20))
        writer: Any = SimpleNamespace(
            fault="",
            letters=SimpleNamespace(fault=""),
            sends=SimpleNamespace(states=SimpleNamespace(waiting={})),
        )
        unused: Any = None
        consumer.partitions[number] = HeldPartition(lease, window, writer, unused, unused)
    consumer.partitions[1].draining = True
    now = round(time.time() * 1000)
    consumer.partitions[0].window.feed(
        [Fetched(5, b"a", timestamp=now - 90_000), Fetched(6, b"b", timestamp=now)]
    )
    consumer.partitions[0].window.attempts.fail(5, now)
    consumer.dispatcher.counts.update(finished=7, failed=2, dead_letters=1, gap_records=3)
    return consumer
