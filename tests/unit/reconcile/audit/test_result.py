"""The pure parts of an audit: its extent, its partitioner and its report."""

import io
import re
import sys
import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from confluent_kafka import KafkaError
from rich.console import Console

from app.cli import main
from reconcile.audit import advice, configuration, job, partitioner, report
from reconcile.audit import topic as topics
from reconcile.audit.job import figures, keep
from reconcile.audit.partitioner import Placed
from reconcile.audit.result import Audit, HeaderSeen, PartitionCount, Resends, Spread, document
from reconcile.audit.topic import Extent, Topic, Wanted, surveyed
from reconcile.cluster.admin import TopicFacts, refused
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressDefaults
from ringfence_kafka.errors import MissingTopicError

EXTENTS = {0: Extent(10, 110, 120), 1: Extent(0, 300, 300), 2: Extent(5, 5, 5)}


def test_extents() -> None:
    """The sample takes a share of each partition, together exactly the given number, and never more than exists.

    With a time it begins at the offset that the broker names, and is empty if nothing is so recent. It never exceeds
    the readable range.
    """
    shares = [
        {number: end - begin for number, (begin, end) in topics.last(EXTENTS, count).spans.items()}
        for count in (1, 7, 400, 9_999)
    ]

    assert shares == [{0: 0, 1: 1, 2: 0}, {0: 2, 1: 5, 2: 0}, {0: 100, 1: 300, 2: 0}, {0: 100, 1: 300, 2: 0}]
    assert topics.last(EXTENTS, 7).spans[0] == (108, 110)
    assert [topics.last(EXTENTS, count).whole for count in (399, 400)] == [False, True]

    part = topics.since(EXTENTS, {0: 115, 1: 40, 2: None}, "24h")
    assert (part.spans, part.whole, part.offsets) == ({0: (110, 110), 1: (40, 300), 2: (5, 5)}, False, 260)
    assert part.ranges() == {1: (40, 300)}
    assert topics.since(EXTENTS, {0: 10, 1: 0, 2: None}, "24h").whole


class _Cluster:
    """One topic with a record, or none; it is asked for no time that it would misunderstand."""

    connect = Mock()
    cleanup_policy = Mock(return_value="delete")

    def __init__(self, *names: str) -> None:
        self._names = list(names)

    def names(self) -> list[str]:
        return self._names

    def describe(self, names: list[str]) -> dict[str, TopicFacts]:
        return {name: TopicFacts("id", 1) for name in names if name in self._names}

    def log_starts(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 0)

    def high_watermarks(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 9)

    def stable_ends(self, places: list[tuple[str, int]], _: object) -> dict[tuple[str, int], int]:
        return self.high_watermarks(places)

    def offsets_at(self, places: list[tuple[str, int]], timestamp: int) -> dict[tuple[str, int], int]:
        assert timestamp > 0
        return dict.fromkeys(places, 4)


def test_since_before_there_were_times() -> None:
    """A period that begins before 1970 covers the whole topic, because brokers read negative times as something else.

    A cluster without topics may be new, or not the intended one, so the error does not name permissions alone.
    """
    for names, seen in (((), "at all"), (("__consumer_offsets",), "but Kafka's own")):
        nothing: Any = _Cluster(*names)
        message = f"this user sees no topic {seen}. Where the cluster is new, send something"
        with pytest.raises(MissingTopicError, match=message):
            surveyed(nothing, Wanted("orders"), 1)
    cluster: Any = _Cluster("orders")
    for since, spans, whole in (("1h", {0: (4, 9)}, False), ("99999d", {0: (0, 9)}, True)):
        part = surveyed(cluster, Wanted("orders", since), 1_795_219_200_000).part
        assert (part.spans, part.whole) == (spans, whole)
    assert [topics.seconds_of(text) for text in ("90s", "30m", "24h", "7d")] == [90, 1_800, 86_400, 604_800]
    for text in ("", "5", "h", "-1h", "0m", "1.5h", "1w"):
        with pytest.raises(ValueError, match="write for example"):
            topics.seconds_of(text)


def test_explained() -> None:
    """Shares count records, not keys. One partition, or records without keys, yield none.

    murmur2 is aiokafka's, an implementation that is not ours, and the Java client's test vector; crc32 is the CRC-32.
    """
    hashed = [b"", b"\x00", b"\xff" * 7, *(bytes(range(number, 2 * number)) for number in range(100))]
    theirs = [murmur2_of_aiokafka(key) & 0xFFFFFFFF for key in hashed]
    assert [partitioner.murmur2(key) for key in hashed] == theirs
    assert partitioner.murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert partitioner.HASHES["crc32"](b"123456789") == 0xCBF43926

    keys = [b"k%d" % number for number in range(50)]
    sample = [Placed(key, partitioner.HASHES["crc32"](key) % 7, 3) for key in keys]
    sample.append(Placed(b"other", (partitioner.HASHES["crc32"](b"other") + 1) % 7, 50))
    shares = partitioner.explained(sample, 7)

    assert shares["crc32"] == 0.75
    assert partitioner.chosen(shares, 7, "murmur2") == "crc32"
    assert partitioner.explained(sample, 1) == {} == partitioner.explained([Placed(b"", 0, 1)], 7)
    # A share that chance explains as well leaves the configuration unchanged, and so does a tie.
    assert partitioner.chosen({"murmur2": 0.5, "crc32": 0.56}, 2, "murmur2") == "murmur2"
    assert partitioner.chosen({"murmur2": 1.0, "crc32": 1.0}, 2, "crc32") == "crc32"
    assert partitioner.chosen({}, 2, "crc32") == "crc32"


