"""Judges a run from Kafka alone: a program of its own that imports nothing of Ringfence.

A checker that shared code with the checked would share its mistakes. So this one knows the wire only: a duplicate
ID is in the header ``_AMQ_DUPL_ID``, and every accepted record names its input record in ``_RF_SOURCE``. It reads all
of both sides with ``isolation.level=read_committed`` and compares.

    python check.py --bootstrap HOST:PORT --topics orders=orders.accepted [--topics ...] [--seconds S] [--killed FILE]

Exit codes: 0 exact, 1 not exact, 2 could not judge.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from rich.console import Console
from rich.table import Table

ID_HEADER: Final = "_AMQ_DUPL_ID"
SOURCE_HEADER: Final = "_RF_SOURCE"
SILENCE_LIMIT_S: Final = 60.0
"""Longer than the broker keeps an abandoned transaction open; after that nothing more is to be expected."""
FAULTS_SHOWN: Final = 10
WIDTH_MIN: Final = 110

Place = tuple[int, int]
"""Partition and offset of an input record."""
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as Kafka returned it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int

    @property
    def place(self) -> Place:
        """Where it is in its topic."""
        return self.partition, self.offset

    @property
    def identity(self) -> bytes | Place:
        """What makes it the same message as another: its ID (the last of several); without one, only itself."""
        duplicate_id = dict(self.headers).get(ID_HEADER)
        return self.place if duplicate_id is None else duplicate_id


@dataclass
class Judgement:
    """What was found at one address. The lists describe one fault an entry."""

    address: str
    sent: int = 0
    distinct: int = 0
    accepted: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    straddling: int = 0
    """Resends that came after the kill and whose original was consumed before it."""

    @property
    def exact(self) -> bool:
        """Every distinct message was accepted once, in order, unchanged."""
        return not (self.lost or self.doubled or self.out_of_order or self.changed)


class CannotJudgeError(Exception):
    """Kafka did not let us see all of it."""


def judge(address: str, inputs: Iterable[Record], outputs: Iterable[Record]) -> Judgement:
    """Compare what went in with what came out; both in the order of their partitions and offsets."""
    found = Judgement(address)
    by_place: dict[Place, Record] = {}
    first: dict[bytes | Place, Place] = {}
    for record in inputs:
        by_place[record.place] = record
        first.setdefault(record.identity, record.place)
    times: Counter[bytes | Place] = Counter()
    order = _Order()
    for output in outputs:
        found.accepted += 1
        place = _source(address, output)
        original = None if place is None else by_place.get(place)
        if original is None:
            found.changed.append(f"{_shown(output)}: names no input record in {SOURCE_HEADER}")
            continue
        name = f"{address}/{original.partition}/{original.offset} {_shown(original)}"
        if parts := _differences(original, output):
            found.changed.append(f"{name}: {', '.join(parts)} not as in the input")
        identity = original.identity
        times[identity] += 1
        if times[identity] > 1:
            found.doubled.append(f"{name}: accepted {times[identity]} times")
        elif first[identity] != original.place:
            found.out_of_order.append(f"{name}: accepted in place of its original")
        elif fault := order.fault(original, output):
            found.out_of_order.append(f"{name}: {fault}")
    found.sent, found.distinct = len(by_place), len(first)
    found.lost = [
        f"{address}/{place[0]}/{place[1]} {_shown(by_place[place])}: not accepted"
        for identity, place in first.items()
        if identity not in times
    ]
    return found


class _Order:
    """Follows each group through the accepted topic."""

    def __init__(self) -> None:
        self._last: dict[tuple[bytes, int], int] = {}
        self._home: dict[bytes, int] = {}

    def fault(self, original: Record, output: Record) -> str | None:
        """What is wrong with the place of this output; None = nothing. Messages without a group have no order."""
        group = original.key
        if group is None:
            return None
        if self._home.setdefault(group, output.partition) != output.partition:
            return f"its group is in the accepted partitions {self._home[group]} and {output.partition}"
        before = self._last.get((group, original.partition), -1)
        if original.offset < before:
            return f"accepted after offset {before} of its group"
        self._last[group, original.partition] = original.offset
        return None


def straddling(inputs: Iterable[Record], killed_at: Mapping[int, int]) -> int:
    """Resends at or after the killed worker's position in their partition, of an original before it."""
    before = set()
    count = 0
    for record in inputs:
        if record.offset < killed_at.get(record.partition, 0):
            before.add(record.identity)
        elif record.identity in before:
            count += 1
    return count


