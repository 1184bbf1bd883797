"""Three brokers, whose leaders are killed, frozen and restarted one after the other: lanes and consumers go on, exact."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import rounds
from tests.harness.checker.groups import judge
from tests.harness.group_system import PARTITIONS, System, assert_rising
from tests.harness.workloads.message_groups import Flow, Shape, generate
from tests.support import kafka
from tests.support.brokers.several import COUNT, Several, several
from tests.support.consumers.processes import consumers, wait_shared

pytestmark = [pytest.mark.long, pytest.mark.alone]
SEED = 7_919
MESSAGES = 40_009
"""More messages than are sent."""
OFFSETS = "__consumer_offsets"


@pytest.mark.parametrize(
    ("seed", "nemeses"),
    [
        (7, ["kill-leader", "kill", "freeze-leader", "move-leaders"]),
        (8, ["too-few-copies", "rolling-restart", "power-cut", "storm"]),
    ],
)
def test_round(seed: int, nemeses: list[str]) -> None:
    """A round loses, doubles, tears, reorders or forgets nothing, and every fault really struck."""
    verdict = rounds.run(seed, nemeses, brokers=COUNT)

    assert not verdict.faults, verdict.report()
    assert set(verdict.strikes) == set(nemeses)


def test_consumers_while_leaders_change(tmp_path: Path) -> None:
    """No message is done again when the leaders of the input, the ledger and the group's coordinator change."""
    with several(tmp_path / "brokers") as cluster:
        kafka.settle(cluster.bootstrap_servers)
        system = System(cluster.bootstrap_servers, tmp_path, "leaders", 2, 0.05)
        messages = generate(Shape(messages=MESSAGES, group_size=37, interleave=53, randomized=True), SEED)
        flow = Flow(cluster.bootstrap_servers, system.name, messages, 60)
        strikes: list[Callable[[], None]] = [
            lambda: _killed(cluster, system.topic),
            lambda: _killed(cluster, OFFSETS),
            lambda: _frozen(cluster, system.topic),
            lambda: _frozen(cluster, OFFSETS),
            lambda: _restarted(cluster),
        ]
        with consumers(*system.processes), flow:
            wait_shared(*system.processes, partitions=PARTITIONS)
            flow.start()
            system.wait_written_beyond([0] * PARTITIONS)
            for strike in strikes:
                strike()
                before = kafka.end_offsets(cluster.bootstrap_servers, system.topic, PARTITIONS)
                system.wait_written_beyond(before)
            sent = system.finish(flow)
            runs = system.runs()
            assert judge(runs, sent) == [], f"seed {SEED}"
            assert {run.attempt for run in runs} == {1}
            assert_rising(system)


def _killed(cluster: Several, topic: str) -> None:
    node = cluster.busiest([topic])
    node.kill()
    cluster.wait_led(node)
    cluster.start()


def _frozen(cluster: Several, topic: str) -> None:
    """Freeze the broker that leads most of the topic until others lead; it wakes and still takes itself for the leader."""
    node = cluster.busiest([topic])
    node.pause()
    cluster.wait_led(node)
    node.resume()
    cluster.wait_whole()


def _restarted(cluster: Several) -> None:
    for node in cluster.nodes:
        node.stop(90)
        cluster.start()
