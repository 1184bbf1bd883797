"""Lanes at work: no record is skipped, and state follows the commit."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from agents.lane.lane import LaneState
from ringfence_kafka.process import failpoints
from tables.rocksdb.store import Store
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import Gate, Group, bench, ids, planted, until
from tests.support.records.stored_batches import as_stored


class FailOnce:
    """Fail point that raises the first times it is reached."""

    def __init__(self, times: int = 1) -> None:
        self.left = times

    async def __call__(self, point: str, lane: str) -> None:
        if self.left:
            self.left -= 1
            raise OSError(f"planted at {point}")


class Reached:
    """Count of how often a point was reached."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, point: str, lane: str) -> None:
        self.count += 1


@pytest.mark.parametrize(
    "point",
    [
        "before-send",
        "before-commit",
        "after-commit",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("after-send", "before-store", "after-store")
        ),
    ],
)
async def test_failed_batch_is_kept(bootstrap: str, tmp_path: Path, point: str) -> None:
    """A batch whose transaction fails at any point runs again before the batches behind it."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10), *(Sent(None, b"group", b"%d" % index) for index in range(20)))
        group = Group()
        lane = await lanes.opened(group=group)
        fail = FailOnce(2)
        with planted(point, f"{lanes.name}-0", fail):
            for begin in (0, 10, 20):
                await lane.offer(await lanes.fetch(begin, begin + 10))
            await until(
                lambda: lane.next == 30 or len(group.rewinds[lanes.name]) > 3,
                lambda: f"next {lane.next}, {lane.state}: {lane.reason}",
            )

        assert len(group.rewinds[lanes.name]) == 3  # by the openings alone
        assert fail.left == 0
        assert [item.source for item in lanes.output()] == [f"{lanes.name}/0/{index}" for index in range(30)]
        assert lanes.committed() == 30


async def test_gap_is_refused(bootstrap: str, tmp_path: Path) -> None:
    """A batch that begins above the next offset is not processed; the lane asks for the missing records."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 30))
        group = Group()
        lane = await lanes.opened(group=group)
        await lanes.feed(lane, 0, 10)
        await lane.offer(await lanes.fetch(20, 30))
        rewinds = group.rewinds[lanes.name]
        await until(lambda: len(rewinds) > 1 or lane.next > 10, lambda: f"{lane.state}: {lane.reason}")
        assert lane.next == 10
        # Fetched before the rewind took effect: dropped, and not a reason to rewind again.
        await lane.offer(await lanes.fetch(25, 30, seek=1))
        await lane.offer(await lanes.fetch(10, 20, seek=2))
        await lane.offer(await lanes.fetch(20, 30, seek=2))
        await until(
            lambda: lane.next == 30 or len(rewinds) > 2,
            lambda: f"next {lane.next}, {lane.state}: {lane.reason}",
        )

        assert rewinds == [0, 10]
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 30)]


async def test_records_deleted_by_retention_are_a_gap(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lane reports and counts a GAP and continues if retention deleted the missing records."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 30))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        kafka.delete_before(bootstrap, lanes.name, 20)
        await lanes.feed(lane, 20, 30)

        assert lane.counts["gap_records"] == 10
        assert f"GAP: offsets 10 to 19 of {lanes.name}/0" in caplog.text
        assert lanes.accepted_ids() == [id_.id for id_ in [*ids(0, 10), *ids(20, 30)]]


async def test_what_was_processed_is_trimmed(bootstrap: str, tmp_path: Path) -> None:
    """A batch that begins below the next offset repeats nothing, also for records without an ID."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*(Sent(None, b"group", b"%d" % index) for index in range(20)))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        await lane.offer(await lanes.fetch(0, 10))
        await lanes.feed(lane, 5, 20)

        assert [item.value for item in lanes.output()] == [b"%d" % index for index in range(20)]


async def test_a_batch_is_one_transaction(bootstrap: str, tmp_path: Path) -> None:
    """Outputs, forwarded records, changelog and input offset of a batch are committed together, or not at all."""
    async with bench(bootstrap, tmp_path, partitions=2) as lanes:
        lanes.send(*(Sent(b"%d" % index, b"group-%d" % index) for index in range(20)))
        topics = (lanes.accepted, lanes.forward, lanes.changelog)
        lane = await lanes.opened()
        fail, reached = FailOnce(1_000), Reached()
        remove = failpoints.install("before-commit", f"{lanes.name}-0", fail)
        await lane.offer(await lanes.fetch(0, 20))
        await until(lambda: fail.left < 1_000, lambda: f"{lane.state}: {lane.reason}")
        await lane.close()
        remove()
        uncommitted = [len(kafka.read_all(bootstrap, topic, 2)) for topic in topics]
        offset = lanes.committed()
        remove = failpoints.install("before-commit", f"{lanes.name}-0", reached)
        lane.start(Group())
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        await lanes.feed(lane, 0, 20)
        remove()
        accepted, forwarded, changelog = (len(kafka.read_all(bootstrap, topic, 2)) for topic in topics)

        assert uncommitted == [0, 0, 0]
        assert offset < 0
        assert reached.count == 1
        assert accepted + forwarded == 20
        assert min(accepted, forwarded) > 0
        assert changelog == accepted + 1
        assert lanes.committed() == 20


@pytest.mark.usefixtures("transactions")
async def test_refused_record_stops_the_commit(bootstrap: str, tmp_path: Path) -> None:
    """Every send is awaited before the commit: a batch that the broker refuses takes its transaction along.

    aiokafka would commit all the same, and the refused batch would be missing. Here the topic's limit is lowered under an open lane. Opened
    again, the lane knows the limit and sends records that are too large to quarantine. Everything else flows in order.
    """
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 5), Sent(b"large", b"group", b"x" * 50_000), *ids(5, 10))
        lane = await lanes.opened()
        kafka.alter_topic(bootstrap, lanes.accepted, "max.message.bytes", "20000")
        await lanes.feed(lane, 0, 11)

        assert lane.counts["retries"] >= 1
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 10)]
        quarantined = kafka.read_all(bootstrap, f"{lanes.name}.quarantine", 1)
        assert [item.id for item in quarantined] == [b"large"]
        assert lanes.committed() == 11


async def test_state_follows_the_commit(bootstrap: str, tmp_path: Path) -> None:
    """Neither ring nor RocksDB has the batch before the commit: a crash there leaves no trace.

    A second process that opens the same folder looks at the leftovers of a crash.
    """
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10), *ids(10, 20))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        gate = Gate()
        remove = failpoints.install("before-commit", f"{lanes.name}-0", gate)
        await lane.offer(await lanes.fetch(10, 20))
        await gate.wait()
        store = Store(tmp_path / "one" / f"{lanes.name}-0", read_only=True)
        before = store.state()
        slots = len(list(store.slots()))
        store.close()
        remove()
        gate.open()
        await until(lambda: lane.next == 20, lambda: f"next {lane.next}")

        assert before is not None
        assert before.meta.head == 10
        assert slots == 10
        assert len(lanes.output()) == 20


async def test_crash_before_the_commit_rejects_nothing(bootstrap: str, tmp_path: Path) -> None:
    """A message whose transaction was never committed is accepted when it comes again, not called its own duplicate."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        former = await lanes.opened("disk")
        await lanes.held(former, "before-commit", 0, 10)
        former._task.cancel()  # type: ignore[union-attr]
        await former.dispose()
        lane = await lanes.opened("disk")
        await lanes.feed(lane, 0, 10)

        assert lane.counts["duplicates"] == 0
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 10)]


