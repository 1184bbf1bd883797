"""Kafka's own IDs of topics, read from a real broker."""

import asyncio

from aiokafka.errors import UnknownTopicOrPartitionError
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topic_ids import TopicIdentity
from ringfence_kafka.config.settings import KafkaSettings
from tests.support import kafka


async def test_as_librdkafka_has_them(broker: EmbeddedBroker) -> None:
    """Topic IDs equal librdkafka's to the character: leases and commit metadata of bridges keep them.

    A missing name disturbs no other one, and is not made by asking.
    """
    servers = broker.bootstrap_servers
    names = [kafka.unique("identity") for _ in range(20)]
    kafka.create_topics(servers, {name: (number % 5 + 1, {}) for number, name in enumerate(names)})
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_topics(TopicCollection(names))
    theirs = [
        TopicIdentity(str(item.topic_id), len(item.partitions))
        for item in (described[name].result() for name in names)
    ]
    gone = kafka.unique("identity")

    async with Cluster(KafkaSettings(bootstrap_servers=servers), "identities") as cluster:
        *found, missing = await asyncio.gather(
            *map(cluster.topics.identity, [*names, gone]), return_exceptions=True
        )

    assert found == theirs
    assert len({their.topic_id for their in theirs}) == len(names)
    assert isinstance(missing, UnknownTopicOrPartitionError)
    assert gone not in kafka.topics(servers)
