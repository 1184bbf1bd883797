"""The two clusters of the demo, what runs on them, and how far it is, seen from outside."""

import json
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from app.embedded import listeners
from app.embedded.broker import EmbeddedBroker
from app.embedded.link import TcpProxy
from app.embedded.listeners import Listener

ADDRESS: Final = "orders"
BRIDGE: Final = "to-paris"
PARTITIONS: Final = 4
ORIGIN: Final = "berlin"
TARGET: Final = "paris"
ANSWER_LIMIT_S: Final = 10.0
LINK: Final = "LINK"


class Clusters:
    """Two brokers, and a link to the target that only the bridge uses. Nothing is started."""

    def __init__(self, directory: Path, messages: int) -> None:
        plain, controller, inner, outer = listeners.free_ports(4)
        properties = listeners.properties(plain, controller, {LINK: Listener(inner, advertised_port=outer)})
        self.origin: Final = EmbeddedBroker(directory / ORIGIN / "broker")
        self.target: Final = EmbeddedBroker(directory / TARGET / "broker", plain, properties=properties)
        self.link: Final = TcpProxy(inner, outer)
        self._directory = directory
        self._messages = messages

    def configuration(self, name: str, web_port: int) -> Path:
        """The file of one side's worker; the origin's has the bridge, too."""
        broker = self.origin if name == ORIGIN else self.target
        text = f"""\
[kafka]
bootstrap_servers = {json.dumps(broker.bootstrap_servers)}
[app]
id = "{name}"
data_dir = {json.dumps(str(self._directory / name / "state"))}
instance = "worker"
web_port = {web_port}
[[addresses]]
name = "{ADDRESS}"
partitions = {PARTITIONS}
id_cache_size = {2 * self._messages}
"""
        if name == ORIGIN:
            text += f"""
[[bridges]]
name = "{BRIDGE}"
source_topic = "{ADDRESS}.accepted"
target_address = "{ADDRESS}"
[bridges.target]
bootstrap_servers = {json.dumps(self.link.bootstrap)}
"""
        path = self._directory / name / "ringfence.toml"
        path.write_text(text, "utf-8")
        return path


class Ends:
    """Where the partitions of a topic end, as a reader sees it; and what a group has committed there."""

    def __init__(self, bootstrap: str, topic: str, group: str = "demo-ends") -> None:
        self._partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,  # asked, not joined
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )

    def written(self) -> int:
        """Records and markers of transactions."""
        return sum(
            self._consumer.get_watermark_offsets(partition, timeout=ANSWER_LIMIT_S)[1]
            for partition in self._partitions
        )

    def committed(self) -> int:
        """Up to where the group has committed."""
        found = self._consumer.committed(self._partitions, ANSWER_LIMIT_S)
        return sum(max(topic_partition.offset, 0) for topic_partition in found)

    def close(self) -> None:
        """No more questions."""
        self._consumer.close()
