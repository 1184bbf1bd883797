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
    admin = AdminClient(confluent_options(settings.kafka))
    listed = (await asyncio.to_thread(admin.list_topics, timeout=ANSWER_LIMIT_S)).topics
    there = {name: len(topic.partitions) for name, topic in listed.items()}
    found = []
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        for name in _names(settings, there):
            changelog = wire_names.changelog_topic(settings.app.id, name)
            forward = wire_names.forward_topic(settings.app.id, name)
            meta = None
            with contextlib.suppress(GroupAuthorizationFailedError, TopicAuthorizationFailedError):
                metas = await newest_metas(cluster, changelog, range(there[changelog]))
                meta = metas[min(metas)] if metas else None
            recorded = (meta.app, meta.address, lanes_before(meta)) if meta is not None else None
            if forward not in there and recorded != (settings.app.id, name, 1):
                continue  # an address has a forward topic, unless it has one lane
            inputs: dict[str, int | None] = {}
            topic = str(meta.rules.get("input_topic", "")) if meta is not None else ""
            if topic in there:
                inputs[topic] = None
                with contextlib.suppress(GroupAuthorizationFailedError, TopicAuthorizationFailedError):
                    inputs[topic] = await _unprocessed(cluster, topic, there[topic])
            readers = "".join(
                f"Address {address.name} reads {address.input_topic}, which no program writes now. "
                for address in settings.addresses
                if address.input_topic == wire_names.accepted_topic(name)
            )
            renamed = next((item.name for item in settings.addresses if item.input_topic in inputs), "")
            own = [topic for topic in (changelog, forward) if topic in there]
            found.append(RemovedAddress(name, own, inputs, readers, renamed))
    return found


def _names(settings: Settings, there: Collection[str]) -> list[str]:
    """Return names of possible addresses with a changelog that are not configured."""
    begin, end = wire_names.changelog_topic(settings.app.id, "\0").split("\0")
    names = [name[len(begin) : -len(end)] for name in there if name.startswith(begin) and name.endswith(end)]
    known = {address.name for address in settings.addresses}
    return sorted(name for name in names if name and name not in known)


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
