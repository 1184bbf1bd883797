"""The folder of a lane's RocksDB goes away under an open lane."""

import shutil
from pathlib import Path

from agents.lane.lane import LaneState
from tests.support.kafka import Sent
from tests.support.lanes import Group, bench, until

BATCH = 5_000
BATCHES = 10
"""More than RocksDB keeps before it opens another file."""


async def test_folder_deleted_under_an_open_lane(bootstrap: str, tmp_path: Path) -> None:
    """RocksDB is a cache: where it can no longer be written it is built anew, and the lane goes on, exact."""
    long = b"x" * 240
    async with bench(bootstrap, tmp_path, id_cache_size=BATCH * BATCHES) as lanes:
        lane = await lanes.opened()
        shutil.rmtree(tmp_path / "one")
        for begin in range(0, BATCH * BATCHES, BATCH):
            lanes.send(*(Sent(long + b"%d" % index, b"g", b"") for index in range(begin, begin + BATCH)))
            await lanes.feed(lane, begin, begin + BATCH)
        retries = lane.counts["retries"]
        lanes.send(Sent(long + b"0", b"g"))
        await lanes.feed(lane, BATCH * BATCHES, BATCH * BATCHES + 1)
        await lane.close()
        lane.start(Group())
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")

        assert retries
        assert lane.counts["duplicates"] == 1
        assert [item.id for item in lanes.output()] == [
            long + b"%d" % index for index in range(BATCH * BATCHES)
        ]
        assert len(lane.opening.table.ring) == BATCH * BATCHES
