"""Faults of a bridge's source, target and processes: each message passes once, in order, at the target."""

import asyncio
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.bridge.bridge import Bridge
from agents.bridge.state import BridgeState
from ringfence_kafka.errors import InvariantError
from tests.support.bridges import processes
from tests.support.bridges.processes import PARTITIONS, Set, Two, messages, numbers, prepare
from tests.support.brokers.linked import LinkedBroker, linked_broker
from tests.support.lanes import until
from tests.support.worker import wait_for

SHORT_SESSION_S = 6


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedBroker]:
    """Yield the target, which the tests' bridges reach over a link."""
    with linked_broker(tmp_path_factory.mktemp("target"), links=1, properties=processes.FOREVER) as target:
        yield target


@pytest.fixture
def two(broker: object, bootstrap: str, linked: LinkedBroker) -> Iterator[Two]:
    """Source and target; the test run's broker is the source."""
    linked.heal()
    yield Two(bootstrap, linked.bootstrap)
    linked.heal()


def _passed(given: Set, count: int) -> None:
    passed = processes.passed(given.got())
    assert sorted(numbers(passed)) == list(range(count))
    for partition in range(PARTITIONS):
        found = numbers(item for item in passed if item.partition == partition)
        assert found == sorted(found)


def _fault(bridge: Bridge) -> str:
    return "" if bridge.state.fault is None else bridge.state.fault.text


