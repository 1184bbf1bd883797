"""``ringfence bridge --drain``: all run to ends that are asked for once, and stop there."""

import asyncio
from collections.abc import Mapping, Sequence

from aiokafka.errors import KafkaError

from agents.bridge.plan import Plan
from ringfence_kafka.cluster import Cluster
from ringfence_kafka.errors import BrokerUnavailableError, TopicError, named

Ends = Mapping[int, int]


async def ends_of(plans: Sequence[Plan]) -> dict[str, Ends]:
    """By bridge; bridges of one source topic have the same.

    Raises:
        BrokerUnavailableError: a source does not answer: nobody knows where its end is.
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
            counts = await cluster.partition_counts([topic])
            ends = await cluster.stable_ends([(topic, each) for each in range(counts.get(topic, 0))])
    except (KafkaError, OSError, TimeoutError) as error:
        raise BrokerUnavailableError(
            f"bridge {plan.name}: the source does not answer, and without its end there is nothing to drain to: {named(error)}"
        ) from error
    return {number: end for (_, number), end in ends.items()}


async def require_at(plans: Sequence[Plan], ends: Mapping[str, Ends]) -> None:
    """Whether all stand where they were to stop.

    Raises:
        TopicError: one does not, and why that may be.
    """
    for plan in plans:
        async with Cluster(plan.source, plan.group) as cluster:
            numbers = sorted(ends[plan.name])
            noted = await asyncio.gather(*(cluster.noted(plan.source_topic, each) for each in numbers))
        for number, each in zip(numbers, noted, strict=True):
            at, end = 0 if each is None else each.offset, ends[plan.name][number]
            if at < end:
                raise TopicError(
                    f"bridge {plan.name}: not drained: it stands at {at} of {end} in {plan.source_topic}/{number}: run it again with --drain"
                )
            if at > end:
                raise TopicError(
                    f"bridge {plan.name}: it stands at {at} in {plan.source_topic}/{number}, beyond {end} where it was to stop: another process "
                    "runs it; stop that, and run it again with --drain"
                )
