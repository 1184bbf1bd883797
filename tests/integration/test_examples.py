"""Examples whose effect happens once, under consumers that are killed or stopped."""

import sqlite3
from pathlib import Path

import pytest

from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess, noted
from tests.support.kafka import Sent
from tests.support.worker import configure, wait_for

MESSAGES = 3_000
GROUPS = 7
KILLS = 4


@pytest.mark.long
def test_effect_happens_once(bootstrap: str, tmp_path: Path) -> None:
    """No account counts a message twice or misses one, although killed consumers repeat messages."""
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


EFFECTS = 5
OPTIONS = ("--session-timeout", "6", "--lease-timeout", "3", "--drain-timeout", "2")


def test_late_effect_is_refused(bootstrap: str, tmp_path: Path) -> None:
    """The next holder's effects are there once; a later effect of the stopped holder is refused, with the reason."""
    name = kafka.unique("fenced")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 1}])
    database, opened, shut = tmp_path / "fenced.db", tmp_path / "opened", tmp_path / "shut"
    kafka.send(bootstrap, f"{name}.accepted", [Sent(None, b"g", b"%d" % index) for index in range(EFFECTS)])
    opened.touch()

    def consumer(label: str, gate: Path) -> ConsumerProcess:
        return ConsumerProcess(
            config, label, name, f"{name}-group", *OPTIONS, handler="tests.support.consumers.late_handler:handle",
            environment={"FENCED_DATABASE": str(database), "GATE": str(gate)},
        )  # fmt: skip

    late, following = consumer("late", shut), consumer("following", opened)
    try:
        late.start()
        wait_for(lambda: _noted(late, "begin"), late.log)
        late.freeze()
        following.start()
        wait_for(lambda: _noted(following, f"done {EFFECTS - 1}"), following.log)
        before = _entries(database)
        shut.touch()
        late.thaw()
        wait_for(lambda: _noted(late, "refused"), late.log)
        after = _entries(database)
    finally:
        late.destroy()
        following.destroy()
    refused = next(name for name in noted(late.handled) if name.startswith("refused"))

    assert before == [(f"{name}.accepted/0/{index}", 2) for index in range(EFFECTS)]
    assert after == before
    assert refused.startswith("refused 0 1 ")
    assert "token 1 is not the newest, its effect is refused" in refused


def _noted(process: ConsumerProcess, beginning: str) -> bool:
    return any(name.startswith(beginning) for name in noted(process.handled))


def _entries(database: Path) -> list[tuple[str, int]]:
    with sqlite3.connect(database, timeout=30) as store:
        return list(store.execute("SELECT source, fence FROM entry ORDER BY source"))
