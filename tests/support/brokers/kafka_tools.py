"""Kafka's own tools, as operators run them: those of its distribution's ``bin``."""

import subprocess
from typing import Final, NamedTuple

from app.embedded import jars
from app.embedded.jars import KAFKA_VERSION, LOGGING, Bundle
from ringfence_kafka.process import java

JARS: Final = Bundle(
    f"Kafka's tools {KAFKA_VERSION}",
    f"kafka-tools-{KAFKA_VERSION}",
    (("org.apache.kafka", "kafka-tools", KAFKA_VERSION), LOGGING),
    41,
)
LIMIT_S: Final = 180.0


class Standing(NamedTuple):
    """A row of ``kafka-consumer-groups.sh --describe``."""

    topic: str
    partition: int
    offset: int | None
    """None = the group has no offset there."""
    end: int
    lag: int | None
    member: str
    """Client ID; ``-`` = the partition has no member."""


def standings(bootstrap: str, *groups: str) -> list[Standing]:
    """Return the rows of ``kafka-consumer-groups.sh --describe`` for these groups."""
    named = [word for group in groups for word in ("--group", group)]
    done = subprocess.run(
        [
            str(java.find()), "-XX:TieredStopAtLevel=1", "-cp", jars.class_path(bundle=JARS),
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server", bootstrap, "--describe", *named,
        ],
        capture_output=True, text=True, check=True, timeout=LIMIT_S,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    assert rows, done.stderr
    names = [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    assert rows[0] == names, rows[0]
    return [
        Standing(topic, int(partition), _number(offset), int(end), _number(lag), client)
        for group, topic, partition, offset, end, lag, _, _, client in rows
        if group in groups
    ]


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)
