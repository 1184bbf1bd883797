"""A lane that fails, or is taken over, in the middle of what a bridge brings: nothing is lost, nothing comes twice."""

from pathlib import Path

import pytest

from ringfence_kafka.process import failpoints
from ringfence_kafka.protocol.hop import Hop, Source, encode
from tests.integration.test_lane_transactions import FailAt
from tests.support.kafka import Sent
from tests.support.lanes import Bench, Gate, Group, bench

SOURCE = Source("to-paris", "AbC_-67890123456789012", 3)


def _crossed(step: int, confirmed: int = 0) -> Sent:
    headers = (
        ("_RF_BRIDGE_DUPL_ID", encode(Hop(SOURCE, step))),
        ("_RF_BRIDGE_CONFIRMED", b"%d" % confirmed),
    )
    return Sent(None, b"g", b"%d" % step, headers)


def _send(lanes: Bench) -> int:
    """Three batches of four: steps, the same again with two more, and late ones; returns where the input ends."""
    lanes.send(*(_crossed(number) for number in (0, 1, 2, 3)))
    lanes.send(*(_crossed(number, 2) for number in (2, 3, 4, 5)))
    lanes.send(*(_crossed(number) for number in (0, 5, 1, 4)), _crossed(6, 6))
    return 13


def _values(lanes: Bench) -> list[bytes | None]:
    return [item.value for item in lanes.output()]


DUE = [b"%d" % index for index in range(7)]


@pytest.mark.parametrize("point", ["before-commit", "after-commit", "before-store", "after-store"])
async def test_failure_at_any_point(bootstrap: str, tmp_path: Path, point: str) -> None:
    """What was not committed is no duplicate of itself; what was is known, also where RocksDB never heard of it."""
    async with bench(bootstrap, tmp_path) as lanes:
        end = _send(lanes)
        lane = await lanes.opened()
        fail = FailAt(1, 3)
        remove = failpoints.install(point, f"{lanes.name}-0", fail)
        try:
            for first, last in ((0, 4), (4, 8), (8, end)):
                await lanes.feed(lane, first, last)
        finally:
            remove()

        assert lane.counts["retries"] == 2
        assert _values(lanes) == DUE
        ((way, held),) = lane.opening.table.hops.ways.items()
        assert (way.source, way.arrived, held.floor, list(held.above)) == (SOURCE, 0, 6, [6])


async def test_taken_over(bootstrap: str, tmp_path: Path) -> None:
    """Another worker takes the lane while a batch is on its way: it knows what was committed, and nothing else."""
    async with bench(bootstrap, tmp_path) as lanes:
        end = _send(lanes)
        group, gate = Group(), Gate()
        first = await lanes.opened(group=group)
        await lanes.feed(first, 0, 4)
        remove = failpoints.install("before-commit", f"{lanes.name}-0", gate)
        try:
            await first.offer(await lanes.fetch(4, 8))
            await gate.wait()
        finally:
            remove()
        heir = await lanes.opened("two")
        group.member = False
        gate.open()
        await lanes.feed(heir, 4, end)

        assert _values(lanes) == DUE
        assert heir.counts["bridge_duplicates"] == 6
