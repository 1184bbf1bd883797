"""Starts of workers and consumers: a broker that goes away, and a state folder that is lost."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from agents.lane.lane import LaneState
from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.kafka import Sent
from tests.support.lanes import Group, bench, until
from tests.support.worker import configure, wait_for

PROGRAM: Final = """
import sys
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError
from app.cli import main
first, last = int(sys.argv.pop(1)), int(sys.argv.pop(1))
starts, whole = 0, AIOKafkaConsumer.start
async def start(self):
    global starts
    starts += 1
    if first <= starts <= last:
        raise KafkaConnectionError("away")
    await whole(self)
AIOKafkaConsumer.start = start
main()
"""
"""A worker whose consumers cannot connect, from one to another: the first is of its questions, the second of the cluster, the third of the group."""
LIMIT_S: Final = 30.0


@pytest.mark.parametrize(
    ("first", "last"), [(2, 3), pytest.param(3, 4, marks=pytest.mark.long)], ids=["cluster", "group"]
)
def test_the_broker_comes_back(bootstrap: str, tmp_path: Path, first: int, last: int) -> None:
    name, log = kafka.unique("start"), tmp_path / "log"
    config = configure(tmp_path, bootstrap, f"{name}-app", [{"name": name, "partitions": 2}])
    command = [sys.executable, "-c", PROGRAM, str(first), str(last), "worker"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--config", str(config), "--web-port", "0"], cwd=ROOT, stdout=output, stderr=output
        )
    try:
        wait_for(lambda: "ready: 2 lanes open" in log.read_text(), log.read_text)
        process.terminate()
        code, said = process.wait(LIMIT_S), log.read_text()
    finally:
        process.kill()
        process.wait()

    assert code == 0, said
    assert said.count("became unreachable while this worker started") == 1
    assert "Traceback" not in said


BATCH = 5_000
BATCHES = 10
"""Bytes beyond those that RocksDB keeps before it opens another file."""


async def test_folder_deleted_under_an_open_lane(bootstrap: str, tmp_path: Path) -> None:
    """RocksDB is a cache: a lane builds it again when it can no longer be written, and continues, exact."""
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
