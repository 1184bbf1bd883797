"""Topics of Ringfence's own that somebody deletes: commands name the fault and create what is needed, and processes continue."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.lane.lane import Lane, LaneState
from agents.lane.opening import changelog_recovery
from agents.output import changelog
from app.commands.topics import topics
from ringfence_kafka.producer.transactional import Outgoing
from tests.support import kafka
from tests.support.consumers.in_process import Recorder, consuming
from tests.support.kafka import Sent
from tests.support.lanes import Bench, Group, bench, ids, until
from tests.support.worker import Running, configure, run_verb, worker


async def test_progress_topic(bootstrap: str) -> None:
    """Consumers wait, ``topics check`` and ``status`` name the fault, ``topics create`` creates the topic. Nothing is handled twice."""
    async with consuming(bootstrap) as bench:
        kept = f"{bench.name}-app-progress"
        await topics.ensure(bench.settings)
        handler = Recorder()
        running = await bench.start(handler)
        bench.send(*(Sent(None, b"%d" % index) for index in range(10)))
        await bench.until_next(running, 10)
        await until(lambda: len(handler.offsets) == 10, lambda: str(handler.offsets))
        await running.consumer.partitions[0].writer.persisted()
        kafka.delete_topics(bootstrap, [kept])
        await until(
            lambda: any(kept in fault for fault in running.consumer.faults),
            lambda: str(running.consumer.faults),
        )
        bench.send(*(Sent(None, b"%d" % index) for index in range(10, 20)))
        findings = await topics.examine(bench.settings)
        planned = await topics.ensure(bench.settings, dry_run=True)
        outcomes = await topics.ensure(bench.settings)
        await bench.until_next(running, 20)
        after = await topics.examine(bench.settings)
        await running.stop()
        again = Recorder()
        successor = await bench.start(again)
        bench.send(Sent(None, b"20"))
        await bench.until_next(successor, 21)

    assert len(findings.consumers) == 1
    fault = findings.consumers[0]
    assert fault.startswith(
        f"{kept} (progress of consumer groups) does not exist, and {bench.dead_letters} does"
    )
    assert "run 'ringfence topics create'" in fault
    assert [outcome.name for outcome in planned if outcome.created] == [kept]
    assert [outcome.name for outcome in outcomes if outcome.created] == [kept]
    assert after.consumers == []
    assert sorted(handler.offsets) == list(range(20))
    assert again.offsets == [20]


@pytest.mark.long
def test_accepted_topic_after_growth(bootstrap: str, tmp_path: Path) -> None:
    """A deleted accepted topic gets the partitions that its lanes have recorded, not those of the input.

    Workers refuse any other count.
    """
    name = kafka.unique("regrown")
    addresses = [{"name": name, "partitions": 2}]
    config = configure(tmp_path, bootstrap, name, addresses)
    grow = ("topics", "grow", name, "--partitions", "4", "--yes", "--config", str(config))
    with worker(config, "w") as process:
        for partition in range(2):
            kafka.send(
                bootstrap, name, [Sent(b"%d" % partition, kafka.at_home(partition, 2), b"before")], partition
            )
        Running(bootstrap, process, addresses, name).settled(name)
        process.stop()
    run_verb(*grow)
    kafka.delete_topics(bootstrap, [f"{name}.accepted"])
    planned = run_verb("topics", "create", "--dry-run", "--config", str(config)).stdout
    created = run_verb("topics", "create", "--config", str(config)).stdout
    checked = run_verb("topics", "check", "--config", str(config), check=False)
    with worker(config, "w") as process:
        kafka.send(bootstrap, name, [Sent(b"new", kafka.at_home(3, 4), b"after")], 3)
        (accepted,) = kafka.wait_count(bootstrap, f"{name}.accepted", 1, 2)
        lanes = process.health()[1]["lanes"]

    assert f"would create  {name}.accepted  2 partitions, as its lanes have recorded" in planned
    assert f"created  {name}.accepted  2 partitions, as its lanes have recorded" in created
    assert checked.returncode == 0, checked.stdout
    assert accepted.value == b"after"
    assert len(lanes) == 4


def _recreate(lanes: Bench) -> None:
    kafka.recreate_topic(lanes.bootstrap, lanes.changelog, 1, **{"cleanup.policy": "compact"})


async def _resent(lanes: Bench, lane: Lane, first: int, last: int) -> None:
    """Send these IDs, and wait until the lane has judged them."""
    begin = lane.next
    lanes.send(*ids(first, last))
    await lanes.feed(lane, begin, begin + last - first)


async def _filled(lanes: Bench) -> None:
    """Have a worker with the folder "disk" accept ten IDs, and end."""
    lane = await lanes.opened("disk")
    await _resent(lanes, lane, 0, 10)
    await lane.dispose()


async def _knows(lanes: Bench, folder: str, count: int) -> bool:
    """Return whether a worker with this folder drops all IDs below ``count``."""
    before = len(lanes.output())
    lane = await lanes.opened(folder)
    await _resent(lanes, lane, 0, count)
    await lane.dispose()
    return len(lanes.output()) == before


async def _look_at_changelog(lanes: Bench, lane: Lane) -> None:
    """Do what a worker does every ten seconds, and wait until the lane is open again."""
    lane.apply_changelog((await lanes.cluster.topics.identity(lanes.changelog)).topic_id)
    await until(
        lambda: lane.state is LaneState.OPEN and bool(lane.opening.note),
        lambda: f"{lane.state}: {lane.reason}",
    )


async def test_beneath_a_running_lane(bootstrap: str, tmp_path: Path) -> None:
    """The lane writes its IDs into the new changelog, from which another worker knows them."""
    async with bench(bootstrap, tmp_path) as lanes:
        lane = await lanes.opened("disk")
        await _resent(lanes, lane, 0, 10)
        _recreate(lanes)
        await _look_at_changelog(lanes, lane)
        await _resent(lanes, lane, 0, 12)
        note = lane.opening.note
        await lane.dispose()

        assert "10 IDs are kept" in note
        assert len(lanes.output()) == 12
        assert await _knows(lanes, "another disk", 12)


async def test_written_before_anybody_noticed(bootstrap: str, tmp_path: Path) -> None:
    """The changelog has older and newer IDs after a lane has written into the new one before anybody noticed."""
    async with bench(bootstrap, tmp_path) as lanes:
        lane = await lanes.opened("disk")
        await _resent(lanes, lane, 0, 10)
        _recreate(lanes)
        await _resent(lanes, lane, 10, 20)
        await lane.dispose()

        assert await _knows(lanes, "disk", 20)
        assert await _knows(lanes, "another disk", 20)


async def test_while_no_worker_runs(bootstrap: str, tmp_path: Path) -> None:
    """The next start finds an empty changelog. A worker without the folder reports that the IDs are lost."""
    async with bench(bootstrap, tmp_path, id_cache_size=7) as lanes:
        await _filled(lanes)
        _recreate(lanes)
        lane = lanes.lane("disk", resident_ids_max=0)
        await _opened(lane)
        kept = lane.opening.note
        await _resent(lanes, lane, 3, 10)
        await lane.dispose()
        _recreate(lanes)
        new = await lanes.opened("new disk")

        assert "7 IDs are kept" in kept, "as many as the ring has"
        assert len(lanes.output()) == 10
        assert "earlier IDs are lost" in new.opening.note


async def _opened(lane: Lane) -> None:
    lane.start(Group())
    await until(lambda: lane.state is LaneState.OPEN, lambda: f"{lane.state}: {lane.reason}")


async def test_what_is_read_again_is_forgotten(bootstrap: str, tmp_path: Path) -> None:
    """The group's offset went back with the changelog, so the outputs may be lost too: these messages are accepted again."""
    async with bench(bootstrap, tmp_path) as lanes:
        await _filled(lanes)
        _recreate(lanes)
        kafka.commit(bootstrap, lanes.app_id, lanes.name, 6)
        lane = await lanes.opened("disk")

        assert lane.next == 6
        assert "6 IDs are kept" in lane.opening.note
        assert "4 IDs of messages that are read again are forgotten" in lane.opening.note
        await lanes.feed(lane, 6, 10)
        await _resent(lanes, lane, 0, 10)
        assert lanes.accepted_ids() == [b"%d" % index for index in [*range(10), *range(6, 10)]]


