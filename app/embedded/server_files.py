"""The embedded broker's server.properties and log configuration.

All paths are relative to the broker's folder, its working directory. Paths need no escaping, and the folder
can be moved.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

NODE_ID: Final = 1
PLAINTEXT: Final = "PLAINTEXT"
CONTROLLER: Final = "CONTROLLER"
DATA: Final = "data"
LOG: Final = "broker.log"

LOG4J2: Final = f"""\
<Configuration status="warn" shutdownHook="disable">
  <Appenders>
    <RollingFile name="file" fileName="{LOG}" filePattern="{LOG}.%i">
      <PatternLayout pattern="%d %-5p %m (%c)%n"/>
      <Policies><SizeBasedTriggeringPolicy size="16 MB"/></Policies>
      <DefaultRolloverStrategy max="1"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Logger name="org.apache.kafka.common.config.AbstractConfig" level="warn"/>
    <Root level="info"><AppenderRef ref="file"/></Root>
  </Loggers>
</Configuration>
"""
"""Log configuration: at most 32 MB, without the 300 lines of each start that repeat the configuration.

log4j's shutdown hook is off, because it would end the log before Kafka's last lines.
"""


class Listener(NamedTuple):
    """Additional port on which a broker listens."""

    port: int
    protocol: str = PLAINTEXT
    advertised_port: int = 0
    """Port that the broker advertises to clients; 0 = the same port."""


def listener_properties(
    host: str, plain_port: int, controller_port: int, further: Mapping[str, Listener]
) -> dict[str, str]:
    """Return the properties of all listeners: broker, controller, and ``further`` ones by name."""
    public = {PLAINTEXT: Listener(plain_port), **further}
    everything = {**public, CONTROLLER: Listener(controller_port)}
    return {
        "listeners": ",".join(f"{name}://{host}:{item.port}" for name, item in everything.items()),
        "advertised.listeners": ",".join(
            f"{name}://{host}:{item.advertised_port or item.port}" for name, item in public.items()
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{item.protocol}" for name, item in everything.items()
        ),
        "controller.quorum.voters": f"{NODE_ID}@{host}:{controller_port}",
    }


def server_properties(host: str, port: int, controller_port: int, overrides: Mapping[str, str]) -> str:
    """Return the text of server.properties for one node that is broker and controller.

    It sets only what a single node or a fast start needs. Everything else, such as the verification of
    transactions, is Kafka's default.
    """
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        **listener_properties(host, port, controller_port, {}),
        "controller.listener.names": CONTROLLER,
        "log.dirs": DATA,
        # one node can hold only one replica
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # 50 partitions each would cost files and a second of start-up, and few clients use this broker
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "4",
        # the first consumer of a group does not need to wait for others
        "group.initial.rebalance.delay.ms": "0",
        # After a kill, the controller lets the broker register again when the killed one's session has
        # expired: 3 s instead of the default 9.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "1000",
        # only followers of the controller need its empty records, and a single node has no followers
        "metadata.max.idle.interval.ms": "0",
        # a misspelt topic must be an error, not a new topic
        "auto.create.topics.enable": "false",
        "log.cleaner.enable": "true",
    } | dict(overrides)
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file: as in JSON, and a leading blank, which Java would skip."""
    text = json.dumps(value)[1:-1]
    return f"\\{text}" if text.startswith(" ") else text
