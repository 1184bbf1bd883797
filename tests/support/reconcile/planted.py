"""Histories planted by hand in real topics, and the run that judges them."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession

from reconcile import job
from reconcile.page import pages
from reconcile.run.history.history import RunHistory
from reconcile.run.verdict import judge
from reconcile.session import session
from reconcile.spark import topic_reader
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import table, wait_for

Headers = tuple[tuple[str, bytes | None], ...]


class In(NamedTuple):
    """An input record that is in its topic."""

    address: str
    partition: int
    offset: int
    id: bytes | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int

    @property
    def source(self) -> bytes:
        return f"{self.address}/{self.partition}/{self.offset}".encode()


class Part(NamedTuple):
    """Part of a transaction, as its producer writes it."""

    key: str | None = "g"
    value: str = "value"
    address: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Transaction(NamedTuple):
    """An envelope that is in its topic."""

    name: str
    record: In
    parts: tuple[Part, ...]


PARTITIONS: Final = 2
SOURCE: Final = b"to-paris/AAAAAAAAAAAAAAAAAAAAAA/0"
"""Source of a bridge: one partition of a topic."""
SENT_AT: Final = 1_795_219_200_000
"""Time of all transactions in ms: an output has the same."""


class World:
    """Topics of some addresses, and the records planted in them. Offsets are counted, so nobody else may write here."""

    def __init__(self, bootstrap: str, folder: Path, addresses: dict[str, dict[str, Any]]) -> None:
        self.bootstrap = bootstrap
        self.app_id = kafka.unique("planted")
        self.names = {address: f"{self.app_id}-{address}" for address in addresses}
        entries = [
            {"name": self.names[name], "partitions": PARTITIONS, **self._keys(keys)}
            for name, keys in addresses.items()
        ]
        self.document = {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": self.app_id, "data_dir": str(folder / "data")},
            # What a ring may forget is planted on its own: any share of the duplicates may be.
            "reconcile": {"state_dir": str(folder / "state"), "master": "local[2]", "overrun_max": 1},
            "addresses": entries,
        }
        self.settings: Settings = validate(self.document)
        self.journal = f"{self.app_id}-journal"
        topics: dict[str, tuple[int, dict[str, str]]] = {self.journal: (1, {})}
        for address in self.settings.addresses:
            for role, topic in address.topics(self.app_id).items():
                if role != "changelog":
                    topics[topic] = (PARTITIONS, {})
        kafka.create_topics(bootstrap, topics)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._next: Counter[tuple[str, int]] = Counter()
        self._sequences: Counter[str] = Counter()
        """By address, the number of IDs that its ring has accepted; one lane, unless a test chooses otherwise."""

    def arrive(
        self,
        name: str,
        id: bytes | None = None,  # noqa: A002 - its name
        key: bytes | None = b"g",
        partition: int = 0,
        value: bytes | None = b"value",
        headers: Headers = (("trace", b"1"), ("empty", None)),
        timestamp: int = 0,
    ) -> In:
        address = self.names[name]
        timestamp = timestamp or round(time.time() * 1000)
        kafka.produce(self._producer, address, Sent(id, key, value, headers, timestamp), partition)
        offset = self._next[address, partition]
        self._next[address, partition] += 1
        own: Headers = () if id is None else (("_AMQ_DUPL_ID", id),)
        return In(address, partition, offset, id, key, value, headers + own, timestamp)

    def bridge(
        self,
        name: str,
        offset: int,
        confirmed: int | None = 0,
        *,
        ids: bytes | None = None,
        passed: bytes | None = None,
        source: bytes = SOURCE,
        more: Headers = (),
        **kept: Any,
    ) -> In:
        """Write an input record that came over a bridge, with this offset of its source. ``ids``, ``passed``: headers; None = left out."""
        told = {
            "_RF_BRIDGE_DUPL_ID": b"%b/%d" % (source, offset),
            "_RF_BRIDGE_CONFIRMED": None if confirmed is None else b"%d" % confirmed,
            "_RF_BRIDGE_IDS": ids,
            "_RF_HOPS": passed,
        }
        hop = tuple((name, value) for name, value in told.items() if value is not None)
        return self.arrive(name, headers=(("trace", b"1"), *more, *hop), **kept)

    def transact(
        self,
        name: str,
        *parts: Part,
        id: bytes | None = None,  # noqa: A002 - its name
        key: bytes | None = b"g",
        partition: int = 0,
        more: Headers = (),
    ) -> Transaction:
        written: list[dict[str, Any]] = []
        for part in parts:
            named = [{"name": header, "value": value} for header, value in part.headers]
            written.append({"key": part.key, "value": part.value, "headers": named})
            if part.address is not None:
                written[-1]["address"] = self.names.get(part.address, part.address)
        value = json.dumps({"parts": written}).encode()
        headers: Headers = (("_RF_TX", b"json/1"), *more)
        return Transaction(name, self.arrive(name, id, key, partition, value, headers, SENT_AT), parts)

    def accept_parts(self, transaction: Transaction, *numbers: int, **changes: Any) -> None:
        """Write all accepted parts, or those with these numbers, as a worker does, but for the changes."""
        told = self._told(transaction)
        for number in numbers or range(1, len(transaction.parts) + 1):
            part = transaction.parts[number - 1]
            count = len(transaction.parts)
            kept: dict[str, Any] = {
                "key": None if part.key is None else part.key.encode(),
                "value": part.value.encode(),
                "headers": tuple((name, value.encode()) for name, value in part.headers),
                "number": b"%d/%d" % (number, count),
                "to": part.address or transaction.name,
                "timestamp": SENT_AT,
                "partition": 0,
                "verdict": (),
                **changes,
            }
            ours = (
                ("_RF_SOURCE", transaction.record.source),
                ("_RF_TX_PART", kept["number"]),
                *kept["verdict"],
            )
            headers = (*kept["headers"], *told[number - 1], *ours)
            sent = Sent(None, kept["key"], kept["value"], headers, kept["timestamp"])
            self._out(f"{self.names[kept['to']]}.accepted", kept["partition"], sent)

    def _keys(self, keys: dict[str, Any]) -> dict[str, Any]:
        """Return the keys of an address, with the names of others resolved. ``feeder``: the address whose accepted topic is its input."""
        found = dict(keys)
        if "transaction_addresses" in keys:
            found["transaction_addresses"] = [self.names[key] for key in keys["transaction_addresses"]]
        if "feeder" in keys:
            topic = f"{self.names[found.pop('feeder')]}.accepted"
            found |= {"input_topic": topic, "accepted_topic": f"{topic}.accepted"}
        return found

    def _told(self, transaction: Transaction) -> list[Headers]:
        """Return the sequence numbers of its parts: a ring takes the envelope's own ID first, and each ID once."""
        ids = [dict(part.headers).get("_AMQ_DUPL_ID") for part in transaction.parts]
        of_parts = [None if item is None else item.encode() for item in ids]
        own = transaction.record.id
        known = [item for item in dict.fromkeys([own, *of_parts]) if item is not None]
        numbers = {item: self._sequence(transaction.record) for item in known}
        return [() if (leading := item or own) is None else numbers[leading] for item in of_parts]

    def _sequence(self, record: In) -> Headers:
        """Return the header of the next ID that its lane accepts; no header if its address does not set `lanes`."""
        addresses = self.settings.addresses
        if not any(item.lanes for item in addresses if record.address in {item.name, item.input_topic}):
            return ()
        self._sequences[record.address] += 1
        return (("_RF_SEQ", b"%d" % self._sequences[record.address]),)

    def accept(self, *records: In, partition: int = 0, **changes: Any) -> None:
        for record in records:
            left = tuple(header for header in record.headers if not header[0].startswith("_RF_BRIDGE_"))
            told = () if record.id is None else self._sequence(record)
            kept = {"headers": (*left, *told), **changes}
            self._out(f"{record.address}.accepted", partition, self._written(record, (), kept))

    def divert(self, record: In, original: In | None) -> None:
        named = (("_RF_ORIGINAL", original.source if original else None),)
        self._out(f"{record.address}.duplicates", 0, self._written(record, named, {}))

    def quarantine(self, record: In, **changes: Any) -> None:
        self._out(
            f"{record.address}.quarantine", 0, self._written(record, (("_RF_REASON", b"bad"),), changes)
        )

    def forward(self, record: In, lane: int) -> None:
        topic = f"{self.app_id}-{record.address}-forward"
        came = record.timestamp.to_bytes(8, "big", signed=True)
        self._out(topic, lane, self._written(record, (("_RF_TIMESTAMP", came),), {}))

    def tell(
        self,
        name: str,
        lane: int,
        before: int,
        after: int,
        offset: int,
        *,
        of: str = "",
    ) -> None:
        """Write the journal's record of a cleared ring; ``of``: prefix of its address's name."""
        address = self.names[name]
        following = {address: offset, f"{self.app_id}-{address}-forward": 0}
        self._tell("cleared", f"{of}{address}", lane, before, after, format=1, next=following)

    def tell_lanes(self, name: str, event: str, before: int, after: int, offsets: tuple[int, ...]) -> None:
        """Write the journal's record on the lane of an address with one lane; ``offsets``: by partition."""
        address = self.names[name]
        following = {f"{address}/{partition}": offset for partition, offset in enumerate(offsets)}
        self._tell(event, address, 0, before, after, format=3, lanes=1, next=following)

    def _tell(self, event: str, address: str, lane: int, before: int, after: int, **more: Any) -> None:
        told = {"event": event, "address": address, "lane": lane, "before": before, "after": after, **more}
        self._out(self.journal, 0, Sent(None, b"lane", json.dumps(told).encode()))

    def abort(self, topic: str, count: int) -> None:
        self.flush()
        records = [Sent(b"aborted-%d" % index, b"g") for index in range(count)]
        kafka.send_in_transaction(self.bootstrap, topic, records, commit=False, partition=0)
        self._next[topic, 0] += count + 1

        def marked() -> bool:
            return kafka.end_offsets(self.bootstrap, topic, 1)[0] == self._next[topic, 0]

        wait_for(marked, lambda: f"no marker in {topic}")

    def commit(self, *names: str, forward: int | None = None) -> None:
        """Commit the workers' offsets behind all input so far, and behind so much of the forward topic, or all of it, in each lane."""
        self.flush()
        offsets: list[TopicPartition] = []
        for name in names or tuple(self.names):
            address = self.settings.configured(self.names[name])
            came, topic = address.input_topic, f"{self.app_id}-{address.name}-forward"
            for index in range(PARTITIONS):
                offsets.append(TopicPartition(came, index, self._next[came, index]))
                if address.lanes != 1:
                    behind = self._next[topic, index] if forward is None else forward
                    offsets.append(TopicPartition(topic, index, behind))
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.app_id})
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    def delete_before(self, topic: str, offset: int) -> None:
        self.flush()
        kafka.delete_before(self.bootstrap, topic, offset)

    def flush(self) -> None:
        assert self._producer.flush(kafka.WAIT_S) == 0

    def config(self, folder: Path) -> Path:
        document: Any = self.document
        sections = [table(f"[{name}]", document[name]) for name in ("kafka", "app", "reconcile")]
        addresses = [table("[[addresses]]", address) for address in document["addresses"]]
        path = folder / "planted.toml"
        path.write_text("".join([*sections, *addresses]))
        return path

    def _written(self, record: In, more: Headers, changes: dict[str, Any]) -> Sent:
        kept = {**record._asdict(), "source": record.source, **changes}
        source: Headers = () if kept["source"] is None else (("_RF_SOURCE", kept["source"]),)
        return Sent(None, kept["key"], kept["value"], (*kept["headers"], *more, *source), kept["timestamp"])

    def _out(self, topic: str, partition: int, record: Sent) -> None:
        kafka.produce(self._producer, topic, record, partition)
        self._next[topic, partition] += 1


