"""Known traffic gives known numbers: the results of ``ringfence audit`` on real topics."""

import contextlib
import dataclasses
import json
import math
import random
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from app.cli import main
from app.embedded.broker import EmbeddedBroker
from reconcile.audit import frames as homes_of
from reconcile.audit import job, partitioner
from reconcile.audit.job import figures
from reconcile.audit.resend_counts import confidence_of
from reconcile.audit.result import Audit
from reconcile.audit.topic import Wanted
from reconcile.job import opened
from reconcile.page.advice import with_headroom
from reconcile.session.spark_errors import EvidenceGoneError
from reconcile.spark.columns import small
from reconcile.spark.files import proved
from reconcile.spark.schemas import BYTES
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressDefaults, KafkaSettings
from ringfence_kafka.errors import MissingTopicError, PrerequisiteError
from tests.support import kafka
from tests.support.brokers.secured import PASSWORD, PASSWORD_VARIABLE, SecuredBroker
from tests.support.kafka import Sent, home
from tests.support.terminal import steps

START_MS = 1_760_000_000_000
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class At:
    """A record and its partition."""

    partition: int
    sent: Sent


class Lab:
    """Factory of topics, which audits them in one Spark session."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    def topic(self, name: str, partitions: int, records: Sequence[At] = (), **config: str) -> str:
        """Return a topic with these records, in this order."""
        topic = kafka.unique(f"audit-{name}")
        keys = {key.replace("_", "."): value for key, value in config.items()}
        kafka.create_topics(self.bootstrap, {topic: (partitions, keys)})
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for record in records:
            kafka.produce(producer, topic, record.sent, record.partition)
        assert producer.flush(kafka.WAIT_S) == 0
        return topic

    def request(self, topic: str, since: str = "", last: int | None = None, **settings: Any) -> job.Request:
        return job.Request(
            Wanted(topic, since, last),
            KafkaSettings(bootstrap_servers=self.bootstrap),
            AddressDefaults(**settings),
            "",
            confidence_of(CONFIDENCE),
            "local[2]",
        )

    def audit(self, topic: str, since: str = "", last: int | None = None, **settings: Any) -> Audit:
        request = self.request(topic, since, last, **settings)
        return job.counted(self.spark, request, job.asked(request))

    def said(self, audit: Audit) -> str:
        notes: Any = job.audit_document(audit)["notes"]
        return "\n".join(notes)


@pytest.fixture(scope="module")
def lab(spark: SparkSession, broker: EmbeddedBroker) -> Lab:
    return Lab(spark, broker.bootstrap_servers)


def quantile(values: Sequence[int], share: float) -> int:
    """Return the least value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(round(share * len(values), 6)) - 1]


def test_homes(spark: SparkSession) -> None:
    """Spark's own functions hash any bytes as Python does."""
    rng = random.Random(20)
    keys = [b"", b"\x00", b"\xff" * 8, *(rng.randbytes(rng.randrange(40)) for _ in range(500))]
    homes = [homes_of.home(F.col("key"), 7, name).alias(name) for name in partitioner.HASHES]
    frame = small(spark, [(key,) for key in keys], StructType([StructField("key", BYTES)]))
    rows = frame.select("key", *homes).collect()

    assert len(rows) == len(keys)
    for row in rows:
        assert {name: row[name] for name in partitioner.HASHES} == {
            name: partitioner.HASHES[name](bytes(row["key"])) % 7 for name in partitioner.HASHES
        }


