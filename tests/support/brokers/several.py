"""A cluster of three real brokers that are controllers too: leaders move, replicas fall behind, coordinators change."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from app.embedded import data_folder, jars
from app.embedded.broker_process import HOST, BrokerProcess, java_command
from ringfence_kafka.errors import PrerequisiteError

COUNT: Final = 3
LIMIT_S: Final = 90.0
"""Time limit of a start, or for replicas to catch up on a busy machine, in seconds."""
_PROPERTIES: Final = {
    **dict.fromkeys(
        (
            "default.replication.factor",
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
            "share.coordinator.state.topic.replication.factor",
        ),
        str(COUNT),
    ),
    **dict.fromkeys(("min.insync.replicas", "transaction.state.log.min.isr"), "2"),
    # A replica that does not follow delays acknowledgements for this time: 5 s instead of the default 30.
    "replica.lag.time.max.ms": "5000",
    # followers of the controller need these records
    "metadata.max.idle.interval.ms": "500",
    # leaders return to the preferred replica only at a test's request
    "auto.leader.rebalance.enable": "false",
}


class Node(BrokerProcess):
    """Broker of the cluster. Its folder and ports stay the same over restarts."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder)
        self.number: Final = number
        self._command = java_command(jars.chosen_version())

    def format(self, cluster: str, voters: str) -> None:
        own = {"node.id": str(self.number), "controller.quorum.voters": voters}
        self._write_files(_PROPERTIES | own)
        data_folder.format_new(self.directory, self._command, cluster)

    def launch(self) -> None:
        """Start the process. It answers when enough other brokers do."""
        self._execute(self._command, ["-Xmx512m"], self.directory / "out")


class Several:
    """Cluster of several embedded brokers."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.bootstrap_servers: Final = ",".join(f"{HOST}:{node.port}" for node in nodes)
        # a request to a frozen broker lasts for the socket's timeout, by default a minute
        self._admin = AdminClient(
            {"bootstrap.servers": self.bootstrap_servers, "socket.timeout.ms": 3000, "log_level": 0}
        )

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self.nodes]

    def start(self) -> None:
        for node in self.nodes:
            if not node.running:
                node.launch()
        self.wait_whole()

    def wait_whole(self) -> None:
        self._wait(lambda: not self._missing(), self._missing)

    def wait_led(self, *gone: Node) -> None:
        numbers = {node.number for node in gone}
        self._wait(lambda: not numbers & set(self.leaders().values()), lambda: str(self.leaders()))

    def leaders(self) -> dict[tuple[str, int], int]:
        return {
            (name, number): partition.leader
            for name, topic in self._admin.list_topics(timeout=5).topics.items()
            for number, partition in topic.partitions.items()
        }

    def elect_preferred(self) -> None:
        self._admin.elect_leaders(ElectionType.PREFERRED).result(LIMIT_S)
        self._wait(lambda: not self._away(), self._away)

    def busiest(self, topics: Collection[str] = ()) -> Node:
        """Return the broker that leads most partitions of these topics; of all topics if none is named."""
        led = [leader for (topic, _), leader in self.leaders().items() if not topics or topic in topics]
        return max(self.nodes, key=lambda node: led.count(node.number))

    def _away(self) -> str:
        topics = self._admin.list_topics(timeout=5).topics
        return ", ".join(
            f"{name}/{number}"
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader != partition.replicas[0]
        )

    def _missing(self) -> str:
        try:
            metadata = self._admin.list_topics(timeout=5)
        except KafkaException as error:
            return str(error)
        if away := {node.number for node in self.nodes} - set(metadata.brokers):
            return f"brokers {away} are not there"
        behind = [
            f"{name}/{number}: {partition.isrs} of {partition.replicas}"
            for name, topic in metadata.topics.items()
            for number, partition in topic.partitions.items()
            if set(partition.isrs) != set(partition.replicas) or partition.leader not in partition.replicas
        ]
        return "; ".join(behind)

    def _wait(self, condition: Callable[[], bool], state: Callable[[], str]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(KafkaException):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise PrerequisiteError(
                    f"the cluster is not as it should be after {LIMIT_S:.0f} s: {state()}"
                )
            time.sleep(0.1)


@contextlib.contextmanager
def several(folder: Path) -> Iterator[Several]:
    nodes = [Node(folder / str(number), number) for number in range(1, COUNT + 1)]
    voters = ",".join(f"{node.number}@{HOST}:{node.controller_port}" for node in nodes)
    cluster = data_folder.new_cluster_id()
    with contextlib.ExitStack() as stack:
        for node in nodes:
            node.format(cluster, voters)
            stack.callback(node.kill)
        cluster_of = Several(nodes)
        cluster_of.start()
        yield cluster_of
