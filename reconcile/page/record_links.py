"""Places of an anomaly's records, and commands that print them. Pure."""

import shlex
from typing import Final, NamedTuple

from reconcile.page.report_data import Finding

_PRINTED: Final = ("timestamp", "partition", "offset", "headers", "key")
TIMEOUT_MS: Final = 10_000  # do not wait longer for a record that was deleted


class Place(NamedTuple):
    """Place of one record."""

    role: str
    topic: str
    partition: int
    offset: int
    gone: bool = False  # the record was deleted or replaced


def places(finding: Finding) -> list[Place]:
    """Return the known places of a finding: input, output, and other input."""
    named = (
        ("input", finding.topic, finding.partition, finding.offset),
        ("output", finding.out_topic, finding.out_partition, finding.out_offset),
        ("other input", finding.topic, finding.other_partition, finding.other_offset),
    )
    there = [
        Place(role, topic, partition, offset)
        for role, topic, partition, offset in named
        if topic is not None and partition is not None and offset is not None
    ]
    return [item._replace(gone=finding.gone and at == 0) for at, item in enumerate(there)]


def readable(place: Place, servers: str) -> bool:
    """Return whether a command may print the record: it exists, and no name has control characters."""
    if place.gone:
        return False
    return place.offset >= 0 and place.partition >= 0 and f"{place.topic}{servers}".isprintable()


def kcat(place: Place, servers: str) -> str:
    """Return a kcat command for one record with headers, key and value."""
    return shlex.join(
        ["kcat", "-C", "-b", servers, "-t", place.topic, "-p", str(place.partition), "-o", str(place.offset),
         "-c", "1", "-e", "-f", r"%p/%o %h %k %s\n"]
    )  # fmt: skip


def console_consumer(place: Place, servers: str) -> str:
    """Return a command of Kafka's own tool for one record (option names of 4.1)."""
    command = [
        "kafka-console-consumer.sh", "--bootstrap-server", servers, "--topic", place.topic,
        "--partition", str(place.partition), "--offset", str(place.offset),
        "--max-messages", "1", "--timeout-ms", str(TIMEOUT_MS),
    ]  # fmt: skip
    for item in _PRINTED:
        command += ["--property", f"print.{item}=true"]
    return shlex.join(command)
