"""Parts of a world of consumers whose handlers send."""

from collections import defaultdict
from typing import Any, Final

from ringfence_client.sends.state_reader import StateCache
from ringfence_kafka.protocol import wire_names
from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.kafka.logs import Stored
from tests.simulator.loop import RUNNING
from tests.simulator.names import ACCEPTED, APP
from tests.simulator.sends.handlers import LEDGER, PLAIN

READERS: Final = "readers"
STATE: Final = wire_names.state_topic(APP, READERS, ACCEPTED)
TARGETS: Final = (PLAIN, LEDGER)


class WorldsCache(StateCache):
    """A state cache of the size that the world sets."""

    def __init__(self) -> None:
        loop: Any = RUNNING.loop
        super().__init__(loop.process.state_cache)


def create_targets(cluster: SimulatedCluster, partitions: int) -> None:
    cluster.create(PLAIN, 1)
    cluster.create(LEDGER, partitions + 1)


def sent(cluster: SimulatedCluster, topic: str) -> dict[bytes, list[tuple[int, Stored]]]:
    found: dict[bytes, list[tuple[int, Stored]]] = defaultdict(list)
    for log in cluster.topics[topic].logs:
        for record in log.committed():
            found[dict(record.headers)["t"] or b""].append((log.partition, record))
    return found
