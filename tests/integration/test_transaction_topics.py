"""Topics of other addresses that transactions have parts for: their faults stop only the addresses that need them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.commands.topics import topics
from tests.support import kafka
from tests.support.address_lanes import AddressLanes, address_lanes
from tests.support.lanes import Group


@pytest.fixture
async def scene(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AddressLanes]:
    """Yield open lanes of three addresses: transactions of the first have parts for the second, and the third is alone."""
    monkeypatch.setattr("agents.lane.lane.REFUSED_AGAIN_S", 0.1)
    transfers, payments, alone = (kafka.unique(item) for item in ("transfers", "payments", "alone"))
    first = {"name": transfers, "transaction_addresses": [payments]}
    async with address_lanes(bootstrap, tmp_path, first, {"name": payments}, {"name": alone}) as made:
        await made.assign()
        await made.until_state("open", *made.names)
        yield made


async def test_compacted_while_lanes_run(bootstrap: str, scene: AddressLanes) -> None:
    """Open lanes stop before compaction takes a part; they report the finding of ``topics check``, and resume afterwards."""
    transfers, payments, alone = scene.names
    accepted = f"{payments}.accepted"
    kafka.alter_topic(bootstrap, accepted, "cleanup.policy", "compact,delete")
    await scene.lanes.check_topics()
    await scene.until_state("refused", transfers, payments)
    found = (await topics.examine(scene.settings)).by_address
    refused, beside = scene.state(transfers), scene.state(alone)
    kafka.alter_topic(bootstrap, accepted, "cleanup.policy", "delete")
    await scene.until_state("open", transfers, payments)

    (fault,) = found[transfers]
    assert refused == ("refused", fault)
    assert found[payments] == [fault.removeprefix(f"transactions of {transfers} have parts for {payments}: ")]
    assert (found[alone], beside) == ([], ("open", ""))


async def test_missing_at_the_opening(bootstrap: str, scene: AddressLanes) -> None:
    """Addresses that need a missing topic wait and report it; when it comes back, all resume by themselves."""
    transfers, payments, alone = scene.names
    accepted = f"{payments}.accepted"
    await scene.lanes.assigned(set(), Group())
    kafka.delete_topics(bootstrap, [accepted])
    await scene.assign()
    await scene.until_state("retrying", transfers, payments)
    await scene.until_state("open", alone)
    reason = scene.state(transfers)[1]
    found = (await topics.examine(scene.settings)).by_address[transfers]
    await topics.ensure(scene.settings)
    await scene.until_state("open", *scene.names)

    assert found == [reason]
    assert reason.startswith(f"transactions of {transfers} have parts for {payments}: {accepted} (")
    assert reason.endswith("run 'ringfence topics create'")


async def test_counts_outlive_their_lane(bootstrap: str, scene: AddressLanes) -> None:
    """A worker's counts of transactions only grow, even when another worker takes the lane."""
    transfers, payments, alone = scene.names
    parts = {"parts": [{"address": payments}, {"address": payments}, {}]}
    await scene.feed(transfers, kafka.Sent(b"1", b"g", json.dumps(parts).encode(), (("_RF_TX", b"json/1"),)))

    def counted() -> tuple[dict[str, int], int]:
        return scene.lanes.parts()[transfers], scene.lanes.counts()[transfers]["transactions_accepted"]

    here = counted()
    await scene.assign(alone)

    assert [lane.opening.address.name for lane in scene.lanes.lanes] == [alone]
    assert here == ({payments: 2, transfers: 1}, 1)
    assert counted() == here
