"""Destinations of sends, and sends that are refused before they enter a transaction."""

import time
from typing import Any
from zlib import crc32

import pytest
from aiokafka.partitioner import murmur2

from ringfence_client.handlers.effects import Origin
from ringfence_client.handlers.message import Message
from ringfence_client.sends import destinations as module
from ringfence_client.sends import target_topics
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.outbox import OutgoingRecord
from ringfence_client.sends.target_topics import HiddenTopicError, SendError
from ringfence_client.testing import message
from ringfence_kafka.admin.topics import Described, TopicDescription
from ringfence_kafka.config.load import validate
from tests.support.cluster_double import ClusterDouble

SETTINGS = validate(
    {
        "app": {"id": "shop"},
        "addresses": [
            {"name": "orders"},
            {"name": "ledger", "duplicate_id_headers": ["id"]},
            {"name": "events", "duplicate_id_from": ["header:ce_source", "header:ce_id"]},
            {"name": "named", "duplicate_id_from": "header:id"},
            {"name": "keyed", "duplicate_id_from": "key"},
            {"name": "crc", "partitioner": "crc32"},
        ],
    }
)


class _Cluster(ClusterDouble):
    def __init__(self, **config: str) -> None:
        names = ("ledger", "events", "named", "keyed", "crc", "plain", "orders")
        self.there = {name: TopicDescription(name, 4, config) for name in names}
        self.refused: frozenset[str] = frozenset()
        self.looks = 0
        self.silent: set[tuple[str, int]] = set()

    async def known_ends(self, partitions: Any, _limit_s: float) -> dict[Any, int]:
        return dict.fromkeys(set(partitions) - self.silent, 1)

    async def describe(self, names: Any) -> Described:
        self.looks += 1
        return Described({name: self.there[name] for name in names if name in self.there}, self.refused)


def _destinations(cluster: Any) -> Destinations:
    return Destinations(SETTINGS, SETTINGS.addresses[0], "billing", cluster)


def _sending(topic: str = "plain", group: bytes | None = b"group", **given: Any) -> Message:
    origin = message("5", group=group)
    origin.send(topic, **{"value": b"v", **given})
    return origin


async def _placed(cluster: _Cluster, origin: Message) -> OutgoingRecord:
    (record,) = await _destinations(cluster).resolve(origin.effects)
    return record


async def test_partitions() -> None:
    """A send goes to the partition that Kafka's clients choose for the key, or else for the group."""
    for key, topic, expected in (
        (b"k1", "plain", (murmur2(b"k1") & 0x7FFFFFFF) % 4),
        (None, "plain", (murmur2(b"group") & 0x7FFFFFFF) % 4),
        (b"k1", "crc", crc32(b"k1") % 4),
    ):
        record = await _placed(_Cluster(), _sending(topic, key=key))
        assert record.partition == expected
    assert (await _placed(_Cluster(), _sending(group=None, partition=3))).partition == 3


async def test_duplicate_ids() -> None:
    """A send to an address that detects by one header gets an ID. An ID or a header that the handler gives takes precedence."""
    for topic, given, expected in (
        ("ledger", {}, [("id", b"shop:billing:test/0/0:847ecec6:1")]),
        ("ledger", {"duplicate_id": "mine"}, [("id", b"mine")]),
        ("ledger", {"headers": {"id": "mine"}}, [("id", b"mine")]),
        ("ledger", {"headers": {"id": "other"}, "duplicate_id": "mine"}, [("id", b"mine")]),
        ("named", {}, [("id", b"shop:billing:test/0/0:847ecec6:1")]),
        ("events", {"headers": {"ce_id": "1"}}, [("ce_id", b"1")]),
        ("keyed", {}, []),
        ("plain", {}, []),
        ("plain", {"duplicate_id": "mine"}, [("_AMQ_DUPL_ID", b"mine")]),
    ):
        record = await _placed(_Cluster(), _sending(topic, **given))
        assert record.headers == expected, (topic, given)


def test_ids_are_bounded_and_distinct() -> None:
    """A digest replaces a long ID. Parts, numbers and messages of a recreated topic have different IDs."""
    found = _destinations(_Cluster())
    ids = {
        found.duplicate_id(Origin(source, b"group", 1, *content), number)
        for source in ("orders/0/1", "orders/0/1#1", "orders/0/1#2", "orders/0/11", "x" * 200, "x" * 201)
        for content in ((1, b"v"), (2, b"v"), (1, b"w"))
        for number in (1, 2, 11)
    }

    assert len(ids) == 54
    assert max(map(len, ids)) <= module.ID_BYTES_MAX


