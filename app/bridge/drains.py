"""``ringfence bridge --drain``: bridges run up to the end offsets at their start, and stop there."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from agents.bridge.offsets import decode
from agents.bridge.plan import Plan
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import BrokerUnavailableError, MissingTopicError, TopicError, said

log: Final = logging.getLogger("ringfence.bridge")

Ends = Mapping[int, int]


async def ends_of(plans: Sequence[Plan]) -> dict[str, Ends]:
    """Return end offsets by bridge. Bridges with the same source topic have the same ends.

    Raises:
        MissingTopicError: A source topic does not exist.
        BrokerUnavailableError: A source does not answer, so its end is unknown.
    """
    asked: dict[tuple[str, str], Ends] = {}
    found = {}
    for plan in plans:
        place = (plan.source.bootstrap_servers, plan.source_topic)
        if place not in asked:
            asked[place] = await _ends(plan)
        found[plan.name] = asked[place]
    return found


async def _ends(plan: Plan) -> Ends:
    topic = plan.source_topic
    try:
        async with Cluster(plan.source, plan.group) as cluster:
            counts = await cluster.topics.partition_counts([topic])
            if topic not in counts:
                raise MissingTopicError(
                    f"bridge {plan.name}: {topic} does not exist at {plan.source.bootstrap_servers}, so there is nothing to drain: fix "
                    "source_topic, create it, or name the bridges to drain"
                )
            ends = await cluster.offsets.stable_ends([(topic, index) for index in range(counts[topic])])
    except (KafkaError, OSError, TimeoutError) as error:
        raise BrokerUnavailableError(
            f"bridge {plan.name}: the source does not answer, so the end of the drain is unknown: "
            f"{said(error)}"
        ) from error
    return {number: end for (_, number), end in ends.items()}


async def reached(plans: Sequence[Plan], ends: Mapping[str, Ends]) -> bool:
    """Return whether all partitions are committed up to their ends, also those that other processes drain."""
    try:
        stood = [await _committed(plan, ends[plan.name]) for plan in plans]
    except (KafkaError, OSError, TimeoutError) as error:
        log.debug("the progress of the drain is unknown now: %r", error)
        return False
    return all(
        stood_at[number] >= end
        for plan, stood_at in zip(plans, stood, strict=True)
        for number, end in ends[plan.name].items()
    )


async def _committed(plan: Plan, numbers: Iterable[int]) -> dict[int, int]:
    async with Cluster(plan.source, plan.group) as cluster:
        noted = await asyncio.gather(
            *(cluster.groups.committed(plan.source_topic, number) for number in numbers)
        )
    return {
        # A bridge's commit has metadata. A commit without it, by an operator or another consumer, does not
        # show what was forwarded.
        number: item.offset if item is not None and decode(item.note) is not None else 0
        for number, item in zip(numbers, noted, strict=True)
    }


async def require_at(plans: Sequence[Plan], ends: Mapping[str, Ends]) -> None:
    """Check that all partitions are committed exactly up to their ends.

    Raises:
        TopicError: A partition is not. The message names a likely reason.
    """
    for plan in plans:
        for number, at in (await _committed(plan, ends[plan.name])).items():
            end = ends[plan.name][number]
            if at < end:
                raise TopicError(
                    f"bridge {plan.name}: not drained: it has forwarded up to {at} of {end} in "
                    f"{plan.source_topic}/{number}: run it again with --drain"
                )
            if at > end:
                raise TopicError(
                    f"bridge {plan.name}: it has forwarded up to {at} in {plan.source_topic}/{number}, "
                    f"beyond the end {end} of the drain, so another process runs it. Stop that process, and "
                    "run this again with --drain"
                )
