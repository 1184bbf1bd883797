"""Lag as operators see it in kafka-consumer-groups.sh, for workers, consumers and bridges that have finished all work."""

from pathlib import Path

import pytest

from tests.support import kafka
from tests.support.bridges.processes import BridgeProcess
from tests.support.bridges.processes import configure as configure_bridge
from tests.support.brokers import kafka_tools
from tests.support.brokers.kafka_tools import Standing
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, wait_for

PARTITIONS = 2


@pytest.mark.long
def test_nothing_is_left_at_rest(bootstrap: str, tmp_path: Path) -> None:
    """Each partition of each group is at the end of its log, behind the markers of committed and aborted transactions."""
    name = kafka.unique("lag")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": PARTITIONS}])
    kafka.create_topics(bootstrap, {f"{name}-target": (PARTITIONS, {})})
    crossing = configure_bridge(
        tmp_path, bootstrap, bootstrap,
        app_id=name, name="out", source_topic=f"{name}.accepted", address=f"{name}-target",
    )  # fmt: skip
    processes = {
        name: WorkerProcess(config, "w"),
        "billing": ConsumerProcess(
            config, "c", name, "billing", handler="describe", environment={"HANDLED_FILE": str(tmp_path / "done")}
        ),
        f"{name}-bridge-out": BridgeProcess(crossing, "b"),
    }  # fmt: skip
    groups = [kafka.at_home(index, PARTITIONS) for index in range(PARTITIONS)]

    def state() -> list[Standing]:
        return kafka_tools.standings(bootstrap, *processes)

    def behind() -> list[Standing]:
        return [item for item in state() if item.lag != 0]

    try:
        for process in processes.values():
            process.start()
        for process in processes.values():
            process.wait_ready()
        for partition in range(PARTITIONS):
            # Of both homes in each partition: half of it is forwarded.
            records = [Sent(b"%d-%d" % (partition, n), groups[n % PARTITIONS], b"%d" % n) for n in range(10)]
            kafka.send_in_transaction(bootstrap, name, records, commit=True, partition=partition)
            kafka.send_in_transaction(bootstrap, name, records, commit=False, partition=partition)
        wait_for(
            lambda: len(kafka.read_all(bootstrap, f"{name}-target", PARTITIONS)) == 20,
            processes[f"{name}-bridge-out"].log,
        )
        wait_for(lambda: not behind(), lambda: "\n".join(map(str, behind())))
        rows = state()
    finally:
        for process in processes.values():
            process.destroy()

    assert {row.topic for row in rows} == {name, f"{name}-{name}-forward", f"{name}.accepted"}
    assert len(rows) == 4 * PARTITIONS
    assert all(row.lag == 0 and row.offset == row.end for row in rows)
    assert {row.member for row in rows if row.topic == name} == {f"{name}-w"}
