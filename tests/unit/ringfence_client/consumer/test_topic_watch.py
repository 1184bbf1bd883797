"""A consumer's answers about its topics, also while it does nothing with them."""

import asyncio
from typing import cast

import pytest
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError

from ringfence_client.consumer import topic_watch
from ringfence_client.consumer.topic_watch import TopicWatch
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topic_ids import TopicIdentity
from tests.support.cluster_double import ClusterDouble


def test_brokers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of which nothing was heard for too long is a fault, and none before."""
    watch = TopicWatch(cast("Cluster", None))  # asks nobody before it runs
    watch.observe("orders.accepted", lambda _: None)

    assert watch.faults == []

    monkeypatch.setattr(topic_watch, "SILENT_S", -1.0)

    assert watch.faults == ["orders.accepted: no answer of the brokers for 0 s: they are away"]


async def test_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question about a topic pauses after each failure, although each asks to hurry, and ends when an answer is possible."""
    asked = 0
    away = True
    told: list[TopicIdentity | None] = []
    there = asyncio.Event()

    class _Cluster(ClusterDouble):
        async def identity(self, topic: str) -> TopicIdentity:
            nonlocal asked
            asked += 1
            if away:
                watch.hurry()
                raise KafkaConnectionError(topic)
            there.set()
            return TopicIdentity("A", 1)

    watch = TopicWatch(cast("Cluster", _Cluster()))
    watch.observe("orders.accepted", told.append)
    monkeypatch.setattr(topic_watch, "UNTOLD_S", 0.05)
    monkeypatch.setattr(topic_watch, "LOOK_S", 60.0)
    looking = asyncio.create_task(watch.run_until_cancelled())
    await asyncio.sleep(0.5)

    assert 0 < asked <= 11
    assert told == [], "a doubt is not settled by nobody"
    away = False
    await asyncio.wait_for(there.wait(), 10)
    looking.cancel()


async def test_a_right_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing permission ends the wait with an unknown topic, because no answer would ever come."""
    told: asyncio.Queue[TopicIdentity | None] = asyncio.Queue()

    class _Cluster(ClusterDouble):
        async def identity(self, topic: str) -> TopicIdentity:
            raise TopicAuthorizationFailedError(topic)

    watch = TopicWatch(cast("Cluster", _Cluster()))
    watch.observe("orders.accepted", told.put_nowait)
    looking = asyncio.create_task(watch.run_until_cancelled())

    assert await asyncio.wait_for(told.get(), 10) is None
    looking.cancel()
