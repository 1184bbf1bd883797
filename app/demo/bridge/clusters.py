"""The two clusters of the demo, and the configuration of their workers and bridge."""

import json
from pathlib import Path
from typing import Final

from app.embedded import ports
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import HOST
from app.embedded.link import TcpProxy
from app.embedded.server_files import Listener, listener_properties

ADDRESS: Final = "orders"
BRIDGE: Final = "to-paris"
PARTITIONS: Final = 4
ORIGIN: Final = "berlin"
TARGET: Final = "paris"
LINK: Final = "LINK"


class Clusters:
    """Two brokers that are not started yet, and a link to the target that only the bridge uses."""

    def __init__(self, directory: Path, messages: int) -> None:
        plain, controller, inner, outer = ports.choose_several(HOST, 4)
        properties = listener_properties(
            HOST, plain, controller, {LINK: Listener(inner, advertised_port=outer)}
        )
        self.origin: Final = EmbeddedBroker(directory / ORIGIN / "broker")
        self.target: Final = EmbeddedBroker(directory / TARGET / "broker", plain, properties=properties)
        self.link: Final = TcpProxy(inner, outer)
        self._directory = directory
        self._messages = messages

    def configuration(self, name: str, web_port: int) -> Path:
        """Write the configuration of one side's worker, at the origin with the bridge; return the file."""
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
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        return path
