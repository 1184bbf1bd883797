"""B17: so many groups of ten messages cross a bridge whose links, processes and target are struck again and again: exactly those arrive."""

import itertools
import random
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from ringfence_kafka.protocol import wire_names
from tests.harness.checker.check import check
from tests.harness.history import ID_HEADER, TOKEN_HEADER
from tests.harness.nemeses.bridges import CutAgainAndAgain, KilledBridge
from tests.harness.nemeses.catalogue import Maker
from tests.harness.source_cluster import crossed
from tests.harness.system import System
from tests.harness.workloads.catalogue import Workload

GROUPS: Final = 500
EACH: Final = 10
RATE: Final = 250
FLUSH_S: Final = 60.0
CHUNK: Final = 25
DELAY_S: Final = 0.2


class Feed(threading.Thread):
    """Round after round, a message for every group, at a pace until it is hurried; what the source has in the end is known."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "partitioner": "murmur2_random", "log_level": 0}
        )  # fmt: skip
        self._topic = topic
        self._hurried = threading.Event()
        self.left = -1
        """Messages that were not acknowledged in the end."""

    def run(self) -> None:
        began = time.monotonic()
        for count, (number, group) in enumerate(itertools.product(range(EACH), range(GROUPS)), 1):
            name = b"%d/%d" % (group, number)
            self._producer.produce(
                self._topic, b"%d" % number, b"%d" % group, headers=[(ID_HEADER, name), (TOKEN_HEADER, name)]
            )
            if count % CHUNK == 0:
                self._producer.poll(0)
                self._hurried.wait(max(0.0, began + count / RATE - time.monotonic()))  # a pace
        self.left = self._producer.flush(FLUSH_S)

    def hurry(self) -> None:
        self._hurried.set()


def _killed_in_the_midst(system: System, rng: random.Random) -> KilledBridge:
    """Its answers take long: so something is always under way that it has not confirmed."""
    assert system.origin is not None
    for link in system.origin.target_links:
        link.delay(DELAY_S)
    return KilledBridge(system, rng, times=1)


# Beside it, and quicker: test_bridge.py and test_bridge_troubles.py have each of these faults alone.
@pytest.mark.long
def test_exactly_five_thousand(tmp_path: Path) -> None:
    """Exactly 5,000 messages arrive while the links are cut again and again and a process of the bridge is killed."""
    rng = random.Random(1)
    strikes: list[Maker] = [lambda system, rng: CutAgainAndAgain(system, rng, times=3), _killed_in_the_midst]
    load = Workload("bridged", [], partitioner="crc32", user_ids="check")
    with System(tmp_path, [load], partitions=4, workers=1) as system:
        system.start()
        assert system.origin is not None
        feed = Feed(system.origin.bootstrap, load.name)
        feed.start()
        for make in strikes:
            nemesis = make(system, rng)
            try:
                nemesis.strike()
            finally:
                nemesis.heal()
            assert nemesis.struck, nemesis.name
        assert feed.is_alive(), "all was sent before the last strike"
        feed.hurry()
        feed.join()
        assert feed.left == 0
        (history,) = system.drain()
        source = system.source

    hops = [input_.header(wire_names.HEADER_HOP) for input_ in history.inputs]
    assert len(source) == len(set(hops)) == GROUPS * EACH
    assert len(hops) > len(set(hops)), "nothing was sent again"
    assert len(history.accepted) == GROUPS * EACH
    by_group: defaultdict[bytes | None, list[int]] = defaultdict(list)
    for item in sorted(history.accepted, key=lambda record: (record.partition, record.offset)):
        by_group[item.key].append(int(item.value or b""))
    assert len(by_group) == GROUPS
    assert all(value == list(range(EACH)) for value in by_group.values())
    assert check(history) == []
    assert crossed(source, history, ids_ignored=False) == []
