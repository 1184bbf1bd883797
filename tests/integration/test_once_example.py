"""The example whose effect happens once, under consumers that are killed."""

import sqlite3
from pathlib import Path

import pytest

from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.worker import configure, wait_for

MESSAGES = 3_000
GROUPS = 7
KILLS = 4


@pytest.mark.long
def test_effect_happens_once(bootstrap: str, tmp_path: Path) -> None:
    """Killed again and again, consumers repeat messages, and no account counts one twice or misses one."""
    name = kafka.unique("once")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 1}])
    database = tmp_path / "once.db"
    records = [Sent(b"%d" % index, b"g%d" % (index % GROUPS), b"v") for index in range(MESSAGES)]
    kafka.send(bootstrap, f"{name}.accepted", records)

    def applied() -> int:
        if not database.exists():
            return 0
        try:
            with sqlite3.connect(database, timeout=30) as store:
                return int(store.execute("SELECT COALESCE(SUM(messages), 0) FROM balance").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # the table is not made yet

    process = ConsumerProcess(
        config, "c", name, f"{name}-group", "--ack-interval", "0.5", "--session-timeout", "6",
        "--lease-timeout", "3", handler="examples.once:handle",
        environment={"ONCE_DATABASE": str(database)},
    )  # fmt: skip
    try:
        for kill in range(KILLS):
            process.start()
            due = MESSAGES * (kill + 1) // (KILLS + 1)
            wait_for(lambda due=due: applied() >= due, process.log)  # type: ignore[misc]
            process.kill()
        process.start()
        wait_for(lambda: applied() >= MESSAGES, process.log)
        assert process.stop() == 0
    finally:
        process.destroy()
    with sqlite3.connect(database) as store:
        balances = dict(store.execute("SELECT account, messages FROM balance"))

    assert balances == {b"g%d" % index: len(range(index, MESSAGES, GROUPS)) for index in range(GROUPS)}
