"""A partition goes from one consumer process to another: in order, slowly, by a kill, and past every time-out.

Judged by :mod:`tests.harness.checker.groups`; each killed or frozen process says how long its lease must be waited for.
"""

import sqlite3
import time
from pathlib import Path

from tests.harness.checker.groups import Disturbance, Run, judge
from tests.harness.group_system import UNWRITTEN_S, System, assert_rising
from tests.harness.workloads.message_groups import Flow, GroupMessage, Shape, accept, generate, sizes
from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess, consumers, wait_shared
from tests.support.handlers import open_books

SEED = 6_151
SESSION_S = 6
"""The least that a broker allows."""
LEASE_S = 10
"""More than a session, so that waiting for the one is not taken for waiting for the other."""
REFRESHED_S = 1.5
"""A holder at work has written so long ago at most; from there on its lease runs."""
TRANSACTION_S = 10
"""After which the broker ends a transaction that a stopped process left open."""
BOOKED_AFTER_S = 0.3
"""How long a handler works before it opens the store."""


def _system(
    bootstrap: str, folder: Path, name: str, seconds: float, lease_s: float, **more: object
) -> System:
    times = ("--session-timeout", str(SESSION_S), "--lease-timeout", str(lease_s), "--lease-idle", "0.5")
    unique = kafka.unique(f"handover-{name}")
    return System(bootstrap, folder, unique, 2, seconds, options=times, partitions=2, **more)  # type: ignore[arg-type]


def _traffic(system: System, messages: int, group_size: int) -> dict[str, int]:
    made = generate(Shape(messages=messages, group_size=group_size, interleave=7), SEED)
    accept(system.bootstrap, system.name, made)
    return sizes(made)


def _last_before(runs: list[Run], heir: ConsumerProcess) -> dict[int, tuple[float, float]]:
    """By partition that the heir got: the last end of the others, and the first begin of its own."""
    found = {}
    for partition in {run.partition for run in runs if run.pid == heir.pid}:
        first = min(run.begin for run in runs if (run.partition, run.pid) == (partition, heir.pid))
        ends = [run.end or 0 for run in runs if run.partition == partition and run.pid != heir.pid]
        found[partition] = (max(ends, default=first), first)
    return found


def test_clean_handover(bootstrap: str, tmp_path: Path) -> None:
    """One comes, the other leaves: nothing is repeated, tokens rise, and no lease that was released is waited for."""
    system = _system(bootstrap, tmp_path, "clean", 0.02, 60)
    first, second = system.processes
    made = generate(Shape(messages=60_000, group_size=17, interleave=7), SEED)
    flow = Flow(bootstrap, system.name, made, 300)  # a consumer handles no more than 350 a second
    with consumers(first, later=[second]):
        try:
            flow.start()
            system.wait_ended(200)
            second.start()
            wait_shared(first, second, partitions=2)
            system.wait_ended(system.ended() + 200)
            assert first.stop() == 0
            stopped = time.monotonic()
            wait_shared(second, partitions=2, limit_s=30)
            taken = time.monotonic()
            sent = flow.finish()
            system.wait_ended(sum(sent.values()))
            assert second.stop() == 0
        finally:
            flow.stop()

    runs = system.runs()
    assert judge(runs, sent) == []
    assert {run.attempt for run in runs} == {1}
    assert taken - stopped < SESSION_S
    assert_rising(system)
    assert [system.written(index)[-1].released for index in range(2)] == [True, True]


def test_slow_handler_during_handover(bootstrap: str, tmp_path: Path) -> None:
    """What runs while its partition goes to another ends there, and counts; the next of its group begins afterwards."""
    slow_s = 20.0
    system = _system(bootstrap, tmp_path, "slow", slow_s, 60)
    first, second = system.processes
    messages = [GroupMessage(f"g{group}", index, last=index == 1) for group in range(6) for index in range(2)]
    waited: dict[str, str] = {}

    def waiting() -> bool:
        """The first one is told of its own assignment a moment earlier or later."""
        told = second.health()[1].get("waiting", {})
        waited.update({number: text for number, text in told.items() if "draining" in text})
        return bool(waited)

    with consumers(first, later=[second]):
        accept(system.bootstrap, system.name, messages)
        system.wait(lambda: len(system.runs()) == 6)
        second.start()
        system.wait(waiting)
        system.wait(lambda: list(first.health()[1]["draining"]) == list(waited))
        system.wait_ended(12)
        codes = [consumer_process.stop() for consumer_process in (first, second)]

    runs = system.runs()
    [(last_end, first_begin)] = _last_before(runs, second).values()
    assert codes == [0, 0]
    assert judge(runs, sizes(messages)) == []
    assert {run.attempt for run in runs} == {1}
    assert len(runs) == 12
    assert last_end < first_begin < last_end + slow_s / 2
    [(number, text)] = waited.items()
    assert "draining, token 1" in text
    assert system.written(int(number))[-1].next == 6 or sum(run.partition == int(number) for run in runs) != 6
    assert_rising(system)


