"""What goes on beside the forwarding for as long as a bridge is connected to its source."""

import asyncio
import logging
from typing import Final

from aiokafka.errors import KafkaError

from agents.bridge.source import SourceConsumer
from agents.bridge.state import MEMBERSHIP, BridgeState
from agents.bridge.window import Window
from ringfence_client.consumer.topic_watch import TopicWatch
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.concurrency.coalesce import StoppedError
from ringfence_kafka.errors import said
from ringfence_kafka.groups.group_watch import GroupWatch

log: Final = logging.getLogger("ringfence.bridge")

KEEP_EVERY_S: Final = 0.5
MEASURE_EVERY_S: Final = 2.0
MEASURE_LIMIT_S: Final = 5.0


async def keep(consumer: SourceConsumer, state: BridgeState) -> None:
    """Stay a member of the group: also while the target is away, and while others have all partitions, so that nothing is read."""
    while True:
        state.looks_awake()
        try:
            consumer.keep()
        except Exception as error:
            state.fail(MEMBERSHIP, f"source: {said(error)}")
        else:
            state.recover(MEMBERSHIP)
        await asyncio.sleep(KEEP_EVERY_S)


async def measure(
    topic: str,
    cluster: Cluster,
    watch: TopicWatch,
    group_watch: GroupWatch,
    window: Window,
    state: BridgeState,
) -> None:
    """Keep what is shown a few seconds old at most."""
    while True:
        numbers = list(window.places)
        try:
            ends = await cluster.known_stable_ends([(topic, number) for number in numbers], MEASURE_LIMIT_S)
        except (KafkaError, OSError, TimeoutError, StoppedError):
            pass  # the watch says so
        except Exception:
            log.exception("bridge %s: its lag cannot be told", state.name)
        else:
            for number in numbers:
                place = window.places.get(number)
                if place is None:
                    continue
                if (end := ends.get((topic, number))) is None:
                    state.lags.pop(number, None)  # its leader is away: nobody knows
                else:
                    state.lags[number] = max(0, end - place.confirmed)
        state.source_faults = [*group_watch.faults, *watch.faults]
        await asyncio.sleep(MEASURE_EVERY_S)