def _source(address: str, output: Record) -> Place | None:
    """The place that the output names; None unless it names exactly one, in this topic."""
    values = [value for name, value in output.headers if name == SOURCE_HEADER]
    if len(values) != 1 or values[0] is None:
        return None
    topic, *numbers = values[0].decode("utf-8", "replace").split("/")
    if topic != address or len(numbers) != 2 or not all(each.isdecimal() for each in numbers):  # noqa: PLR2004
        return None
    return int(numbers[0]), int(numbers[1])


def _differences(original: Record, output: Record) -> list[str]:
    headers = tuple(each for each in output.headers if each[0] != SOURCE_HEADER)
    pairs = {
        "key": (original.key, output.key),
        "value": (original.value, output.value),
        "headers": (original.headers, headers),
        "timestamp": (original.timestamp, output.timestamp),
    }
    return [name for name, (before, after) in pairs.items() if before != after]


def _shown(record: Record) -> str:
    duplicate_id = dict(record.headers).get(ID_HEADER)
    return f"(group {_text(record.key)}, ID {_text(duplicate_id)})"


def _text(value: bytes | None) -> str:
    return "none" if value is None else value.decode("utf-8", "replace")


# -- reading ---------------------------------------------------------------------------------------------------


def read(bootstrap: str, topic: str) -> list[Record]:
    """All committed records of a topic, by partition and offset.

    Raises:
        CannotJudgeError: the topic does not exist, does not answer, or a transaction on it stays open.
    """
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "check",  # required by the client; nothing is ever committed to it
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }
    reader = Consumer(options | {"isolation.level": "read_committed"})
    witness = Consumer(options | {"isolation.level": "read_uncommitted"})
    try:
        partitions = _partitions(reader, topic)
        _await_no_open_transaction(reader, witness, partitions)
        return _read_to_end(reader, partitions)
    except KafkaException as error:
        raise CannotJudgeError(f"topic {topic}: {error.args[0].str()}") from error
    finally:
        reader.close()
        witness.close()


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    described = consumer.list_topics(topic, timeout=SILENCE_LIMIT_S).topics[topic]
    if described.error is not None:
        raise CannotJudgeError(f"topic {topic}: {described.error.str()}")
    return [TopicPartition(topic, number, 0) for number in sorted(described.partitions)]


def _await_no_open_transaction(
    reader: Consumer, witness: Consumer, partitions: Sequence[TopicPartition]
) -> None:
    """Wait until all that was written is decided: an open transaction hides whatever stands behind it."""
    deadline = time.monotonic() + SILENCE_LIMIT_S
    for each in partitions:
        while _end(reader, each) != _end(witness, each):
            if time.monotonic() > deadline:
                raise CannotJudgeError(f"a transaction on {each.topic}/{each.partition} stays open")
            time.sleep(0.1)


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    offsets = consumer.get_watermark_offsets(partition, timeout=SILENCE_LIMIT_S)
    if offsets is None:
        raise CannotJudgeError(f"{partition.topic}/{partition.partition} does not answer")
    return int(offsets[1])