def made(**changes: Any) -> Audit:
    """Return an audit of two partitions with a hundred records, half of which are resends."""
    extents = {0: Extent(0, 60, 60), 1: Extent(0, 40, 40)}
    found = Resends(
        "header", with_id=100, resends=50, distance=Spread(50, 1, 9, 12), needed=9, within_needed=49, within_capacity=50
    )  # fmt: skip
    plain: dict[str, Any] = {
        "topic": Topic("orders", extents, topics.whole(extents), "delete"),
        "bootstrap_servers": "b:9092", "settings": AddressDefaults(), "configured": "", "confidence": Fraction(98, 100),
        "partitions": [PartitionCount(0, 60, 60, 60, 0), PartitionCount(1, 40, 40, 40, 0)],
        "first_ms": 1_760_000_000_000, "last_ms": 1_760_000_000_000 + 43_200_000,
        "found": found, "sampled_keys": 30, "partitioners": {"murmur2": 0.5, "crc32": 1.0},
    }  # fmt: skip
    return Audit(**{**plain, **changes})


def said(audit: Audit) -> str:
    return "\n".join(advice.notes(audit))


def test_less_than_an_hour_recommends_nothing() -> None:
    """From less than an hour no size follows, in sentences, configuration and document; an hour gives one with headroom.

    A ring for values as IDs is recommended by the same rule.
    """
    by_value = Resends("value", with_id=10, resends=2, needed=8, within_needed=2)
    other = made(found=Resends("header"), others=[by_value])
    assert "(--id-from value) with id_cache_size = 12 would drop at least 2." in said(other)
    of_a_moment = replace(other, last_ms=other.first_ms)
    assert "(--id-from value) with a ring of 8 would drop at least 2." in said(of_a_moment)

    short, hour = (made(last_ms=1_760_000_000_000 + span) for span in (3_599_999, 3_600_000))
    none, size = (document(audit, [], "")["ring"] for audit in (short, hour))

    assert (none["needed"], none["recommended"], none["headroom"]) == (9, None, 0.5)
    assert (size["needed"], size["recommended"]) == (9, 14)
    for sentence in (
        "No id_cache_size is recommended: the records span 60 min, and less than an hour does not",
        "Here 98 % of the resends that a ring can know need 9. A ring of 9 would drop 49 of the 50; the present",
        "span less than 60 minutes",
    ):
        assert sentence in said(short)
    assert (
        "Set id_cache_size = 14: 98 % of the resends that a ring can know need 9 in 1 h, and 50 % headroom"
        in said(hour)
    )
    assert "That is 100 a day" in said(made())
    assert validate(tomllib.loads(configuration.toml(short))).addresses[0].id_cache_size == 20_000
    assert f"[[addresses]]\n{configuration.NO_SIZE}\n" in configuration.toml(short)
    assert (short.recommended, figures(short, []).addresses[0].ring.recommended) == (None, None)
    small = made(settings=AddressDefaults(id_cache_size=5), found=replace(made().found, within_capacity=40))
    ring = figures(small, []).addresses[0].ring
    assert (ring.capacity, ring.recommended, ring.overruns, ring.resends, ring.days) == (5, 14, 10, 50, 1)


def test_the_table() -> None:
    """The table shows need and recommendation, or that less than an hour gives none."""

    def shown(audit: Audit) -> str:
        console = Console(record=True, width=120, file=io.StringIO())
        report.show(audit, [], "", console)
        return console.export_text()

    assert re.search(r"needed for 98 % of the resends +│ +9 │", shown(made()))
    assert re.search(r"recommended, with 50 % headroom +│ +14 │", shown(made()))
    assert re.search(r"headroom +│ +none: less than an hour │", shown(made(last_ms=1_760_000_000_000)))