async def test_with_an_older_folder(bootstrap: str, tmp_path: Path) -> None:
    """A worker that had the lane before others says that it does not know their IDs."""
    async with bench(bootstrap, tmp_path) as lanes:
        await _filled(lanes)
        other = await lanes.opened("another disk")
        await _resent(lanes, other, 10, 15)
        await other.dispose()
        _recreate(lanes)
        lane = await lanes.opened("disk")

        assert "10 IDs are kept" in lane.opening.note
        assert "RocksDB was up to 5 messages behind" in lane.opening.note


async def test_with_a_folder_of_other_lanes(bootstrap: str, tmp_path: Path) -> None:
    """A lane whose folder is older than a regrouping names the folder: rings regroup sees an empty changelog, and does nothing."""
    async with bench(bootstrap, tmp_path) as lanes:
        await _filled(lanes)
        _recreate(lanes)
        lane = lanes.lane("disk", lanes=1)
        lane.start(Group())
        await until(lambda: lane.state is LaneState.REFUSED, lambda: f"{lane.state}: {lane.reason}")

        assert f"its folder {lane.opening.table.store.path} is older than a change of lanes" in lane.reason
        await lane.dispose()
        shutil.rmtree(lane.opening.table.store.path)
        lane = lanes.lane("disk", lanes=1)
        await _opened(lane)
        assert "earlier IDs are lost" in lane.opening.note


