"""What a consumer says of its topics, also while it has nothing to do with them."""

from typing import cast

import pytest

from ringfence_client import topic_watch
from ringfence_client.topic_watch import TopicWatch
from ringfence_kafka.cluster import Cluster


def test_brokers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of which nothing was heard for too long is a fault, and none before."""
    watch = TopicWatch(cast("Cluster", None))  # asks nobody before it runs
    watch.tell("orders.accepted", lambda _: None)

    assert watch.faults == []

    monkeypatch.setattr(topic_watch, "SILENT_S", -1.0)

    assert watch.faults == ["orders.accepted: no answer of the brokers for 0 s: they are away"]