async def test_crash_after_the_commit_repeats_nothing(bootstrap: str, tmp_path: Path) -> None:
    """A committed batch that RocksDB never saw comes back from the changelog."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10), *ids(0, 10))
        former = await lanes.opened("disk")
        await lanes.held(former, "after-commit", 0, 10)
        former._task.cancel()  # type: ignore[union-attr]
        await former.dispose()
        lane = await lanes.opened("disk")

        assert lane.next == 10
        await lanes.feed(lane, 0, 20)
        assert lane.counts["duplicates"] == 10
        assert len(lanes.output()) == 10


async def test_closing_finishes_the_transaction(bootstrap: str, tmp_path: Path) -> None:
    """A lane that is closed in the middle of a batch commits it first, so that nobody has to repeat it."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        gate = await lanes.held(lane, "before-send", 0, 10)
        closing = asyncio.create_task(lane.close())
        await asyncio.sleep(0)
        gate.open()
        await closing

        assert lane.state is LaneState.CLOSED
        assert lanes.committed() == 10
        assert len(lanes.output()) == 10


async def test_what_came_while_closed_is_fetched_again(bootstrap: str, tmp_path: Path) -> None:
    """A batch between two openings is dropped, and its records come although nothing follows them."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 20))
        group = Group()
        lane = await lanes.opened(group=group)
        await lanes.feed(lane, 0, 10)
        await lane.close()
        await lane.offer(await lanes.fetch(10, 20))
        lane.start(group)
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")

        assert lane.next == 10
        assert group.rewinds == {lanes.name: [0, 10], lanes.forward: [0, 0]}


async def test_failed_batch_is_read_again(bootstrap: str, tmp_path: Path) -> None:
    """A lane reads the log again after a failure: a broker may have come back without its tail.

    The batch here was fetched in parts before and after: its middle comes from the lost log.
    """
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        batch = await lanes.fetch(0, 10)
        records: list[Any] = list(batch.records)
        records[3:7] = [as_stored(record)._replace(value=b"gone") for record in records[3:7]]
        mixed = dataclasses.replace(batch, records=records)
        with planted("before-commit", f"{lanes.name}-0", FailOnce()):
            await lane.offer(mixed)
            await until(lambda: lane.next == 10, lambda: f"next {lane.next}, {lane.state}: {lane.reason}")

        assert [item.value for item in lanes.output()] == [b"value"] * 10


async def test_input_that_lost_its_tail_stops_an_idle_lane(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane whose input lost its tail reports it and stops: new records at processed offsets would be dropped in silence."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        ends = lanes.cluster.offsets.high_watermark

        async def shorter(topic: str, partition: int) -> int:
            return 5 if topic == lanes.name else await ends(topic, partition)

        monkeypatch.setattr(lanes.cluster.offsets, "high_watermark", shorter)
        await lane.compare()
        await until(lambda: lane.state is LaneState.REFUSED, lambda: f"{lane.state}: {lane.reason}")

        assert "it lost its last records" in lane.reason


async def test_an_offset_beyond_the_end_is_set_back(bootstrap: str, tmp_path: Path) -> None:
    """A lane whose group offset was set too far names the command that helps, and continues after it."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        await lane.dispose()
        await asyncio.to_thread(kafka.commit, bootstrap, lanes.app_id, lanes.name, 500)
        late = lanes.lane()
        late.start(Group())
        await until(lambda: late.state is LaneState.REFUSED, lambda: f"{late.state}: {late.reason}")
        assert f"--topic {lanes.name}:0 --to-offset 10 --execute" in late.reason
        await late.dispose()

        await asyncio.to_thread(kafka.commit, bootstrap, lanes.app_id, lanes.name, 10)
        lanes.send(*ids(10, 12))
        again = await lanes.opened()
        await lanes.feed(again, 10, 12)
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 12)]
