"""Finds addresses that were removed from the configuration while their topics still exist."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from confluent_kafka.admin import AdminClient

from agents.topic_checks.changelog import newest_metas
from agents.topic_checks.lanes import lanes_before
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.protocol import wire_names
from tables.codec import Meta

ANSWER_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class RemovedAddress:
    """Address of this application that the configuration does not have."""

    address: str
    topics: list[str]
    """Its internal topics."""
    inputs: Mapping[str, int | None]
    """Input topic → unprocessed messages; None = this user may not see them."""
    readers: str = ""
    """Sentence about configured addresses that read its accepted topic."""
    renamed: str = ""
    """Configured address that now reads its input topic; empty = none."""

    @property
    def note(self) -> str:
        """Output line for an operator."""
        if self.renamed:
            return (
                f"address {self.address} is named {self.renamed} now, and topics of its former name are still there ({', '.join(self.topics)}): "
                f"delete them when you do not need the former IDs. Its dead letters of before stay in {wire_names.dead_letter_topic(self.address)}"
            )
        waiting = [
            f"{'an unknown number of' if count is None else f'up to {count:,}'} messages in {topic} are not processed"
            for topic, count in self.inputs.items()
        ]
        return (
            f"address {self.address} is not in the configuration, and its topics are still there ({', '.join(self.topics)}); "
            f"{'; '.join(waiting) or 'its input topic is not known'}. {self.readers}Add it again; or stop its producers and delete these topics"
        )


async def removed_addresses(settings: Settings) -> list[RemovedAddress]:
    """Return the removed addresses of this application whose internal topics exist.

    The record of a lane names the input topic, so it is unknown for an address that has processed nothing.

    Raises:
        KafkaError, KafkaException: The cluster does not answer.
    """
    there = await asyncio.to_thread(_topics, settings)
    found = []
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        for name in _names(settings, there):
            changelog, forward = (
                wire_names.changelog_topic(settings.app.id, name),
                wire_names.forward_topic(settings.app.id, name),
            )
            own = [topic for topic in (changelog, forward) if topic in there]
            meta = None
            with contextlib.suppress(GroupAuthorizationFailedError, TopicAuthorizationFailedError):
                meta = await _meta(cluster, changelog, there)
            if forward not in own and not _has_one_lane(settings, name, meta):
                continue
            inputs: dict[str, int | None] = {}
            with contextlib.suppress(GroupAuthorizationFailedError, TopicAuthorizationFailedError):
                for topic in _inputs(meta, there):
                    inputs[topic] = None
                    inputs[topic] = await _unprocessed(cluster, topic, there[topic])
            readers = "".join(
                f"Address {address.name} reads {address.input_topic}, which no program writes now. "
                for address in settings.addresses
                if address.input_topic == wire_names.accepted_topic(name)
            )
            renamed = next((item.name for item in settings.addresses if item.input_topic in inputs), "")
            found.append(RemovedAddress(name, own, inputs, readers, renamed))
    return found


def _topics(settings: Settings) -> dict[str, int]:
    listed = AdminClient(confluent_options(settings.kafka)).list_topics(timeout=ANSWER_LIMIT_S)
    return {name: len(topic.partitions) for name, topic in listed.topics.items()}


def _names(settings: Settings, there: Collection[str]) -> list[str]:
    """Return names of possible addresses with a changelog that are not configured."""
    begin, end = wire_names.changelog_topic(settings.app.id, "\0").split("\0")
    names = [name[len(begin) : -len(end)] for name in there if name.startswith(begin) and name.endswith(end)]
    known = {address.name for address in settings.addresses}
    return sorted(name for name in names if name and name not in known)


def _has_one_lane(settings: Settings, name: str, meta: Meta | None) -> bool:
    """Return whether the changelog is of this application's address, with one lane and no forward topic."""
    return meta is not None and (meta.app, meta.address, lanes_before(meta)) == (settings.app.id, name, 1)


async def _meta(cluster: Cluster, changelog: str, there: Mapping[str, int]) -> Meta | None:
    """Return the last record of the first lane that has one."""
    metas = await newest_metas(cluster, changelog, range(there[changelog]))
    return metas[min(metas)] if metas else None


def _inputs(meta: Meta | None, there: Collection[str]) -> list[str]:
    """Return the recorded input topic of an address, if it still exists."""
    topic = str(meta.rules.get("input_topic", "")) if meta is not None else ""
    return [topic] if topic in there else []


async def _unprocessed(cluster: Cluster, topic: str, partitions: int) -> int:
    """Return the number of offsets after the workers' offsets, including transaction markers."""
    count = 0
    for number in range(partitions):
        end, start = await asyncio.gather(
            cluster.offsets.stable_end(topic, number), cluster.offsets.log_start(topic, number)
        )
        committed = await cluster.groups.committed_offset(topic, number)
        count += max(0, end - (start if committed is None else max(start, committed)))
    return count