async def test_target_silent_past_time_outs(
    two: Two,
    linked: LinkedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B5, with shorter time-outs: a target may be silent for longer than requests, producers, sessions and idle consumers last."""
    monkeypatch.setattr("ringfence_kafka.auth.client_options.REQUEST_TIMEOUT_MS", 1_000)
    monkeypatch.setattr("ringfence_kafka.producer.idempotent.ACKNOWLEDGED_WITHIN_S", 1.0)
    monkeypatch.setattr("ringfence_kafka.producer.idempotent.START_LIMIT_S", 1.0)
    monkeypatch.setattr("agents.bridge.source.BRIDGE_SESSION_TIMEOUT_MS", SHORT_SESSION_S * 1_000)
    monkeypatch.setattr("agents.bridge.source.POLL_INTERVAL_MAX_MS", 2_000)
    caplog.set_level("INFO", "ringfence.bridge")
    given = prepare(two, tmp_path, target=linked.links[0].bootstrap, window=200)
    given.send(messages(100))
    async with processes.in_this_process(given.config) as (bridge,):
        await asyncio.to_thread(given.settled, [100])
        given.send(messages(300, first=100))
        linked.links[0].lose_answers()
        await until(lambda: "not acknowledged" in _fault(bridge), lambda: _fault(bridge))
        await asyncio.sleep(2 * SHORT_SESSION_S)  # how long it is silent, not a wait for anything
        assert not bridge.state.ready
        linked.links[0].open()
        await asyncio.to_thread(given.settled, [400])
        row = processes.status(given.config, code=0)["bridges"][given.name]["partitions"][0]

    assert "not acknowledged within 1 s" in caplog.text
    assert caplog.text.count(f"partitions of {given.topic}") == 1  # given out once: it stayed a member
    assert row["retried"] > 0
    assert len(given.got()) > 400
    _passed(given, 400)


async def test_unforeseen(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected error is logged once with its trace as a fault of this bridge, and tried again; no message is skipped."""
    given = prepare(two, tmp_path)
    given.send(messages(10))
    failing = ["before-send"] * 3 + ["joined"] * 3

    async def fail(point: str, _: str) -> None:
        if point in failing:
            failing.remove(point)
            raise struct.error("int too large")

    def joined(state: BridgeState) -> None:
        if failing[-1:] == ["joined"]:
            failing.pop()
            raise InvariantError("no such thing")
        well(state)

    well = BridgeState.joined
    monkeypatch.setattr("agents.bridge.flow.reach", fail)
    monkeypatch.setattr(BridgeState, "joined", joined)
    async with processes.in_this_process(given.config) as (bridge,):
        got = await asyncio.to_thread(given.settled, [10])
        await until(lambda: bridge.state.ready, lambda: str(bridge.state.reasons))

    assert failing == []
    assert sorted(numbers(got)) == list(range(10))
    assert caplog.text.count("Traceback") == 2
    assert (
        "target: internal error, please report it with the lines above: error: int too large" in caplog.text
    )
    assert "source: internal error, please report it with the lines above: InvariantError" in caplog.text


@pytest.mark.long
def test_stopped_with_messages_in_hand(two: Two, linked: LinkedBroker, tmp_path: Path) -> None:
    """B4: the target knows the messages that a frozen bridge sends when it wakes after another has taken over."""
    given = prepare(two, tmp_path, window=100)
    given.send(messages(2_000))
    first = processes.BridgeProcess(given.config, "first")
    try:
        first.start(RINGFENCE_FAILPOINTS=f"before-send:{given.name}=stop@5")
        wait_for(lambda: first.frozen, first.log)
        with processes.bridge(given.config, "second"):
            given.settled([2_000])
            before = len(given.got())
            first.signal(signal.SIGCONT)
            wait_for(lambda: len(given.got()) > before, first.log)
            assert first.stop() == 0
            given.settled([2_000])
    finally:
        first.destroy()

    _passed(given, 2_000)


async def test_partitions_change_hands(two: Two, linked: LinkedBroker, tmp_path: Path) -> None:
    """A bridge that gives partitions away waits for its sends: nothing is sent twice when a second one comes and goes."""
    given = prepare(two, tmp_path, source_partitions=4, target=linked.links[0].bootstrap, window=20)
    async with processes.in_this_process(given.config) as (first,):
        await until(lambda: first.state.ready, lambda: str(first.state.reasons))
        linked.links[0].delay(0.1)  # so that something is always under way
        for partition in range(4):
            given.send(messages(400, first=partition * 400), partition)
        await until(lambda: first.window.busy, lambda: str(first.state.reasons))
        async with processes.in_this_process(given.config) as (second,):
            await until(lambda: _counted(second, "forwarded") > 0, lambda: str(second.state.reasons))
        linked.links[0].open()
        got = await asyncio.to_thread(given.settled, [400] * 4)

    assert sorted(numbers(got)) == list(range(1_600))
    assert _counted(first, "forwarded") + _counted(second, "forwarded") == 1_600
    assert _counted(first, "retried") + _counted(second, "retried") == 0


def _counted(bridge: Bridge, what: str) -> int:
    return sum(total[what] for total in bridge.state.totals.values())


def test_target_away_at_start(two: Two, linked: LinkedBroker, tmp_path: Path) -> None:
    """A bridge whose target accepts connections and does not answer, or is away, serves its pages and can be stopped.

    Messages wait, health names the reason, and later they are forwarded.
    """
    given = prepare(two, tmp_path, target=linked.links[0].bootstrap)
    given.send(messages(50))
    linked.links[0].hold()
    with processes.BridgeProcess(given.config, given.name) as process:
        wait_for(lambda: "checking clusters" in str(process.health()[1]), process.log)
        assert process.health()[0] == 503
        assert process.page("/live") == '{"live": true}'
        assert process.stop() == 0
        assert "bridges start" not in process.log()
        linked.links[0].cut()
        process.start()
        wait_for(lambda: "target: no broker answers" in str(process.health()[1]), process.log)
        assert "all" in str(process.health()[1])
        linked.heal()
        given.settled([50])
        process.wait_ready()

    _passed(given, 50)


async def test_without_detection(
    two: Two, linked: LinkedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9: nothing is lost without hops when producers die of a link that breaks, and a record that is sent again comes twice."""
    monkeypatch.setattr("ringfence_kafka.producer.idempotent.ACKNOWLEDGED_WITHIN_S", 1.0)
    link = linked.links[0]
    given = prepare(two, tmp_path, target=link.bootstrap, use_duplicate_detection=False, window=100)
    async with processes.in_this_process(given.config) as (bridge,):
        for turn, strike in enumerate((link.cut, link.lose_answers)):
            first = 300 * turn
            given.send(messages(100, first=first))
            await asyncio.to_thread(given.settled, [first + 100])  # a producer is there
            before, harm = _counted(bridge, "retried"), link.struck
            strike()
            given.send(messages(200, first=first + 100))
            await until(lambda: bridge.state.fault is not None, lambda: str(bridge.state.totals))
            link.open()
            got = await asyncio.to_thread(given.settled, [first + 300])
            assert link.struck > harm
            assert _counted(bridge, "retried") > before

    assert set(numbers(got)) == set(range(600))
    assert len(got) > 600
    assert not [item for item in got if processes.HOP in dict(item.headers)]
