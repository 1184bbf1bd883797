"""MirrorMaker 2 as a process of its own, exactly-once off: what Kafka itself brings along for the same job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.embedded import jars
from app.embedded.jars import KAFKA_VERSION, LOGGING, Bundle
from ringfence_kafka.process import java

JARS: Final = Bundle(
    f"MirrorMaker {KAFKA_VERSION}",
    f"mirror-maker-{KAFKA_VERSION}",
    (
        ("org.apache.kafka", "connect-mirror", KAFKA_VERSION),
        ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
        LOGGING,
    ),
    36,
)
TARGET: Final = "target"
BATCH_BYTES: Final = 512 * 1024
"""Batch size of its producer, as the bridge has it; its own default is 16 KiB."""
LINGER_MS: Final = 20
HEAP: Final = ("-Xms256M", "-Xmx2G")
"""As Kafka's own script has it."""
LOG4J2: Final = """\
<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="%d %p %m (%c)%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True)
class MirrorMaker:
    """Ready to be started; its output topic has to exist."""

    program: str
    command: tuple[str, ...]
    """After the program."""
    output: str
    """As its policy names topics."""
    more_topics: tuple[str, ...]
    """Topics that it makes at the target."""
    source_topics: tuple[str, ...]
    """And at the source."""


def prepare(folder: Path, source: str, topic: str, target: str, partitions: int, alias: str) -> MirrorMaker:
    """Write its properties; the first time its jars are fetched.

    Args:
        folder: For them; is made.
        source: ``host:port`` of the source cluster.
        topic: The mirrored topic.
        target: ``host:port`` of the target cluster, as MirrorMaker is to reach it.
        partitions: Partitions of the topic, and number of tasks.
        alias: Name of the source cluster, another one for each run: it begins at the stored offsets of that name.

    Raises:
        PrerequisiteError: no Java, or its jars could not be fetched.
    """
    folder.mkdir(parents=True)
    names = ("offset-syncs", "checkpoints", "heartbeats")
    kept = ("config", "offset", "status")
    given = {
        "clusters": f"{alias}, {TARGET}",
        f"{alias}.bootstrap.servers": source,
        f"{TARGET}.bootstrap.servers": target,
        f"{alias}->{TARGET}.enabled": "true",
        f"{alias}->{TARGET}.topics": topic,
        f"{alias}->{TARGET}.tasks.max": str(partitions),
        f"{TARGET}->{alias}.enabled": "false",
        # Its work beside mirroring is not compared.
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "refresh.groups.enabled": "false",
        f"{TARGET}.producer.batch.size": str(BATCH_BYTES),
        f"{TARGET}.producer.linger.ms": str(LINGER_MS),
        f"{TARGET}.producer.max.request.size": str(2 * BATCH_BYTES),
        "replication.factor": "1",
        **{f"{name}.topic.replication.factor": "1" for name in names},
        **{f"{name}.storage.replication.factor": "1" for name in kept},
    }
    properties = folder / "mirror-maker.properties"
    properties.write_text("".join(f"{key} = {value}\n" for key, value in given.items()), "utf-8")
    logging = folder / "log4j2.xml"
    logging.write_text(LOG4J2, "utf-8")
    return MirrorMaker(
        str(java.find()),
        (
            *HEAP, f"-Dlog4j2.configurationFile={logging}", "-cp", jars.class_path(bundle=JARS),
            "org.apache.kafka.connect.mirror.MirrorMaker", str(properties),
        ),
        f"{alias}.{topic}",
        tuple(f"mm2-{name}.{alias}.internal" for name in ("configs", "offsets", "status")),
        (f"mm2-offset-syncs.{TARGET}.internal",),
    )  # fmt: skip
