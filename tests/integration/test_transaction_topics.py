"""Topics of other addresses that transactions have parts for: their faults stop only the addresses that need them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.batch.batch import FetchedBatch
from agents.topic_checks.addresses import AddressFaults
from agents.worker.lanes import Lanes
from app.commands.topics import topics
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from tests.support import kafka
from tests.support.lanes import NOW, Group, until


class Scene:
    """Three addresses, a lane each: transactions of the first have parts for the second, and the third is alone."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.settings = settings
        self.names = tuple(address.name for address in settings.addresses)
        self.transfers, self.payments, self.alone = self.names
        self.lanes = Lanes(settings, cluster, AddressFaults(settings, cluster))

    async def assign(self) -> None:
        app_id = self.settings.app.id
        inputs = {(topic, 0) for name in self.names for topic in (name, f"{app_id}-{name}-forward")}
        await self.lanes.assigned(inputs, Group())

    async def begin(self) -> None:
        await self.assign()
        for name in self.names:
            await self.until(name, "open")

    def state(self, name: str) -> tuple[str, str]:
        """State and reason, as ``/health`` shows them."""
        shown = self.lanes.health.report()[f"{name}-0"]
        return shown["state"], shown.get("reason", "")

    async def feed(self, bootstrap: str, record: kafka.Sent) -> None:
        """Send the first record of the first address, and wait until its lane has processed it."""
        (lane,) = [lane for lane in self.lanes.lanes if lane.name == f"{self.transfers}-0"]
        kafka.send(bootstrap, self.transfers, [record])
        batch = await lane.opening.read_again(FetchedBatch(self.transfers, 0, 0, 1, [], NOW))
        assert batch is not None
        await self.lanes.offer(batch)
        await until(lambda: lane.next == 1, lambda: str(self.lanes.health.report()))

    async def until(self, name: str, state: str) -> None:
        await until(lambda: self.state(name)[0] == state, lambda: str(self.lanes.health.report()))


@pytest.fixture
async def scene(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Topics as ``topics create`` makes them; refused lanes ask again at once."""
    monkeypatch.setattr("agents.lane.lane.REFUSED_AGAIN_S", 0.1)
    name = kafka.unique("targets")
    transfers, payments, alone = (f"{name}-{item}" for item in ("transfers", "payments", "alone"))
    settings = validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": name, "data_dir": str(tmp_path)},
            "addresses": [
                {"name": transfers, "partitions": 1, "transaction_addresses": [payments]},
                {"name": payments, "partitions": 1},
                {"name": alone, "partitions": 1},
            ],
        }
    )
    await topics.ensure(settings)
    async with Cluster(settings.kafka, name) as cluster:
        made = Scene(settings, cluster)
        try:
            await made.begin()
            yield made
        finally:
            await made.lanes.stop()


async def test_compacted_while_lanes_run(bootstrap: str, scene: Scene) -> None:
    """Open lanes stop before compaction takes a part; they report the finding of ``topics check``, and resume afterwards."""
    accepted = f"{scene.payments}.accepted"
    kafka.alter_topic(bootstrap, accepted, "cleanup.policy", "compact,delete")
    await scene.lanes.check_topics()
    for name in (scene.transfers, scene.payments):
        await scene.until(name, "refused")
    found = (await topics.examine(scene.settings)).by_address
    refused, alone = scene.state(scene.transfers), scene.state(scene.alone)
    kafka.alter_topic(bootstrap, accepted, "cleanup.policy", "delete")
    for name in (scene.transfers, scene.payments):
        await scene.until(name, "open")

    (fault,) = found[scene.transfers]
    assert refused == ("refused", fault)
    assert found[scene.payments] == [
        fault.removeprefix(f"transactions of {scene.transfers} have parts for {scene.payments}: ")
    ]
    assert (found[scene.alone], alone) == ([], ("open", ""))


async def test_missing_at_the_opening(bootstrap: str, scene: Scene) -> None:
    """Addresses that need a missing topic wait and report it; when it comes back, all resume by themselves."""
    accepted = f"{scene.payments}.accepted"
    await scene.lanes.assigned(set(), Group())
    kafka.delete_topics(bootstrap, [accepted])
    await scene.assign()
    for name in (scene.transfers, scene.payments):
        await scene.until(name, "retrying")
    await scene.until(scene.alone, "open")
    reason = scene.state(scene.transfers)[1]
    found = (await topics.examine(scene.settings)).by_address[scene.transfers]
    await topics.ensure(scene.settings)
    for name in scene.names:
        await scene.until(name, "open")

    assert found == [reason]
    assert reason.startswith(
        f"transactions of {scene.transfers} have parts for {scene.payments}: {accepted} ("
    )
    assert reason.endswith("run 'ringfence topics create'")


async def test_counts_outlive_their_lane(bootstrap: str, scene: Scene) -> None:
    """A worker's counts of transactions only grow, even when another worker takes the lane."""
    parts = {"parts": [{"address": scene.payments}, {"address": scene.payments}, {}]}
    await scene.feed(bootstrap, kafka.Sent(b"1", b"g", json.dumps(parts).encode(), (("_RF_TX", b"json/1"),)))
    here = (
        scene.lanes.totals.parts(scene.lanes.lanes),
        scene.lanes.totals.counts(scene.lanes.lanes)[scene.transfers]["transactions_accepted"],
    )
    await scene.lanes.assigned(
        {(scene.alone, 0), (f"{scene.settings.app.id}-{scene.alone}-forward", 0)}, Group()
    )
    gone = (
        scene.lanes.totals.parts(scene.lanes.lanes),
        scene.lanes.totals.counts(scene.lanes.lanes)[scene.transfers]["transactions_accepted"],
    )

    assert [lane.opening.address.name for lane in scene.lanes.lanes] == [scene.alone]
    assert here[0][scene.transfers] == {scene.payments: 2, scene.transfers: 1}
    assert here[1] == 1
    assert gone == here
