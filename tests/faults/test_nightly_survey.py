"""The nightly job asks a broker that was just restarted: partitions have no leader, or another one than it knows."""

from pathlib import Path

import pytest

from app.embedded.broker import EmbeddedBroker
from reconcile.cluster.admin import Admin
from ringfence_kafka.config.settings import KafkaSettings
from tests.support import kafka

TOPIC = "survey"
PLACES = [(TOPIC, index) for index in range(4)]
RESTARTS = 4


@pytest.mark.long
def test_leaders_that_are_not_there_yet(tmp_path: Path) -> None:
    """Are waited for: the night needs not be run again."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        kafka.settle(broker.bootstrap_servers)
        kafka.create_topics(broker.bootstrap_servers, {TOPIC: (len(PLACES), {})})
        kafka.commit(broker.bootstrap_servers, "workers", TOPIC, 0)
        admin = Admin(KafkaSettings(bootstrap_servers=broker.bootstrap_servers), "workers")
        for number in range(RESTARTS):
            assert admin.high_watermarks(PLACES) == dict.fromkeys(PLACES, 0)
            assert admin.committed(PLACES[:1]) == {PLACES[0]: 0}
            (broker.kill if number % 2 else broker.stop)()
            broker.start()
        assert admin.high_watermarks(PLACES) == dict.fromkeys(PLACES, 0)
