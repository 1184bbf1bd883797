"""Handover of a partition between consumer processes: in order, and by a kill."""

import time
from pathlib import Path

from tests.harness.checker.groups import judge
from tests.harness.group_system import UNWRITTEN_S, System, assert_rising
from tests.harness.workloads.message_groups import Flow, Shape, accept, generate, sizes
from tests.support import kafka
from tests.support.consumers.processes import consumers, wait_shared

SEED = 6_151
SESSION_S = 6
"""The least session timeout that a broker allows."""
LEASE_S = 10
"""More than a session, so that a wait for the lease is not taken for a wait for the session."""
REFRESHED_S = 1.5
"""The longest time since the last write of a holder at work; its lease runs from that write."""


def _system(bootstrap: str, folder: Path, name: str, seconds: float, lease_s: float) -> System:
    times = ("--session-timeout", str(SESSION_S), "--lease-timeout", str(lease_s), "--lease-idle", "0.5")
    unique = kafka.unique(f"handover-{name}")
    return System(bootstrap, folder, unique, 2, seconds, options=times, partitions=2)


def test_clean_handover(bootstrap: str, tmp_path: Path) -> None:
    """A clean handover repeats nothing, tokens rise, and nobody waits for a released lease, whether a consumer joins or leaves."""
    system = _system(bootstrap, tmp_path, "clean", 0.05, 60)
    first, second = system.processes
    made = generate(Shape(messages=30_000, group_size=17, interleave=7), SEED)
    flow = Flow(bootstrap, system.name, made, 100)  # a consumer handles no more than 140 a second
    with consumers(first, later=[second]), flow:
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

    runs = system.runs()
    assert judge(runs, sent) == []
    assert {run.attempt for run in runs} == {1}
    assert taken - stopped < SESSION_S
    assert_rising(system)
    assert [system.written(index)[-1].released for index in range(2)] == [True, True]


def test_killed_holder(bootstrap: str, tmp_path: Path) -> None:
    """Nobody starts a killed holder's messages before its lease has run out; then what it had not acknowledged comes again."""
    system = _system(bootstrap, tmp_path, "killed", 1.0, LEASE_S)
    first, second = system.processes
    with consumers(first, second):
        wait_shared(first, second, partitions=2)
        made = generate(Shape(messages=80, group_size=5, interleave=7), SEED)
        accept(system.bootstrap, system.name, made)
        system.wait(lambda: sum(run.pid == first.pid and bool(run.end) for run in system.runs()) >= 7)
        disturbance, snapshot = system.kill(first)
        system.wait_ended(80)
        assert second.stop() == 0

    runs = system.runs()
    lost = disturbance._replace(lease=LEASE_S - REFRESHED_S)
    assert judge(runs, sizes(made), [lost], [snapshot]) == []
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