async def test_the_offset_of_the_group_was_moved(bootstrap: str, tmp_path: Path) -> None:
    """Status names skipped messages while the lane follows an operator's offset."""
    async with bench(bootstrap, tmp_path) as lanes:
        await _filled(lanes)
        lanes.send(*ids(10, 15))
        kafka.commit(bootstrap, lanes.app_id, lanes.name, 13)
        lane = await lanes.opened("disk")

        assert lane.next == 13
        assert (
            f"the group has committed {lanes.name}/0 up to 13, its changelog only up to 10"
            in lane.opening.note
        )
        assert "these messages are skipped" in lane.opening.note


async def test_another_worker_began_anew(bootstrap: str, tmp_path: Path, caplog: Any) -> None:
    """A ring that another worker has begun is not mixed with an older one; the log counts the forgotten IDs."""
    async with bench(bootstrap, tmp_path) as lanes:
        await _filled(lanes)
        _recreate(lanes)
        other = await lanes.opened("another disk")
        await _resent(lanes, other, 20, 25)
        await other.dispose()
        lane = await lanes.opened("disk")
        await _resent(lanes, lane, 20, 25)

        assert "another worker began a new ring in it. Up to 10 earlier IDs are forgotten" in caplog.text
        assert len(lanes.output()) == 15


async def test_died_while_it_wrote(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some IDs are in the new changelog and no meta record is: the next opening writes all of them."""
    monkeypatch.setattr(changelog_recovery, "SLOTS_PER_TRANSACTION", 3)
    async with bench(bootstrap, tmp_path) as lanes:
        await _filled(lanes)
        _recreate(lanes)
        batches_of = changelog.batches_of
        calls: list[None] = []

        def dies(*given: Any) -> list[Outgoing]:
            calls.append(None)
            if len(calls) == 3:
                raise OSError("died")
            return batches_of(*given)

        monkeypatch.setattr(changelog_recovery, "batches_of", dies)
        lane = await lanes.opened("disk")

        assert len(calls) == 3 + 5, "all are written again, and the meta record"
        assert "10 IDs are kept" in lane.opening.note
        await lane.dispose()
        assert await _knows(lanes, "another disk", 10)