def _read_to_end(consumer: Consumer, partitions: list[TopicPartition]) -> list[Record]:
    records: list[Record] = []
    ended: set[int | None] = set()
    consumer.assign(partitions)
    deadline = time.monotonic() + SILENCE_LIMIT_S
    while len(ended) < len(partitions):
        messages = consumer.consume(5_000, timeout=0.5)
        if messages:
            deadline = time.monotonic() + SILENCE_LIMIT_S
        elif time.monotonic() > deadline:
            raise CannotJudgeError(f"topic {partitions[0].topic} stopped answering before its end")
        for message in messages:
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name for it
                    raise KafkaException(error)
                ended.add(message.partition())
                continue
            records.append(
                Record(
                    message.partition() or 0,
                    message.offset() or 0,
                    _bytes(message.key()),
                    _bytes(message.value()),
                    _headers(message),
                    message.timestamp()[1],
                )
            )
    return sorted(records, key=lambda record: record.place)


def _headers(message: Message) -> Headers:
    found = message.headers() or ()
    return tuple(
        (name, _bytes(value)) for name, value in (found.items() if isinstance(found, dict) else found)
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


# -- showing ---------------------------------------------------------------------------------------------------


def table(judgements: Sequence[Judgement], seconds: float) -> Table:
    """A row an address and a total; what must be 0 and is not, in red."""
    made = Table(
        title="What went in against what came out, read from Kafka by a program that is not Ringfence"
    )
    made.add_column("address")
    for column in (
        "sent", "distinct", "accepted", "lost", "doubled", "out of order", "changed", "seconds", "messages/s",
    ):  # fmt: skip
        made.add_column(column, justify="right")
    rows = [(each.address, _numbers(each)) for each in judgements]
    total = [sum(column) for column in zip(*(numbers for _, numbers in rows), strict=True)]
    rows.append(("total", total))
    for name, numbers in rows:
        if numbers is total:
            made.add_section()
        cells = [f"{number:,}" for number in numbers[:3]]
        cells += [f"[bold red]{number:,}[/]" if number else "0" for number in numbers[3:]]
        speed = [f"{seconds:.1f}", f"{numbers[0] / seconds:,.0f}"] if seconds else ["", ""]
        made.add_row(name, *cells, *speed)
    return made


def _numbers(found: Judgement) -> list[int]:
    faults = (found.lost, found.doubled, found.out_of_order, found.changed)
    return [found.sent, found.distinct, found.accepted, *map(len, faults)]


def _report(console: Console, judgements: Sequence[Judgement], seconds: float) -> None:
    console.print(table(judgements, seconds))
    crossing = sum(each.straddling for each in judgements)
    if crossing:
        console.print(
            f"{crossing:,} resends came after the kill while their originals were consumed before it."
        )
    for title in ("lost", "doubled", "out_of_order", "changed"):
        faults = [fault for each in judgements for fault in getattr(each, title)]
        for fault in faults[:FAULTS_SHOWN]:
            console.print(
                f"{title.replace('_', ' ')}: {fault}", markup=False, highlight=False, soft_wrap=True
            )
        if len(faults) > FAULTS_SHOWN:
            console.print(f"{title.replace('_', ' ')}: and {len(faults) - FAULTS_SHOWN:,} more")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, judge, print the table; return the exit code."""
    parser = argparse.ArgumentParser(description="Compares input and accepted topics, record by record.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--topics", required=True, action="append", metavar="INPUT=ACCEPTED")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long the run took, for the table")
    parser.add_argument(
        "--killed", type=Path, help="JSON: input topic -> partition -> offset when the worker died"
    )
    options = parser.parse_args(arguments)
    killed = json.loads(options.killed.read_text("utf-8")) if options.killed else {}
    judgements = []
    try:
        for pair in options.topics:
            address, _, accepted = pair.partition("=")
            inputs = read(options.bootstrap, address)
            found = judge(address, inputs, read(options.bootstrap, accepted))
            found.straddling = straddling(inputs, {int(p): o for p, o in killed.get(address, {}).items()})
            judgements.append(found)
    except CannotJudgeError as error:
        sys.stderr.write(f"the check could not read everything: {error}\n")
        return 2
    console = Console()
    if not console.is_terminal:  # nobody's window limits the table
        console = Console(width=max(console.width, WIDTH_MIN))
    _report(console, judgements, options.seconds)
    return 0 if all(each.exact for each in judgements) else 1


if __name__ == "__main__":
    sys.exit(main())
