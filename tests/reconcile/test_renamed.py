"""An address that got another name and kept its topics: what was handed on under the former one is taken up."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from reconcile import job
from reconcile.run.history.history import RunHistory
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import validate
from tests.support import kafka
from tests.support.reconcile.planted import World


class Renaming:
    """Runs over one world, whose address is called this or that."""

    def __init__(self, spark: SparkSession, world: World) -> None:
        self.spark, self.world = spark, world

    @property
    def nights(self) -> RunHistory:
        return RunHistory.load(LocalFiles(self.world.settings.reconcile.state_dir))

    def night(self, called: str) -> tuple[dict[str, Any], dict[str, int]]:
        """Of the address, what one run counts and finds."""
        topic = self.world.names["a"]
        kept = {
            "input_topic": topic,
            "accepted_topic": f"{topic}.accepted",
            "quarantine_topic": f"{topic}.quarantine",
        }
        document = {**self.world.document, "addresses": [{"name": called, "partitions": 2, **kept}]}
        settings = validate(document)
        found = job.judge(self.spark, settings, self.nights, job.surveyed(settings), None)
        address: dict[str, Any] = found["addresses"][called]
        return address, {item: n for item, n in address["anomalies"].items() if n}


@pytest.mark.long
def test_an_address_that_was_renamed(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Nothing that was accepted is LOST, what nobody consumes any more is named, and its new rings promise nothing of before."""
    world = World(broker.bootstrap_servers, tmp_path, {"a": {}})
    renaming, former = Renaming(spark, world), world.names["a"]
    name = f"{world.app_id}-b"
    kafka.create_topics(broker.bootstrap_servers, {f"{world.app_id}-{name}-forward": (2, {})})
    waiting = world.arrive("a", b"waiting", b"w")
    world.accept(world.arrive("a", b"known"))
    world.forward(waiting, 1)
    world.commit(forward=0)
    ahead = world.arrive("a", b"ahead")
    world.accept(ahead)
    world.flush()
    found, anomalies = renaming.night(former)
    assert (found["accepted"], found["in_flight"], anomalies) == (1, 2, {})
    # Workers went on for a while; then they were stopped, and what they had forwarded last is in nobody's topic.
    world.accept(waiting)
    world.arrive("a", b"known")
    world.forward(world.arrive("a", b"left", b"l"), 1)
    world.commit()
    found, anomalies = renaming.night(name)
    assert (found["input"], found["accepted"], found["duplicates"]) == (4, 2, 1)
    assert anomalies == {"GAP": 1}
    # Its rings were new: they knew neither what was accepted before that run, nor in it.
    assert renaming.nights.acknowledge() is not None
    world.accept(world.arrive("a", b"known"), world.arrive("a", b"ahead"))
    world.commit()
    assert renaming.night(name)[1] == {"OVERRUN": 1}