def test_killed_holder(bootstrap: str, tmp_path: Path) -> None:
    """Nobody begins what a killed one held before its lease has run out; then what it had not acknowledged comes again."""
    system = _system(bootstrap, tmp_path, "killed", 1.0, LEASE_S)
    first, second = system.processes
    with consumers(first, second):
        wait_shared(first, second, partitions=2)
        sent = _traffic(system, 80, 5)
        system.wait(lambda: sum(run.pid == first.pid and bool(run.end) for run in system.runs()) >= 7)
        disturbance, snapshot = system.kill(first)
        system.wait_ended(80)
        assert second.stop() == 0

    runs = system.runs()
    lost = disturbance._replace(lease=LEASE_S - REFRESHED_S)
    assert judge(runs, sent, [lost], [snapshot]) == []
    repeated = [run for run in runs if run.attempt > 1]
    cut_off = {(run.partition, run.offset) for run in runs if run.pid == first.pid and run.end is None}
    assert cut_off
    # What had just begun may not have been written; what ended just before the kill may not have been either.
    assert {(run.partition, run.offset) for run in repeated} <= {
        (run.partition, run.offset)
        for run in runs
        if run.pid == first.pid and (run.end or disturbance.time) > disturbance.time - UNWRITTEN_S
    }
    assert {run.attempt for run in runs} == {1, 2}
    assert_rising(system)


def test_stopped_holder_wakes(bootstrap: str, tmp_path: Path) -> None:
    """Stopped past its session, its lease and its transaction, and woken in the middle of its messages.

    The next one works meanwhile. What the late one acknowledges changes nothing at the broker, and what it does is
    refused by a store that knows the token.
    """
    books = tmp_path / "books.db"
    open_books(str(books))
    system = _system(bootstrap, tmp_path, "stopped", BOOKED_AFTER_S, 3, handler="book")
    sleeper, heir = system.processes
    for process in system.processes:
        process._environment["BOOKS"] = str(books)
    with consumers(sleeper, heir):
        wait_shared(sleeper, heir, partitions=2)
        [sleeping] = sleeper.held
        sent = _traffic(system, 700, 31)
        system.wait(lambda: sum(run.pid == sleeper.pid and bool(run.end) for run in system.runs()) >= 10)
        # Nobody is in the store yet: its lock would stay with who is frozen.
        frozen = system.freeze_at_work(sleeper, within_s=BOOKED_AFTER_S)
        system.wait(lambda: heir.held == {0, 1} and heir.health()[0] == 200)
        system.wait(
            lambda: _ended_by(system, heir, sleeping) >= 10 and time.monotonic() > frozen + TRANSACTION_S
        )
        before = system.written(sleeping)[-1]
        told = sleeper.log().count("may go to others")
        woken = sleeper.thaw()
        system.wait(lambda: sleeper.log().count("may go to others") > told)
        knew = time.monotonic()
        system.wait_ended(sum(sent.values()))
        system.wait_no_lag()
        codes = [consumer_process.stop() for consumer_process in (sleeper, heir)]

    runs = system.runs()
    late = {
        (run.partition, run.offset, run.fence)
        for run in runs
        if run.pid == sleeper.pid and run.begin < frozen < woken < (run.end or 0)
    }
    with sqlite3.connect(books) as store:
        refused = store.execute("SELECT place, number, fence FROM refused").fetchall()
        effects = store.execute("SELECT place, number, fence FROM effects").fetchall()
    assert late, "nothing of what ran when it was stopped came to its end"
    assert late <= set(refused)
    assert all(fence < before.token for place, _, fence in refused if place == sleeping)
    assert len(effects) == sum(sent.values())
    assert late.isdisjoint(effects)
    assert codes == [0, 0]
    assert judge(runs, sent, [Disturbance(sleeper.pid, frozen, knew, lease=3 - REFRESHED_S)]) == []
    assert_rising(system)


def _ended_by(system: System, process: ConsumerProcess, partition: int) -> int:
    return sum(
        (run.pid, run.partition) == (process.pid, partition) and bool(run.end) for run in system.runs()
    )