@pytest.mark.parametrize(
    ("topic", "given", "text"),
    [
        ("nowhere", {}, "nowhere does not exist, so nothing is sent: create it"),
        ("plain", {"partition": 4}, "partition 4 of plain, which has 4"),
        ("plain", {"timestamp": 1}, "message.timestamp.before.max.ms=1000"),
        ("plain", {"value": b"v" * 5_000}, "record of about 5100 bytes, and the topic takes 4096"),
        ("compacted", {}, "send 2 to compacted has no key"),
        ("orders.accepted", {}, "the accepted topic of address 'orders', which only Ringfence writes"),
        ("shop-progress", {}, "which only Ringfence writes"),
        ("shop-billing-orders.accepted-state", {}, "the state of this consumer group"),
        ("shop-audit-orders.accepted-state", {}, "the state of a consumer group, which only Ringfence"),
    ],
)
async def test_refused_before_the_transaction(topic: str, given: dict[str, Any], text: str) -> None:
    """A refused send fails its own message, and none that shares the transaction."""
    cluster = _Cluster(**{"message.timestamp.before.max.ms": "1000", "max.message.bytes": "4096"})
    cluster.there["compacted"] = TopicDescription("compacted", 4, {"cleanup.policy": "compact"})
    origin = _sending("compacted", key=b"k")
    assert await _placed(cluster, origin)
    origin.send(topic, **{"value": b"v", **given})

    with pytest.raises(SendError, match=text):
        await _destinations(cluster).resolve(origin.effects)


async def test_a_known_state_topic() -> None:
    """A state topic that is known already still takes no sends of handlers."""
    destinations = _destinations(cluster := _Cluster())
    topic = destinations.state_topic
    cluster.there[topic] = TopicDescription(topic, 4, {"cleanup.policy": "compact"})
    origin = _sending()
    await destinations.resolve(origin.effects)
    assert await destinations.state_partitions(create=False) == 4
    origin.send(destinations.state_topic, b"1000", key=b"group")

    assert destinations.resolve_at_once(origin.effects) is None
    with pytest.raises(SendError, match="which only Ringfence writes"):
        await destinations.resolve(origin.effects)


async def test_a_topic_that_may_not_be_seen() -> None:
    """A state topic that may not be seen may exist, so it differs from a missing one."""
    cluster = _Cluster()
    found = _destinations(cluster)
    assert await found.state_partitions(create=False) == 0
    cluster.refused = frozenset({found.state_topic})
    with pytest.raises(HiddenTopicError, match="may not describe"):
        await found.state_partitions(create=False)


async def test_a_refusal_has_the_topic_looked_at_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first time it may have been made smaller. The second time nothing is sent to it for a while."""
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    cluster = _Cluster()
    found = _destinations(cluster)
    origin = _sending()

    await found.resolve(origin.effects)
    assert found.resolve_at_once(origin.effects) is not None
    found.topics.refuse(["plain"], "too large")
    assert found.resolve_at_once(origin.effects) is None
    await found.resolve(origin.effects)
    assert cluster.looks == 2
    found.topics.refuse(["plain"], "too large")
    with pytest.raises(SendError, match=r"refused the last writes.*too large"):
        await found.resolve(origin.effects)
    now += target_topics.REFUSED_S + 1
    assert await found.resolve(origin.effects)
    await found.topics.stop()


async def test_topics_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are looked up again, since they may get more partitions. Nobody waits for the second look-up."""
    begun = time.monotonic()
    now = begun
    monkeypatch.setattr(time, "monotonic", lambda: now)
    cluster = _Cluster()
    found = _destinations(cluster)
    origin = _sending()
    await found.resolve(origin.effects)
    now += target_topics.FRESH_S + 1
    cluster.there["plain"] = TopicDescription("plain", 400, {})
    assert found.resolve_at_once(origin.effects) is None
    (before,) = await found.resolve(origin.effects)
    (looking,) = found.topics._refreshing
    await looking
    (after,) = await found.resolve(origin.effects)

    assert before.partition == (murmur2(b"group") & 0x7FFFFFFF) % 4
    assert after.partition == (murmur2(b"group") & 0x7FFFFFFF) % 400
    await found.topics.stop()


async def test_a_partition_without_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends to it fail, those to others do not, until it answers again. An outage of everything is nobody's fault."""
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    cluster = _Cluster()
    found = _destinations(cluster)
    own = ("shop-progress", 0)
    cluster.silent = {("plain", 2)}
    assert await found.topics.unanswered([("plain", 1), ("plain", 2)], own) == {("plain", 2)}
    cluster.silent.add(own)
    assert await found.topics.unanswered([("plain", 1), ("plain", 2)], own) == set()

    found.topics.avoid([("plain", 2)])
    sick, healthy = _sending(partition=2), _sending(partition=1)
    assert await found.resolve(healthy.effects)
    for _ in range(3):
        with pytest.raises(SendError, match="plain/2 has no leader"):
            await found.resolve(sick.effects)
        now += target_topics.AVOIDED_S + 1
    cluster.silent.clear()
    assert await found.resolve(sick.effects)
    assert await found.resolve(healthy.effects)
    assert found.resolve_at_once(sick.effects) is not None
    await found.topics.stop()