def test_snippets_load() -> None:
    """A snippet to be pasted is a valid configuration with the results of the audit, and with an age limit that affects them."""
    aged = made(settings=AddressDefaults(id_max_age=600), found=replace(made().found, expired=1))
    named = made(settings=AddressDefaults(duplicate_id_from="value"), configured="shop", partitioners=None)
    loaded = [validate(tomllib.loads(configuration.toml(audit))).addresses[0] for audit in (made(), named)]

    assert [(item.name, item.input_topic) for item in loaded] == [("orders",) * 2, ("shop", "orders")]
    assert [(item.id_cache_size, item.partitioner) for item in loaded] == [(14, "crc32"), (14, "murmur2")]
    assert loaded[1].duplicate_id_from == "value"
    assert "1 resend later than id_max_age = 600 s after the first of the ID" in said(aged)
    assert validate(tomllib.loads(configuration.toml(aged))).addresses[0].id_max_age == 600
    assert "id_max_age" not in said(made()) + configuration.toml(made())


def test_a_header_that_looks_like_a_group() -> None:
    """A header that looks like a group is named, and not configured. The ring was measured with the lanes that follow without it."""
    headers = [HeaderSeen("JMSXGroupID", 100, 3)]
    unkeyed = made(partitions=[PartitionCount(0, 100, 100, 0, 0)], headers=headers, sampled_keys=0)
    asked = replace(unkeyed, settings=AddressDefaults(group_header="JMSXGroupID"))
    without, named = (configuration.toml(audit) for audit in (unkeyed, asked))

    assert "# JMSXGroupID looks like a group: run again with --group-header JMSXGroupID\n" in without
    assert validate(tomllib.loads(without)).addresses[0].group_header == ""
    assert "run again with --group-header JMSXGroupID" in said(unkeyed)
    assert "looks like" not in named + said(asked)
    assert validate(tomllib.loads(named)).addresses[0].group_header == "JMSXGroupID"


def test_an_end_in_the_middle_of_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is there only when all of the run is, and a page of an earlier run goes if the new one cannot be drawn."""
    files = LocalFiles(str(tmp_path))
    assert keep(made(), files)
    assert {*files.names("")} == {"audit.json", "figures.json", "report.html"}
    monkeypatch.setitem(sys.modules, "reconcile.page.document", None)
    assert not keep(made(), files)
    assert {*files.names("")} == {"audit.json", "figures.json"}
    monkeypatch.setattr(job, "put", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        keep(made(), files)
    assert "audit.json" not in files.names("")


def test_no_records() -> None:
    for found, words in (
        (Extent(0, 0, 0), "nothing was ever written to it"),
        (Extent(7, 7, 7), "retention deleted all 7 records"),
        (Extent(0, 0, 4), "transactions that are still open"),
        (Extent(0, 3, 3), "transaction markers"),
    ):
        topic = Topic("orders", {0: found}, topics.whole({0: found}), "delete")
        empty = made(topic=topic, partitions=(), found=Resends("header"))

        assert words in said(empty)
        assert document(replace(empty, last_ms=empty.first_ms), [], "")["ring"]["recommended"] is None


def test_what_is_gone_is_named() -> None:
    """The report names each limit of its numbers: a log that does not begin at 0, a sample, or an unknown policy.

    A cluster that will not tell the policy costs one sentence; one that does not answer is away. No share is
    rounded away: one of very many is not 0 %.
    """
    for code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN, KafkaError._UNSUPPORTED_FEATURE):
        assert refused(KafkaError(code))
    assert not any(refused(KafkaError(code)) for code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT))
    few = made(found=replace(made().found, with_id=99_999, resends=1, needed=1, within_needed=1), far_off=3)
    many = replace(few, partitions=[PartitionCount(0, 100_000, 99_999, 1, 0)])
    assert "3 records with a timestamp more than a year before or after" in said(few)
    for sentence in ("under 0.1 % of the records have no ID", "1 record of 100,000 (under 0.1 %)"):
        assert sentence in said(many)

    extents = {0: Extent(3, 60, 60), 1: Extent(0, 43, 43)}
    gone = made(topic=Topic("orders", extents, topics.whole(extents), None))
    sample = made(topic=Topic("orders", extents, topics.last(extents, 50), "delete"))

    assert "does not begin at its first record" in said(gone)
    assert "this user may lack DescribeConfigs" in said(gone)
    assert "This is a sample: the last 50 records, 50.0 % of what is there" in said(sample)


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """An option that makes no sense ends with exit code 2 and is named."""
    for arguments, fault in (
        (["--since", "1h", "--last", "5"], "choose one"),
        (["--id-header", "X", "--id-from", "key"], "--id-header has no effect"),
        (["--since", "soon"], "is not a duration"),
        (["--confidence", "0"], "--confidence"),
        (["--last", "0"], "--last"),
        (
            ["--bootstrap-servers", "nowhere"],
            "kafka.bootstrap_servers = 'nowhere': 'nowhere' is not host:port",
        ),
        (["--id-header", "_RF_X"], "--id-header: '_RF_X' begins with _RF_"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["audit", "orders", *arguments])

        assert caught.value.code == 2
        assert fault in click.unstyle(capsys.readouterr().err)
