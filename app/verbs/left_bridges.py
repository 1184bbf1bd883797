"""Bridges that somebody has taken out of the configuration, while messages waited that they had not handed on.

Their consumer groups tell it, at every cluster that the configuration names as a source: what stands beside their offsets is a bridge's.
Offsets of a group without members expire, after seven days by default, and then nothing is known of it any more.
"""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from aiokafka.errors import KafkaError
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from agents.bridge.note import Note, decode
from agents.bridge.plan import Plan, plans
from ringfence_kafka import group_descriptions, wire
from ringfence_kafka.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings, Settings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.hop import as_printed
from ringfence_kafka.security import confluent_options

ANSWER_LIMIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Left:
    """One bridge, at one source topic."""

    bridge: str
    group: str
    source: str
    """``bootstrap.servers``."""
    source_topic: str
    lag: int
    """Messages that it has not handed on."""
    read_by: str | None
    """A bridge of the configuration that reads this topic too; None = none does."""

    @property
    def what(self) -> str:
        """What is the matter."""
        waiting = f"{self.lag:,} message{' waits' if self.lag == 1 else 's wait'}"
        text = f"it is in this configuration no more, and {waiting} in {self.source_topic} at {self.source} that it has not handed on"
        return text if self.read_by is None else f"{text}; bridge {self.read_by} reads that topic too"

    @property
    def do(self) -> str:
        """What helps."""
        return (
            "put it back until nothing waits; where another configuration of this app.id has it, run `ringfence bridge` with that. To give these "
            f"messages up, or if another bridge has taken over, delete the group: kafka-consumer-groups.sh --bootstrap-server … --delete --group {self.group}"
        )


async def read(settings: Settings) -> list[Left]:
    """All that are found. A cluster that does not answer tells none: whoever asks it anything else says so."""
    known = plans(settings) if settings.bridges or settings.cluster_connections else []
    sources = {each.bootstrap_servers: each for each in (settings.kafka, *(plan.source for plan in known))}
    found = await asyncio.gather(*(_at(settings, each, known) for each in sources.values()))
    return sorted((each for those in found for each in those), key=lambda each: each.bridge)


async def _at(settings: Settings, source: KafkaSettings, known: Collection[Plan]) -> list[Left]:
    with suppress(KafkaException, KafkaError, RingfenceError, OSError, TimeoutError):
        begun = await asyncio.to_thread(_begun, settings.app.id, source, known)
        if begun:
            async with Cluster(source, settings.app.id) as cluster:
                return [
                    each for group, notes in begun.items() for each in await _left(cluster, group, notes, settings, known)
                ]  # fmt: skip
    return []


Notes = dict[str, dict[int, tuple[int, Note]]]
"""By topic and partition: the offset, and what stands beside it."""


def _begun(app_id: str, source: KafkaSettings, known: Iterable[Plan]) -> dict[str, Notes]:
    """Groups of bridges that are not configured and have no members. Blocks."""
    known = tuple(known)
    admin = AdminClient(confluent_options(source))
    listed = admin.list_consumer_groups(request_timeout=ANSWER_LIMIT_S).result()
    names = [each.group_id for each in listed.valid if _is_left(each.group_id, app_id, known)]
    if not names:
        return {}
    described = group_descriptions.describe(source, names, partial=True)
    found: dict[str, Notes] = {}
    for name in (each for each in names if each in described and not described[each].members):
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=ANSWER_LIMIT_S
        )
        notes = _notes(asked[name].result().topic_partitions)
        if notes:
            found[name] = notes
    return found


def _is_left(group: str, app_id: str, known: Iterable[Plan]) -> bool:
    """Whether it is named as a bridge's, and of none that is known. Of a strict connection's former members its start tells."""
    if not group.startswith(wire.bridge_group(app_id, "")):
        return False
    return not any(
        group == plan.group
        or (plan.share and group.startswith(plan.share.before) and group.endswith(plan.share.after))
        for plan in known
    )


def _notes(committed: Iterable[TopicPartition]) -> Notes:
    found: Notes = {}
    for each in committed:
        note = decode(each.metadata or "")
        if note is not None and each.offset >= 0:
            found.setdefault(each.topic, {})[each.partition] = (each.offset, note)
    return found


async def _left(
    cluster: Cluster, group: str, notes: Notes, settings: Settings, known: Iterable[Plan]
) -> list[Left]:
    source = cluster.kafka.bootstrap_servers
    readers = {plan.source_topic: plan.name for plan in known if plan.source.bootstrap_servers == source}
    found = []
    for topic, by_partition in notes.items():
        places = [(topic, each) for each in by_partition]
        present = as_printed((await cluster.identity(topic)).topic_id)
        ends, starts = await asyncio.gather(
            cluster.known_stable_ends(places, ANSWER_LIMIT_S), cluster.known_starts(places, ANSWER_LIMIT_S)
        )
        lag = 0
        for place in places:
            offset, note = by_partition[place[1]]
            other = note.topic_id not in {"", present}
            start = starts.get(place, 0)
            lag += max(0, ends.get(place, 0) - (start if other else max(start, offset)))
        if lag:
            name = group.removeprefix(wire.bridge_group(settings.app.id, ""))
            found.append(Left(name, group, source, topic, lag, readers.get(topic)))
    return found
