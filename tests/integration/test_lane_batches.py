"""Batches that are too large: for a transaction's time, for its parts, or for memory."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ringfence_kafka.errors import TopicError
from ringfence_kafka.producer.transactional import Outgoing, TransactionalProducer
from tests.support import kafka
from tests.support.bridges.processes import BridgeProcess, table
from tests.support.consumers.processes import ConsumerProcess
from tests.support.lanes import Bench, bench, ids, planted, until
from tests.support.records.envelopes import envelope, part
from tests.support.records.unusual import large_batch, send_batch
from tests.support.worker import RingfenceProcess, configure, wait_for, worker

COUNT = 200
AT_ONCE = 30
"""Records that fit into a transaction's time; more would take longer."""
POISON = 77

transact = TransactionalProducer.transact


def _failing(monkeypatch: pytest.MonkeyPatch, check: Callable[[Sequence[Outgoing], int], None]) -> list[int]:
    """Call ``check`` with each transaction's batches and its end in the input; return the ends of those that pass."""
    passed: list[int] = []

    async def checked(
        self: TransactionalProducer, batches: Sequence[Outgoing], offsets: Mapping[Any, int], *rest: Any
    ) -> list[int]:
        (end,) = offsets.values()
        check(batches, end)
        passed.append(end)
        return await transact(self, batches, offsets, *rest)

    monkeypatch.setattr(TransactionalProducer, "transact", checked)
    return passed


def _exact(lanes: Bench, end: int) -> bool:
    return lanes.accepted_ids() == [b"%d" % index for index in range(end)]


async def test_too_much_for_its_time(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All records pass, in parts, through a cluster that is slow, or that allows this user little."""

    def too_many(batches: Sequence[Outgoing], end: int) -> None:
        if (
            sum(batch.builder.record_count() for batch in batches if batch.topic.endswith(".accepted"))
            > AT_ONCE
        ):
            raise TimeoutError("planted")

    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, COUNT))
        lane = await lanes.opened()
        passed = _failing(monkeypatch, too_many)
        await lanes.feed(lane, 0, COUNT)

        assert _exact(lanes, COUNT)
        assert len(passed) >= COUNT / AT_ONCE
        assert lanes.committed() == COUNT


async def test_what_stands_before_it_flows(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lane names the place of one record that fails in every attempt, and only records behind it wait."""
    caplog.set_level("INFO", "ringfence.lane")

    def poisoned(batches: Sequence[Outgoing], end: int) -> None:
        if end > POISON:
            raise TopicError("planted")

    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, COUNT))
        lane = await lanes.opened()
        with monkeypatch.context() as patch:
            _failing(patch, poisoned)
            await lane.offer(await lanes.fetch(0, COUNT))
            await until(lambda: lane.next == POISON, lambda: f"next is {lane.next}")
            await until(
                lambda: f"{lanes.name}/0 offset {POISON}: at most 1 records a transaction" in caplog.text,
                lambda: caplog.text,
            )
            assert _exact(lanes, POISON)
        await until(lambda: lane.next == COUNT, lambda: f"next is {lane.next}, {lane.state}: {lane.reason}")

        assert _exact(lanes, COUNT)


PARTS_MAX = 12
ENVELOPES, PARTS = 10, 5
"""Five Kafka transactions of two envelopes each."""


@pytest.fixture
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.decision.decide.BATCH_PARTS_MAX", PARTS_MAX)


def _send(lanes: Bench) -> list[bytes]:
    """Send envelopes, and a plain message behind them; return the due output."""
    lanes.send(
        *(
            envelope(
                *(part(None, "group", f"{number}.{index}") for index in range(PARTS)),
                key=b"group",
                known=b"%d" % number,
            )
            for number in range(ENVELOPES)
        ),
        *(
            envelope(part(None, "group", "again"), key=b"group", known=b"%d" % number)
            for number in range(ENVELOPES)
        ),
        kafka.Sent(None, b"group", b"behind"),
    )
    return [b"%d.%d" % (number, index) for number in range(ENVELOPES) for index in range(PARTS)] + [b"behind"]


class FailAt:
    """Fail point that raises at these counts of its calls, where 1 is the first."""

    def __init__(self, *times: int) -> None:
        self.reached = 0
        self._times = times

    async def __call__(self, point: str, lane: str) -> None:
        self.reached += 1
        if self.reached in self._times:
            raise OSError(f"planted at {point}")


@pytest.mark.usefixtures("few_parts")
@pytest.mark.parametrize(
    "point", ["after-fetch", "mid-send", "before-commit", "after-commit", "before-store", "after-store"]
)
async def test_failed_between_the_cuts(bootstrap: str, tmp_path: Path, point: str) -> None:
    """The rest of a batch is kept, and runs before the batch behind it: exact, after two failures at any point."""
    async with bench(bootstrap, tmp_path) as lanes:
        due = _send(lanes)
        end = 2 * ENVELOPES + 1
        lane = await lanes.opened()
        fail = FailAt(2, 5)
        with planted(point, f"{lanes.name}-0", fail):
            await lane.offer(await lanes.fetch(0, ENVELOPES))
            await lane.offer(await lanes.fetch(ENVELOPES, end))
            await until(lambda: lane.next == end, lambda: f"next {lane.next}, {lane.state}: {lane.reason}")

        assert fail.reached > ENVELOPES // 2  # as many Kafka transactions at the least
        assert lane.counts["retries"] == 2
        assert [item.value for item in lanes.output()] == due
        assert lanes.committed() == end


MIB = 2**20
COUNT, SIZE = 200, 900_000
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
    forwarding = BridgeProcess(config, f"{name}-bridge")
    consumer = ConsumerProcess(config, f"{name}-consumer", name, f"{name}-group")
    with worker(config, "w") as process:
        try:
            forwarding.start()
            consumer.start()
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
        finally:
            consumer.destroy()
            forwarding.destroy()

    assert max(peaks.values()) < PEAK_BYTES_MAX, peaks
    assert {json.loads(item.value or b"")["bytes"] for item in refused} == {OVERSIZED}
    assert all(b"is not read completely" in (dict(item.headers)["_RF_REASON"] or b"") for item in refused)