@pytest.mark.long
def test_known_distances(lab: Lab) -> None:
    """Every number of keyed traffic is exactly that of a model with a dict for each lane."""
    partitions, rng = 3, random.Random(7)
    records: list[At] = []
    sent: list[tuple[bytes, bytes]] = []
    for number in range(600):
        group, identifier = b"g%d" % rng.randrange(12), b"id-%d" % number
        if sent and rng.random() < 0.3:
            group, identifier = rng.choice(sent[-rng.choice([1, 5, 200]) :])
        sent.append((group, identifier))
        stamp = START_MS + number * 60_000
        records.append(At(home(group, partitions), Sent(identifier, group, timestamp=stamp)))
    # Seconds, sent as milliseconds: the span is not fifty years for it.
    records.append(At(home(b"g0", partitions), Sent(b"odd", b"g0", timestamp=START_MS // 1000)))
    topic = lab.topic("known", partitions, records)
    distances, messages, seconds = modelled(records)
    audit = lab.audit(topic, id_cache_size=20)
    found = audit.found

    assert (audit.records, found.with_id, audit.far_off) == (601, 601, 1)
    assert (audit.first_ms, audit.last_ms) == (START_MS, START_MS + 599 * 60_000)
    assert sum(moment.records for moment in audit.moments) == 600
    assert found.resends == len(distances)
    assert (found.cross_lane, found.other_partition, found.forwarded) == (0, 0, 0)
    for spread, values in ((found.distance, distances), (found.messages, messages), (found.seconds, seconds)):
        expected = (quantile(values, 0.5), quantile(values, 0.99), max(values))
        assert (spread.p50, spread.p99, spread.max) == expected
    assert found.needed == quantile(distances, CONFIDENCE)
    assert audit.recommended == with_headroom(found.needed)
    assert found.within_needed == sum(distance <= found.needed for distance in distances)
    assert found.within_capacity == sum(distance <= 20 for distance in distances)
    bins = Counter(1 << (distance - 1).bit_length() for distance in distances)
    assert {bin_.upper: bin_.count for bin_ in found.distance.bins} == bins
    assert sum(bin_.count for bin_ in found.seconds.bins) == len(distances)
    assert max(bin_.upper for bin_ in found.seconds.bins) >= found.seconds.max
    partitioned = Counter(record.partition for record in records)
    assert [item.records for item in audit.partitions] == [
        partitioned[number] for number in range(partitions)
    ]
    assert sum(partition.resends for partition in audit.partitions) == len(distances)
    assert (audit.groups.count, audit.partitioner) == (12, "murmur2")
    assert (audit.partitioners or {})["murmur2"] == 1
    assert sum(moment.duplicates for moment in audit.moments) == len(distances)
    assert audit.a_day(10) == pytest.approx(10 / (599 / 1440))


def modelled(records: Sequence[At]) -> tuple[list[int], list[int], list[int]]:
    """Distances in IDs, in messages and in seconds, each lane being its partition."""
    distances, messages, seconds = [], [], []
    accepted: dict[int, dict[bytes, tuple[int, int, int]]] = {}
    arrived: dict[int, int] = {}
    for record in records:
        lane = accepted.setdefault(record.partition, {})
        arrived[record.partition] = arrived.get(record.partition, 0) + 1
        assert record.sent.id is not None
        if record.sent.id in lane:
            ids, count, stamp = lane[record.sent.id]
            distances.append(len(lane) - ids)
            messages.append(arrived[record.partition] - count)
            seconds.append((record.sent.timestamp - stamp) // 1000)
        else:
            lane[record.sent.id] = len(lane), arrived[record.partition], record.sent.timestamp
    return distances, messages, seconds


def test_resends_to_another_partition(lab: Lab) -> None:
    """Resends without keys reach any partition: the audit measures them in the lane of their ID, by time.

    A record of another partition at the very same moment may lie in between: the distance is an upper bound.
    """
    here, there = (
        [data for data in (b"i%d" % n for n in range(100)) if home(data, 2) == lane] for lane in (0, 1)
    )
    # In lane 0: a b c d, then a again from the other partition (4 IDs), b again from the same (3), e f, and f (1).
    order = [(0, 0), (1, 1), (0, 2), (1, 3), (1, 0), (1, 1), (0, 4), (0, 5), (0, 5)]
    records = [
        At(partition, Sent(here[number], None, timestamp=START_MS + at * 10))
        for at, (partition, number) in enumerate(order)
    ]
    # In lane 1: two at one moment, one in each partition, and the first of them again at once: 1 or 2 IDs, nobody knows.
    records += [At(at, Sent(there[at], None, timestamp=START_MS + 1_000)) for at in (0, 1)]
    records.append(At(0, Sent(there[0], None, timestamp=START_MS + 1_000)))
    audit = lab.audit(lab.topic("unkeyed", 2, records))
    found = audit.found
    lanes = [(lane.lane, lane.records) for lane in figures(audit, []).addresses[0].lanes]

    assert (found.resends, found.other_partition, found.cross_lane, found.forwarded) == (4, 1, 0, 6)
    assert (found.distance.p50, found.distance.max, found.distance.count) == (2, 4, 4)
    assert {bin_.upper: bin_.count for bin_ in found.distance.bins} == {1: 1, 2: 1, 4: 2}
    assert (found.messages.max, found.seconds.max) == (4, 0.04)
    # The page's lanes are homes, not partitions.
    assert lanes == [(0, 9), (1, 3)]
    assert [partition.records for partition in audit.partitions] == [7, 5]
    assert audit.partitioners is None
    assert [(header.name, header.records) for header in audit.headers] == [("_AMQ_DUPL_ID", 12)]
    said = lab.said(audit)
    assert "which partition it reached was chance" in said
    assert "1 resend reached another partition" in said


def test_another_group(lab: Lab) -> None:
    """The ring catches a resend of another group only if both have one home; otherwise the audit names it as CROSS-LANE."""
    keys = [b"k%d" % number for number in range(100)]
    here, there = ([key for key in keys if home(key, 2) == lane] for lane in (0, 1))
    records = [
        At(home(key, 2), Sent(b"1", key, timestamp=START_MS + number))
        for number, key in enumerate((here[0], here[1], there[0], there[0]))
    ]
    topic = lab.topic("groups", 2, records)
    audit, one = lab.audit(topic), lab.audit(topic, lanes=1)
    found = audit.found

    assert (found.resends, found.cross_lane, found.other_group) == (3, 1, 3)
    assert (found.distance.count, found.distance.max, found.seconds.count) == (2, 1, 3)
    assert "CROSS-LANE" in lab.said(audit)
    assert "one ring for the whole address would know 1 more" in lab.said(audit)
    # With one lane none of them is of another lane, and nothing is forwarded.
    found = one.found
    assert (found.resends, found.cross_lane, found.other_group, found.forwarded) == (3, 0, 3, 0)
    assert (found.distance.count, found.distance.max, len(found.lanes)) == (3, 1, 1)
    assert "CROSS-LANE" not in lab.said(one)


def test_no_ids(lab: Lab) -> None:
    """The audit of a topic without IDs reports the result of keys and values as IDs, and names a header that could be one."""
    sent = [
        Sent(None, b"k%d" % (number % 4), b"v%d" % (number % 8), (("trace", b"t%d" % number), ("kind", b"x")))
        for number in range(10)
    ]
    records = [At(0, record) for record in (*sent, Sent(None, b"k0", None))]
    audit = lab.audit(lab.topic("plain", 1, records))
    said = lab.said(audit)
    by_key, by_value = audit.others

    assert (audit.records, audit.found.with_id, audit.found.resends) == (11, 0, 0)
    assert (by_key.id_from, by_key.with_id, by_key.resends) == ("key", 11, 7)
    assert (by_value.id_from, by_value.with_id, by_value.resends, by_value.needed) == ("value", 10, 2, 8)
    assert [(header.name, header.records) for header in audit.headers] == [("kind", 10), ("trace", 10)]
    for sentence in (
        "try --id-header trace",
        "Equal keys usually are groups",
        "1 record without a value (tombstones)",
        "One partition is one lane",
    ):
        assert sentence in said


def test_one_group_in_a_compacted_topic(lab: Lab) -> None:
    """A topic of one group gives all work to one lane, and a compacted topic is audited, but refused as input.

    With id_max_age, no ring catches a later resend any more, and it takes a place in the ring: 0, after 800 s, lies between 3 and 3.
    """
    sent = [b"%d" % (number // 2) for number in range(8)] + [b"0", b"3"]
    records = [
        At(home(b"g", 3), Sent(data, b"g", timestamp=START_MS + number * 100_000))
        for number, data in enumerate(sent)
    ]
    audit = lab.audit(lab.topic("hot", 3, records, cleanup_policy="compact"), id_max_age=600)

    assert (audit.groups.count, audit.groups.share(1), audit.lane_skew) == (1, 1.0, 3.0)
    lanes = [10 if index == home(b"g", 3) else 0 for index in range(3)]
    assert [lane.records for lane in audit.found.lanes] == lanes
    assert [lane.records for lane in figures(audit, []).addresses[0].lanes] == lanes
    assert (audit.found.resends, audit.found.expired) == (6, 1)
    assert (audit.found.distance.count, audit.found.distance.p50, audit.found.distance.max) == (5, 1, 2)
    assert (audit.found.seconds.count, audit.found.seconds.max) == (6, 800)
    assert job.audit_document(audit)["usable_as_input"] is False
    for sentence in (
        "are of one (g): one lane does all the work",
        "Ringfence refuses a compacted topic as input",
        "lower bounds",
    ):
        assert sentence in lab.said(audit)


def test_samples(lab: Lab) -> None:
    """A sample covers the latest share of each partition with --last, and a time with --since; both name what they leave out."""
    day = 86_400_000
    now = int(time.time() * 1000)
    old = [At(0, Sent(b"%d" % number, b"g", timestamp=now - 3 * day + number)) for number in range(30)]
    new = [At(0, Sent(b"%d" % number, b"g", timestamp=now - day // 2 + number)) for number in range(20, 40)]
    other = [At(1, Sent(b"x%d" % number, b"h", timestamp=now - 3 * day)) for number in range(50)]
    topic = lab.topic("sample", 2, [*old, *new, *other], retention_ms="-1")
    last, since = lab.audit(topic, last=20), lab.audit(topic, since="24h")
    nothing = lab.audit(topic, since="1m")

    assert [partition.records for partition in last.partitions] == [10, 10]
    assert (since.records, since.found.resends) == (20, 0)
    assert "resends are a lower bound" in lab.said(last)
    assert nothing.records == 0
    assert job.asked(lab.request(topic, since="99999d")).part.offsets == 100
    assert "ask for more with --since" in lab.said(nothing)


def test_transactions(lab: Lab) -> None:
    """The audit counts neither markers nor aborted records, and reads nothing behind an open transaction."""
    topic = lab.topic("transactions", 1)
    kafka.send_in_transaction(lab.bootstrap, topic, [Sent(b"1"), Sent(b"1")], commit=True)
    kafka.send_in_transaction(lab.bootstrap, topic, [Sent(b"1"), Sent(b"2")], commit=False)
    open_one = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": kafka.unique("audit-open")})
    open_one.init_transactions(kafka.WAIT_S)
    open_one.begin_transaction()
    kafka.produce(open_one, topic, Sent(b"1"), 0)
    assert open_one.flush(kafka.WAIT_S) == 0
    try:
        audit = lab.audit(topic)
    finally:
        open_one.abort_transaction(kafka.WAIT_S)

    assert (audit.records, audit.found.resends) == (2, 1)
    assert "4 offsets without a record that may be read" in lab.said(audit)
    assert "1 offset at the end behind a transaction that is still open" in lab.said(audit)


def _envelope(*parts: dict[str, Any], id: bytes | None = None, key: bytes | None = b"k") -> Sent:  # noqa: A002 - as Sent has it
    return Sent(id, key, json.dumps({"parts": parts}).encode(), (("_RF_TX", b"json/1"), ("G", b"other")))


def test_envelopes(lab: Lab) -> None:
    """The audit counts transactions, their parts and the IDs of these, each by its address.

    One envelope cannot be read, and there are plain records beside.
    """
    header = [{"name": "_AMQ_DUPL_ID", "value": "7"}]
    records = [
        Sent(b"1", b"k", headers=(("G", b"g"),)),
        _envelope({"key": "a", "headers": header}, {"address": "payments"}, {"address": "payments"}, id=b"2"),
        _envelope({"address": "notes", "headers": header}, {"address": "notes", "key": "n"}),
        _envelope({"address": "notes"}),
        _envelope({"key": "a", "key_base64": "YQ=="}, id=b"3"),
        _envelope({"key": "a"}, id=b"2"),
    ]
    topic = lab.topic("envelopes", 1, [At(0, record) for record in records])
    others = {"notes": AddressDefaults(duplicate_id_from="key")}
    request = dataclasses.replace(lab.request(topic, group_header="G"), others=others)
    audit = job.counted(lab.spark, request, job.asked(request))
    found = audit.transactions

    assert (audit.records, audit.sum("envelopes"), audit.found.resends) == (6, 5, 1)
    assert (found.count, found.malformed, found.parts, found.largest) == (4, 1, 7, 3)
    # Of notes the key is the ID: one of its parts has one, whatever their headers.
    assert (found.part_ids, found.without_id) == (2, 1)
    assert found.addresses == {"notes": 3, topic: 2, "payments": 2}
    # The key of an envelope decides, not the group header.
    assert [(group.name, group.records) for group in audit.groups.largest] == [("k", 5), ("g", 1)]
    for sentence in (
        "4 records are transactions with 7 parts, 3 at most in one",
        "2 parts with an ID",
        "1 transaction without any ID, of 4",
        "1 record with the header _RF_TX whose value is no envelope",
    ):
        assert sentence in lab.said(audit)
    document: Any = job.audit_document(audit)
    assert document["transactions"]["parts"] == 7
    assert document["partitions"][0]["envelopes"] == 5


@pytest.mark.long
def test_ids_of_several_parts(lab: Lab) -> None:
    """IDs of several parts, the configuration for them, and what becomes of records without one."""
    event = b'{"source":"/a","id":"1"}'
    records = [
        Sent(None, b"k", b"v", (("ce_source", b"/a"), ("ce_id", b"1"))),
        Sent(None, b"k", b"v", (("ce_source", b"/b"), ("ce_id", b"1"))),
        Sent(None, b"k", event, (("content-type", b"application/cloudevents+json"),)),
        Sent(None, b"k", event),
    ]
    topic = lab.topic("parts", 1, [At(0, record) for record in records])
    forms = ("header:ce_source", "header:ce_id")
    request = lab.request(topic, duplicate_id_from=forms, duplicate_id_missing="quarantine")
    audit = job.counted(lab.spark, request, job.asked(request))
    document: Any = job.audit_document(audit)

    assert (audit.records, audit.found.with_id, audit.found.resends) == (4, 3, 1)
    assert "25.0 % of the records have no ID: they would go to quarantine." in lab.said(audit)
    (address,) = tomllib.loads(document["toml"])["addresses"]
    assert address["duplicate_id_from"] == list(forms)
    assert address["duplicate_id_missing"] == "quarantine"
    nothing = dataclasses.replace(audit, found=dataclasses.replace(audit.found, with_id=0))
    assert "looked for in the parts header:ce_source, header:ce_id, all of them" in lab.said(nothing)


def test_bridges(lab: Lab) -> None:
    """The audit counts records of bridges and their resends, whatever was confirmed; IDs count as always."""

    def hop(of: bytes, *more: tuple[str, bytes]) -> Sent:
        return Sent(b"1", b"k", headers=(("_RF_BRIDGE_DUPL_ID", of), *more))

    source = b"A" * 22 + b"/0"
    records = [
        Sent(b"1", b"k"),
        *(hop(b"to-paris/%b/7" % source, ("_RF_BRIDGE_CONFIRMED", b"%d" % number)) for number in (0, 5, 5)),
        hop(b"to-paris/%b/3" % source),
        hop(b"to-rome/%b/7" % source, ("_RF_BRIDGE_IDS", b"ignore")),
        hop(b"to-paris/%b/x" % source),
    ]
    audit = lab.audit(lab.topic("bridges", 1, [At(0, record) for record in records]))
    found = audit.bridges
    document: Any = job.audit_document(audit)

    assert (audit.records, audit.sum("bridged"), audit.found.resends) == (7, 6, 6)
    assert (found.records, found.malformed, found.resends, found.ids_ignored) == (5, 1, 2, 1)
    assert found.bridges == {"to-paris": 4, "to-rome": 1}
    for sentence in (
        "5 records came over bridges (to-paris, to-rome), of which 2 had been sent before",
        "Of 1 record that came over bridges the own ID is ignored by workers",
        "1 record with the header _RF_BRIDGE_DUPL_ID",
    ):
        assert sentence in lab.said(audit)
    assert document["bridges"]["resends"] == 2
    assert document["partitions"][0]["bridged"] == 6


def test_deleted_while_reading(lab: Lab) -> None:
    """An audit ends with exit code 3, never with a number that is too low, when retention passes its next records."""
    topic = lab.topic("deleted", 1, [At(0, Sent(b"%d" % number)) for number in range(10)])
    request = lab.request(topic)
    asked = job.asked(request)
    kafka.delete_before(lab.bootstrap, topic, 5)

    with pytest.raises(EvidenceGoneError, match="run this again") as caught:
        job.counted(lab.spark, request, asked)
    assert caught.value.exit_code == 3


def test_nothing_there(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty topic gives a result without Spark; a missing topic is an error that suggests near names."""
    topic = lab.topic("void", 2)
    with pytest.raises(MissingTopicError, match=f"did you mean .*'{topic}'") as missing:
        job.asked(lab.request(f"{topic}x"))
    for impossible in ("a b", ".", ""):
        with pytest.raises(MissingTopicError, match="does not exist"):
            job.asked(lab.request(impossible))
    code = job.run_audit(dataclasses.replace(lab.request(topic), out=str(tmp_path)))
    said = capsys.readouterr().out

    assert (missing.value.exit_code, code) == (2, 0)
    assert "is empty: nothing was ever written to it" in said
    assert f"the page: {tmp_path / 'report.html'}\n" in said
    assert (tmp_path / "report.html").exists()


def test_folders_that_refuse(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An audit reports a folder that takes no file before it counts, and a later failure costs no number."""
    full, empty = lab.topic("refused", 1, [At(0, Sent(b"1"))]), lab.topic("refused-void", 1)
    with pytest.raises(PrerequisiteError, match=r"/proc/.* cannot be used"):
        job.run_audit(dataclasses.replace(lab.request(full), out="/proc"))
    counted = capsys.readouterr().out
    (tmp_path / "audit.json" / "in the way").mkdir(parents=True)
    with pytest.raises(PrerequisiteError, match=r"audit\.json cannot be used"):
        job.run_audit(dataclasses.replace(lab.request(empty), out=str(tmp_path)))
    # Where Hadoop writes, what Java says ends up in one line too.
    hadoop = opened(lab.spark, f"file://{tmp_path}")
    (tmp_path / "audit.json.part").mkdir()
    with pytest.raises(PrerequisiteError, match=r"audit\.json cannot be used .*Exception"):
        hadoop.write_text("audit.json", "{}")

    assert counted == ""
    assert "nothing was ever written to it" in capsys.readouterr().out
    assert "_proof" not in proved(hadoop).names("")


def test_the_verb(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line works with nothing configured: document, files, a configuration that loads. 20 ms of traffic give no ring size."""
    records = [
        At(0, Sent(None, b"g", headers=(("no", b"%d" % (number % 5)),), timestamp=START_MS + number))
        for number in range(20)
    ]
    topic = lab.topic("verb", 1, records)
    monkeypatch.setattr(job, "session", lambda *_, **__: contextlib.nullcontext(lab.spark))
    with pytest.raises(SystemExit) as ended:
        main(["audit", topic, "--bootstrap-servers", lab.bootstrap, "--id-header", "no", "--json",
              "--out", str(tmp_path), "--master", "local[2]"])  # fmt: skip
    said = capsys.readouterr()
    document = json.loads(said.out)
    configured = validate(tomllib.loads(document["toml"])).addresses[0]
    figures = json.loads((tmp_path / "figures.json").read_text())

    assert ended.value.code == 0
    assert (document["records"], document["resends"]["resends"]) == (20, 15)
    assert (document["ring"]["needed"], document["ring"]["recommended"]) == (5, None)
    assert "No id_cache_size is recommended: the records span 19 ms" in " ".join(document["notes"])
    assert json.loads((tmp_path / "audit.json").read_text()) == document
    assert figures["addresses"][0]["ring"]["recommended"] is None
    assert f"Audit of {topic}" in (tmp_path / "report.html").read_text()
    assert (configured.id_cache_size, configured.duplicate_id_headers) == (20_000, ("no",))
    assert steps(said.err) == [
        f"asking the cluster about {topic}: 20 offsets",
        f"reading: 20 messages of {topic}",
        "looking at keys and groups: 20 messages with a key",
        "looking for resends: 15 resends",
        "measuring distances",
    ]


def test_describe_and_read_are_enough(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user with the right to Read one topic, and no other, audits it; one that may only Describe it learns the missing right."""
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    secured = SecuredBroker(tmp_path)
    secured.start()
    try:
        lab = Lab(spark, secured.plaintext)
        topic = lab.topic("rights", 1, [At(0, Sent(b"1")), At(0, Sent(b"1"))])
        exactly = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        secured.add_user("reader", [(*exactly, AclOperation.READ)])
        secured.add_user("viewer", [(*exactly, AclOperation.DESCRIBE)])

        def asked(user: str) -> job.Request:
            kafka = KafkaSettings.model_validate(secured.scram.with_user(user).section)
            return dataclasses.replace(lab.request(topic), kafka=kafka)

        reader = asked("reader")
        audit = job.counted(spark, reader, job.asked(reader))
        with pytest.raises(MissingTopicError, match="grant Read"):
            job.asked(asked("viewer"))
    finally:
        secured.stop()

    assert (audit.records, audit.found.resends, audit.topic.cleanup_policy) == (2, 1, None)
    assert "this user may lack DescribeConfigs" in lab.said(audit)