History = tuple[Callable[[World, str], None], dict[str, Any], dict[str, int]]
"""A function that plants records in an address, keys of the address, and the anomalies that a run must find there."""


def anomalies(document: dict[str, Any], world: World) -> dict[str, dict[str, int]]:
    return {
        item: {kind: n for kind, n in document["addresses"][name]["anomalies"].items() if n}
        for item, name in world.names.items()
    }


class Judged(NamedTuple):
    """A run over planted histories, with an address for each."""

    world: World
    document: dict[str, Any]
    rows: Sequence[Row]

    def summary(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.document["addresses"][self.world.names[name]]
        return found

    def found(self, name: str) -> dict[str, int]:
        return anomalies(self.document, self.world)[name]

    def details(self, name: str) -> list[tuple[Any, ...]]:
        address = self.world.names[name]
        return [
            (row["anomaly"], row["offset"], row["detail"]) for row in self.rows if row["address"] == address
        ]


def set_few(patch: pytest.MonkeyPatch, records: int) -> None:
    for module in (judge, session, topic_reader):
        patch.setattr(module, "FEW", records)


def judged_histories(
    bootstrap: str, spark: SparkSession, folder: Path, histories: Mapping[str, History]
) -> Judged:
    """Plant histories by the names of their addresses, and judge all of them in one run, which draws no page: each address takes time."""
    world = World(bootstrap, folder, {name: keys for name, (_, keys, _) in histories.items()})
    for name, (plant, _, _) in histories.items():
        plant(world, name)
    world.commit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "written", lambda _: None)
        document, found = judged_run(spark, world.settings, folder / "out")
    return Judged(world, document, found.collect())


def judged_run(spark: SparkSession, settings: Settings, out: Path) -> tuple[dict[str, Any], DataFrame]:
    runs = RunHistory.load(LocalFiles(settings.runs_dir))
    document = job.judge(spark, settings, runs, job.surveyed(settings), LocalFiles(str(out)))
    return document, spark.read.parquet(str(out / "anomalies"))
