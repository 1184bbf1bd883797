"""Topics of Ringfence's own that somebody deletes: commands name the fault and create what is needed, and processes continue."""

import asyncio
from pathlib import Path

from app.commands.topics import topics
from tests.support import kafka
from tests.support.consumers.in_process import Recorder, consuming
from tests.support.kafka import Sent
from tests.support.lanes import until
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


async def test_no_progress_topic_before_the_first_consumer(bootstrap: str) -> None:
    async with consuming(bootstrap) as bench:
        await topics.ensure(bench.settings)
        findings = await topics.examine(bench.settings)
        there = await asyncio.to_thread(kafka.topics, bootstrap)

        assert findings.consumers == []
        assert f"{bench.name}-app-progress" not in there


def test_status_names_a_deleted_progress_topic(bootstrap: str, tmp_path: Path) -> None:
    """Status reports a deleted progress topic with exit code 1 and the command that helps."""
    name = kafka.unique("deleted")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 1}])
    kafka.create_topics(bootstrap, {f"{name}.dlq": (1, {})})
    with worker(config, "w"):
        done = run_verb("status", "--config", str(config), check=False)

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"ACT consumers of {name}: {name}-progress" in " ".join(done.stdout.split())
    assert "-> ringfence topics create" in " ".join(done.stdout.split())


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
