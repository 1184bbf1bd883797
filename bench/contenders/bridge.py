"""A bridge as anyone would start it: ``ringfence bridge``, one bridge."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.embedded import ports
from bench.contenders.ringfence import HOST
from ringfence_kafka.protocol import wire_names

NAME: Final = "bench"


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge that is ready to be started; its topics exist, but for its quarantine, which it makes itself."""

    command: tuple[str, ...]
    """To be run from the root of the project, after ``python``."""
    group: str
    more_topics: tuple[str, ...]
    """Topics that it makes at the target."""


def prepare(folder: Path, source: str, topic: str, target: str, output: str, app_id: str) -> Bridge:
    """Write the configuration.

    Args:
        folder: For it; is made.
        source: ``host:port`` of the source cluster.
        topic: What is forwarded.
        target: ``host:port`` of the target cluster, as the bridge is to reach it.
        output: The target topic.
        app_id: Another one for each run: it begins where its group stands.
    """
    folder.mkdir(parents=True)
    config = folder / "ringfence.toml"
    config.write_text(
        f"""\
[kafka]
bootstrap_servers = "{source}"
[app]
id = "{app_id}"
[[bridges]]
name = "{NAME}"
source_topic = "{topic}"
target_address = "{output}"
[bridges.target]
bootstrap_servers = "{target}"
""",
        "utf-8",
    )
    return Bridge(
        ("-m", "app", "bridge", "--config", str(config), "--web-port", str(ports.choose(HOST))),
        wire_names.bridge_group(app_id, NAME),
        (wire_names.bridge_quarantine_topic(NAME),),
    )
