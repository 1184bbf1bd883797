"""Opening of a lane, also in a rebalance: each step has a test that fails when the step is left out or swapped."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer

from agents.lane.lane import LaneState
from agents.worker.lanes import Lanes
from ringfence_kafka.process import failpoints
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.lanes import LIMIT_S, Gate, Group, bench, ids, until


async def test_no_member_no_fence(bootstrap: str, tmp_path: Path) -> None:
    """A worker that has left the group does not fence the lane's owner."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        owner = await lanes.opened("owner")
        zombie, group = lanes.lane("zombie"), Group()
        group.member = False
        zombie.start(group)
        await until(lambda: group.asked >= 3, lambda: f"asked {group.asked} times")
        await lanes.feed(owner, 0, 10)

        assert zombie.state is LaneState.RETRYING
        assert owner.counts["fenced"] == 0
        assert len(lanes.output()) == 10


async def test_membership_lost_during_the_fence(bootstrap: str, tmp_path: Path) -> None:
    """The lane stays closed if membership was lost during the fence: the worker asks again after it."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        group, gate = Group(), Gate()
        remove = failpoints.install("after-fence", f"{lanes.name}-0", gate)
        try:
            lane = lanes.lane()
            lane.start(group)
            await gate.wait()
            group.member = False
        finally:
            gate.open()
            remove()
        await lane.offer(await lanes.fetch(0, 10))
        await until(
            lambda: group.asked >= 4 or lane.state is LaneState.OPEN, lambda: f"asked {group.asked} times"
        )

        assert lane.state is LaneState.RETRYING
        assert lanes.output() == []


async def test_fence_ends_the_former_owner(bootstrap: str, tmp_path: Path) -> None:
    """The former owner, in the middle of a transaction, can commit nothing once the lane was opened elsewhere."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        former_group = Group()
        former = await lanes.opened("former", former_group)
        gate = await lanes.held(former, "before-commit", 0, 10)
        owner = await lanes.opened("owner")
        former_group.member = False
        await lanes.feed(owner, 0, 10)
        gate.open()
        await until(lambda: former.counts["fenced"] == 1, lambda: f"{former.state}: {former.reason}")

        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 10)]
        assert lanes.committed() == 10


async def test_fence_ends_an_idle_owner(bootstrap: str, tmp_path: Path) -> None:
    """A former owner that had nothing to do meanwhile finds itself fenced at its next transaction."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        former_group = Group()
        former = await lanes.opened("former", former_group)
        await lanes.opened("owner")
        former_group.member = False
        await former.offer(await lanes.fetch(0, 10))
        await until(
            lambda: former.state is LaneState.RETRYING or former.next == 10,
            lambda: f"{former.state}: {former.reason}",
        )

        assert former.counts["fenced"] == 1
        assert lanes.output() == []


async def test_next_and_state_are_read_after_the_fence(bootstrap: str, tmp_path: Path) -> None:
    """Messages that the former owner commits just before the fence are neither repeated nor forgotten.

    Records without an ID would be accepted twice if ``next`` were older than the fence; records with one would be if the ring were.
    """
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 5), *(Sent(None, b"group") for _ in range(5)), *ids(0, 5))
        former = await lanes.opened("former")
        gate = Gate()
        remove = failpoints.install("before-fence", f"{lanes.name}-0", gate)
        owner = lanes.lane("owner")
        owner.start(Group())
        await gate.wait()
        remove()
        await lanes.feed(former, 0, 10)
        await former.close()
        gate.open()
        await until(lambda: owner.state is LaneState.OPEN, lambda: f"{owner.state}: {owner.reason}")

        assert owner.next == 10
        await lanes.feed(owner, 0, 15)
        assert len(lanes.output()) == 10
        assert owner.counts["duplicates"] == 5


async def test_restore_reaches_the_high_watermark(bootstrap: str, tmp_path: Path) -> None:
    """An open transaction on the changelog hides committed records behind it; the lane waits and misses none.

    A restore up to the last stable offset would find nothing and accept all resends.
    """
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10), *ids(0, 10))
        former = await lanes.opened("former")
        foreign = Producer({"bootstrap.servers": bootstrap, "transactional.id": kafka.unique("foreign")})
        foreign.init_transactions(LIMIT_S)
        foreign.begin_transaction()
        foreign.produce(lanes.changelog, key=b"\x00", value=b"never committed", partition=0)
        assert foreign.flush(LIMIT_S) == 0
        await lanes.feed(former, 0, 10)
        await former.close()
        gate = Gate()
        remove = failpoints.install("restoring", f"{lanes.name}-0", gate)
        lane = lanes.lane("owner")
        lane.start(Group())
        await gate.wait()
        remove()
        gate.open()
        await asyncio.sleep(2)  # that it does not open is seen after a while only
        opened_early = lane.state is LaneState.OPEN
        foreign.abort_transaction(LIMIT_S)
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        await lanes.feed(lane, 0, 20)

        assert not opened_early
        assert lane.counts["duplicates"] == 10
        assert len(lanes.output()) == 10


async def test_assignment_closes_what_ran(bootstrap: str, tmp_path: Path) -> None:
    """An assignment without a revocation before it waits for the transaction under way, then opens the lane again."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        mine = {(lanes.name, 0), (lanes.forward, 0)}
        worker = Lanes(lanes.settings, lanes.cluster)
        try:
            await worker.assigned(mine, Group())
            await until(lambda: worker.health.ready, lambda: str(worker.health.report()))
            gate = await lanes.held(worker, "before-commit", 0, 10)
            again = asyncio.create_task(worker.assigned(mine, Group()))
            await asyncio.sleep(0)
            gate.open()
            await again
            committed = lanes.committed()
            await until(lambda: worker.health.ready, lambda: str(worker.health.report()))

            assert committed == 10
            assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 10)]
            assert [lane.next for lane in worker.lanes] == [10]
        finally:
            await worker.stop()


