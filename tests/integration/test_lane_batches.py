"""Batches that are too large: one record fails in each attempt, or memory would not suffice."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ringfence_kafka.errors import TopicError
from ringfence_kafka.producer.transactional import TransactionalProducer
from tests.support import kafka
from tests.support.bridges.processes import BridgeProcess
from tests.support.consumers.processes import ConsumerProcess
from tests.support.lanes import bench, ids, until
from tests.support.records.unusual import large_batch, send_batch
from tests.support.worker import RingfenceProcess, configure, table, wait_for, worker

COUNT = 200
POISON = 77


async def test_what_stands_before_it_flows(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lane names the place of one record that fails in every attempt, and only records behind it wait."""
    caplog.set_level("INFO", "ringfence.lane")
    transact = TransactionalProducer.transact

    async def poisoned(self: Any, batches: Any, offsets: Mapping[Any, int], *rest: Any) -> list[int]:
        if max(offsets.values()) > POISON:
            raise TopicError("planted")
        return await transact(self, batches, offsets, *rest)

    def exact(end: int) -> bool:
        return lanes.accepted_ids() == [b"%d" % index for index in range(end)]

    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, COUNT))
        lane = await lanes.opened()
        with monkeypatch.context() as patch:
            patch.setattr(TransactionalProducer, "transact", poisoned)
            await lane.offer(await lanes.fetch(0, COUNT))
            await until(lambda: lane.next == POISON, lambda: f"next is {lane.next}")
            place = f"{lanes.name}/0 offset {POISON}: at most 1 records a transaction"
            await until(lambda: place in caplog.text, lambda: caplog.text)
            assert exact(POISON)
        await until(lambda: lane.next == COUNT, lambda: f"next is {lane.next}, {lane.state}: {lane.reason}")

        assert exact(COUNT)


MIB = 2**20
SIZE = 900_000
OVERSIZED = 150_000_000
"""Bytes of a single record, which is 5 kB on the wire. Read whole, it takes 500 MB."""
PEAK_BYTES_MAX = 220 * MIB
"""Memory of a process with buffers of 128 MiB. Read at once, the batch alone takes twice its 172 MiB."""


def _peak(process: RingfenceProcess) -> int:
    """Return the largest resident size of a process, bytes."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)["VmHWM"].split()[0]) * 1024


@pytest.mark.long
def test_memory_stays_bounded(bootstrap: str, tmp_path: Path) -> None:
    """All records come once. One that is too large for memory goes to quarantine, with its size and digest.

    A second address continues meanwhile.
    """
    name = kafka.unique("large")
    source, beside = f"{name}-source", f"{name}-beside"
    config = configure(
        tmp_path, bootstrap, name, [{"name": name, "partitions": 1}, {"name": beside, "partitions": 1}]
    )
    bridge = {"name": f"{name}-bridge", "source_topic": source, "target_address": name}
    with config.open("a") as file:
        file.write(table("[[bridges]]", bridge) + table("[bridges.target]", {"bootstrap_servers": bootstrap}))
    kafka.create_topics(bootstrap, {source: (1, {})})
    with (
        worker(config, "w") as process,
        BridgeProcess(config, f"{name}-bridge") as forwarding,
        ConsumerProcess(config, f"{name}-consumer", name, f"{name}-group") as consumer,
    ):
        consumer.wait_ready()
        for topic, key in ((source, b"bridged"), (name, b"direct"), (f"{name}.accepted", b"planted")):
            asyncio.run(send_batch(bootstrap, topic, large_batch(COUNT, SIZE, key)))
        kafka.send(bootstrap, beside, [kafka.Sent(b"1", b"group", b"beside")])
        kafka.wait_count(bootstrap, f"{beside}.accepted", 1)
        wait_for(
            lambda: consumer.health()[1].get("counts", {}).get("finished") == 3 * COUNT,
            lambda: f"{process.health()}\n{consumer.health()}\n{forwarding.log()}",
        )
        for topic in (source, name):
            asyncio.run(send_batch(bootstrap, topic, large_batch(1, OVERSIZED, b"oversized")))
        refused = [
            kafka.wait_count(bootstrap, f"{item}.quarantine", 1)[0] for item in (name, f"{name}-bridge")
        ]
        peaks = {item.name: _peak(item) for item in (process, forwarding, consumer)}

    assert max(peaks.values()) < PEAK_BYTES_MAX, peaks
    assert {json.loads(item.value or b"")["bytes"] for item in refused} == {OVERSIZED}
    assert all(b"is not read completely" in (dict(item.headers)["_RF_REASON"] or b"") for item in refused)
