"""Finds bridges that were removed from the configuration while messages waited, by their consumer groups.

It asks each cluster that the configuration names as a source. Offsets of a group without members expire, by
default after seven days.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from aiokafka.errors import KafkaError
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from agents.bridge.offsets import OffsetMetadata, decode
from agents.bridge.plan import Plan, plans
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.settings import KafkaSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, said
from ringfence_kafka.groups import descriptions
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.hop import as_printed
from ringfence_kafka.wording import counted

ANSWER_LIMIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Left:
    """Removed bridge at one source topic."""

    bridge: str
    group: str
    source: str
    """``bootstrap.servers`` of the source."""
    source_topic: str
    lag: int
    """Messages that it has not forwarded."""
    read_by: str | None
    """A configured bridge that reads this topic too."""

    @property
    def what(self) -> str:
        """Text of the problem."""
        waiting = f"up to {counted(self.lag, 'message waits', 'messages wait')}"
        text = (
            f"it is no longer in this configuration, and {waiting} in {self.source_topic} at "
            f"{self.source} that it has not forwarded"
        )
        return text if self.read_by is None else f"{text}; bridge {self.read_by} reads that topic too"

    @property
    def do(self) -> str:
        """Text of the fix."""
        return (
            "add it again until nothing waits; where another configuration of this app.id has it, run "
            "`ringfence bridge` with that. To discard these messages, or if another bridge replaces it, "
            f"delete the group: kafka-consumer-groups.sh --bootstrap-server … --delete --group {self.group}"
        )


async def find_removed(settings: Settings) -> tuple[list[Left], list[str]]:
    """Return removed bridges, and a problem for each cluster that does not answer."""
    known = plans(settings) if settings.bridges or settings.cluster_connections else []
    clusters = (settings.kafka, *(plan.source for plan in known))
    sources = {kafka.bootstrap_servers: kafka for kafka in clusters}
    found = await asyncio.gather(*(_at(settings, source, known) for source in sources.values()))
    left = sorted((left for item, _ in found for left in item), key=lambda left: left.bridge)
    return left, [fault for _, fault in found if fault]


async def _at(settings: Settings, source: KafkaSettings, known: Collection[Plan]) -> tuple[list[Left], str]:
    try:
        begun = await asyncio.to_thread(_begun, settings.app.id, source, known)
        found = []
        for group, places in begun.items():
            async with Cluster(source, group) as cluster:
                await cluster.groups.await_coordinator()
                found += await _left(cluster, await _notes(cluster, places), settings, known)
    except (KafkaException, KafkaError, RingfenceError, OSError, TimeoutError) as error:
        why = " ".join(said(error).split())
        text = (
            "bridges that were removed from the configuration are unknown at "
            f"{source.bootstrap_servers}: {why}: run this again"
        )
        return [], text
    return found, ""


Notes = dict[str, dict[int, tuple[int, OffsetMetadata]]]
"""Topic → partition → offset and metadata."""


def _begun(app_id: str, source: KafkaSettings, known: Iterable[Plan]) -> dict[str, list[tuple[str, int]]]:
    """Return groups of removed bridges without members, with the partitions that have offsets. Blocks."""
    known = tuple(known)
    admin = AdminClient(confluent_options(source))
    listed = admin.list_consumer_groups(request_timeout=ANSWER_LIMIT_S).result()
    if listed.errors:  # an error of one broker, whose groups are missing
        error = listed.errors[0]
        # Threads and futures cannot pass on a KafkaError: the caller would wait forever.
        raise error if isinstance(error, KafkaException) else KafkaException(error)
    names = [item.group_id for item in listed.valid if _is_left(item.group_id, app_id, known)]
    if not names:
        return {}
    described = descriptions.describe(source, names, partial=True)
    found = {}
    for name in (name for name in names if name in described and not described[name].members):
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=ANSWER_LIMIT_S
        )
        committed = asked[name].result().topic_partitions
        found[name] = [(item.topic, item.partition) for item in committed if item.offset >= 0]
    return found


def _is_left(group: str, app_id: str, known: Iterable[Plan]) -> bool:
    """Return whether a group's name is that of an unknown bridge. Strict connections share a prefix."""
    if not group.startswith(wire_names.bridge_group(app_id, "")):
        return False
    return not any(
        group == plan.group
        or (plan.share and group.startswith(plan.share.before) and group.endswith(plan.share.after))
        for plan in known
    )


async def _notes(cluster: Cluster, places: Iterable[tuple[str, int]]) -> Notes:
    """Read with aiokafka, because confluent-kafka returns commit metadata with bytes behind its end."""
    found: Notes = {}
    for topic, partition in places:
        committed = await cluster.groups.committed(topic, partition)
        note = None if committed is None else decode(committed.note)
        if committed is not None and note is not None:
            found.setdefault(topic, {})[partition] = (committed.offset, note)
    return found


async def _left(cluster: Cluster, notes: Notes, settings: Settings, known: Iterable[Plan]) -> list[Left]:
    source, group = cluster.kafka.bootstrap_servers, cluster.group_id
    there = await cluster.topics.partition_counts(list(notes))
    readers = {plan.source_topic: plan.name for plan in known if plan.source.bootstrap_servers == source}
    found = []
    for topic, by_partition in notes.items():
        if topic not in there:
            continue  # the topic is deleted, so nothing waits
        places = [(topic, number) for number in by_partition]
        present = as_printed((await cluster.topics.identity(topic)).topic_id)
        ends, starts = await asyncio.gather(
            cluster.offsets.known_stable_ends(places, ANSWER_LIMIT_S),
            cluster.offsets.known_starts(places, ANSWER_LIMIT_S),
        )
        lag = 0
        for place in places:
            offset, note = by_partition[place[1]]
            other = note.topic_id not in {"", present}
            if place not in ends or place not in starts:
                raise BrokerUnavailableError(f"its brokers do not report the end of {topic}/{place[1]}")
            start = starts[place]
            lag += max(0, ends[place] - (start if other else max(start, offset)))
        if lag:
            name = group.removeprefix(wire_names.bridge_group(settings.app.id, ""))
            found.append(Left(name, group, source, topic, lag, readers.get(topic)))
    return found