@pytest.mark.parametrize("role", ["accepted topic", "input topic"])
async def test_grown_input_refuses(bootstrap: str, tmp_path: Path, role: str) -> None:
    """Partitions added to the input, or to the output, move groups: the lane names that, and the remedy."""
    async with bench(bootstrap, tmp_path) as lanes:
        topic = lanes.settings.addresses[0].topics(lanes.app_id)[role]
        lanes.send(*ids(0, 5))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 5)
        await lane.close()
        kafka.grow_topic(bootstrap, topic, 3)
        lane.start(Group())
        await until(
            lambda: lane.state in (LaneState.REFUSED, LaneState.OPEN), lambda: f"{lane.state}: {lane.reason}"
        )

        assert lane.state is LaneState.REFUSED
        assert f"{topic} has 3 partitions, it had 1 when its lanes began" in lane.reason
        assert "start again under another app.id" in lane.reason


async def test_recreated_input_begins_anew(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An input that was deleted and created again is read from its start; known IDs stay known."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 5))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 5)
        await lane.close()
        kafka.recreate_topic(bootstrap, lanes.name)
        lanes.send(*ids(3, 8), Sent(None, b"group"))
        lane.start(Group())
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        await lanes.feed(lane, 0, 6)

        assert "was deleted and created again" in caplog.text
        assert lanes.accepted_ids() == [*(b"%d" % index for index in range(8)), None]
        assert lane.counts["duplicates"] == 2


@pytest.mark.parametrize("disk", ["disk", "another"])
async def test_lost_changelog_repeats_nothing(bootstrap: str, tmp_path: Path, disk: str) -> None:
    """A lane without its changelog continues at the group's offset, with its RocksDB or on another disk."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*(Sent(None, b"group", b"%d" % index) for index in range(10)))
        lane = await lanes.opened("disk")
        await lanes.feed(lane, 0, 7)
        await lane.dispose()
        kafka.recreate_topic(bootstrap, lanes.changelog, 1, **{"cleanup.policy": "compact"})
        lane = await lanes.opened(disk)

        assert lane.next == 7
        await lanes.feed(lane, 0, 10)
        assert [item.value for item in lanes.output()] == [b"%d" % index for index in range(10)]


async def test_fence_that_does_not_come(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane names a transactional ID whose last transaction hangs, and the command to examine it."""
    monkeypatch.setattr("agents.lane.open.FENCE_LIMIT_S", 0.0)
    async with bench(bootstrap, tmp_path) as lanes:
        lane = lanes.lane()
        lane.start(Group())
        await until(lambda: lane.state is LaneState.RETRYING, lambda: f"{lane.state}: {lane.reason}")
        reason = lane.reason

    assert f"transactional ID {lanes.app_id}-{lanes.name}-0 cannot be initialised within 0 s" in reason
    assert "kafka-transactions.sh find-hanging" in reason


async def test_not_confirmed(bootstrap: str, tmp_path: Path) -> None:
    """A worker that the group does not know begins nothing, and keeps its open lanes until the group knows it."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane, group = await lanes.opened(), Group()
        opened = lane._opened
        group.member = False
        await lane.suspend()
        lane.start(group)
        await lane.offer(await lanes.fetch(0, 10))
        await until(lambda: group.asked >= 3, lambda: f"asked {group.asked} times")
        waits = lane.state, lane.next
        group.member = True
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        await lanes.feed(lane, 0, 10)

        assert waits == (LaneState.RETRYING, 0)
        assert lane._opened is opened


async def test_input_created_again_in_between(bootstrap: str, tmp_path: Path) -> None:
    """A lane opens again at its start after its input was recreated: offsets of the old topic mean nothing."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 10))
        lane = await lanes.opened()
        await lanes.feed(lane, 0, 10)
        await lane.suspend()
        kafka.recreate_topic(bootstrap, lanes.name)
        lanes.send(*ids(5, 20))
        lane.start(Group())
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        await until(lambda: lane.next == 0, lambda: f"{lane.next}")
        await lanes.feed(lane, 0, 15)

        assert lane.counts["duplicates"] == 5
        assert lanes.accepted_ids() == [id_.id for id_ in ids(0, 20)]


class _Panic(BaseException):
    """A panic of RocksDB's bindings, which is not an Exception."""


async def test_what_is_no_exception_ends_no_lane(
    bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A lane continues after a cancelled wait or a panic of a binding, as nobody has closed it."""
    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, 5))
        lane, group = lanes.lane(), Group()
        answers = iter([asyncio.CancelledError(), _Panic("no space left")])

        async def confirm() -> bool:
            for answer in answers:
                raise answer
            return True

        group.confirm = confirm  # type: ignore[method-assign]
        lane.start(group)
        await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")
        await lanes.feed(lane, 0, 5)
        await lane.close()

    assert f"lane {lane.name}: internal error, please report" in caplog.text
