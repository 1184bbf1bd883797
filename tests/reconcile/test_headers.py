"""Headers of records: the compiled array functions give the result of a loop over the headers."""

import datetime as dt
import itertools
import random

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from agents.output import build
from reconcile.spark import envelopes, hops
from reconcile.spark.columns import HEADERS_FEW, OURS, Dialect, headers_digest, id_of, place_in
from reconcile.spark.topic_reader import Targets, inputs
from ringfence_kafka.protocol import wire_names

Header = tuple[str, bytes | None]
NAMES = ("a", "b", "", "_RF", "_RF_SOURCE", "_RF_HOPS", "_RF_BRIDGE_HOP", "x_RF_HOPS")


def _records(spark: SparkSession, *several: list[Header]) -> DataFrame:
    rows = [(number, value) for number, value in enumerate(several)]
    return spark.createDataFrame(rows, f"number int, headers {envelopes.HEADERS}")


def test_the_digest_is_that_of_the_list(spark: SparkSession) -> None:
    """The digest of any number of headers, with nulls and repeats, is that of the list.

    Runs hand digests on, and the digest must not differ between versions either.
    """
    rng = random.Random(5)
    values = (None, b"", b"1", b"2")
    headers = [
        [(rng.choice(NAMES), rng.choice(values)) for _ in range(rng.randrange(HEADERS_FEW + 3))]
        for _ in range(200)
    ]
    users = F.filter("headers", lambda item: ~item["key"].isin(*OURS))
    plain = F.xxhash64(
        F.transform(users, lambda item: F.struct(item["key"], item["value"].isNull(), item["value"]))
    )
    digests = [headers_digest().alias("found"), plain.alias("plain")]
    rows = _records(spark, *headers).select("headers", *digests).collect()
    own = {tuple(header for header in several if header[0] not in OURS) for several in headers}

    assert [row["found"] for row in rows] == [row["plain"] for row in rows]
    assert len({row["found"] for row in rows}) == len(own)


def test_the_names_are_those_of_workers() -> None:
    """The run's header names are those of the worker's rule: names, and no prefix.

    The run does not share the worker's code, and does not compare headers that workers leave out. Workers keep an outbox's header.
    """
    names = {value for name, value in vars(wire_names).items() if name.startswith("HEADER_")}
    assert set(OURS) == names - {wire_names.HEADER_SENDER}
    assert set(OURS) > build.OURS


def test_empty_ids_are_none(spark: SparkSession) -> None:
    """An empty header, key or value is not an ID, as for workers, and the next name counts."""
    headers: list[list[Header]] = [
        [("a", b""), ("b", b"2")], [("a", b""), ("b", b"")], [("a", b"1"), ("a", b"")], [("a", b"1")],
    ]  # fmt: skip
    named = id_of(Dialect(("a", "b"), "header", "", "")).alias("id")
    rows = _records(spark, *headers).select(named).collect()
    assert [row["id"] and bytes(row["id"]) for row in rows] == [b"2", None, None, b"1"]
    columns = [id_of(Dialect((), source, "", "")) for source in ("key", "value")]
    own = spark.createDataFrame([(b"", b""), (None, None), (b"x", b"x")], "key binary, value binary")
    assert [[item is not None for item in row] for row in own.select(*columns).collect()] == [
        [False, False], [False, False], [True, True],
    ]  # fmt: skip


def test_no_headers_are_null(spark: SparkSession) -> None:
    """A record without headers has null, as in Spark's source, and the digest of an empty list."""
    rows = spark.createDataFrame([(0, None), (1, [])], f"number int, headers {envelopes.HEADERS}")
    digest, *others = [
        headers_digest(),
        envelopes.has("a"),
        envelopes.header("a"),
        _place(),
        hops.left_behind(),
    ]
    one, other = rows.select(digest.alias("digest"), *others).collect()

    assert one == other
    assert tuple(one)[1:] == (False, None, None, None)


def _place() -> Column:
    return place_in(envelopes.header(wire_names.HEADER_SOURCE).cast("string"), F.lit("in"))


RECORD = f"key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, headers {envelopes.HEADERS}"


def test_plain_records_are_read_as_others_are(spark: SparkSession) -> None:
    """A plain record is read as an unreadable envelope with the same key, value and ID is, whatever is null."""
    dialect, at = Dialect(("id", "other"), "header", "", ""), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    texts: tuple[bytes | None, ...] = (None, b"", b"v")
    several: list[list[Header] | None] = [None, [], [("id", None)], [("other", b"1"), ("x", b"2")]]
    kinds = list(itertools.product(texts, texts, several))
    rows = []
    for number, (key, value, headers) in enumerate(kinds):
        unreadable = [*(headers or ()), (wire_names.HEADER_TRANSACTION, b"?")]
        rows += [(key, value, "in", way, number, at, some) for way, some in enumerate((headers, unreadable))]
    found = inputs(spark.createDataFrame(rows, RECORD), dialect, {"in": 0}, {"in": Targets("in")})
    columns = [
        "id",
        "group",
        "key_digest",
        "value_digest",
        "value_bytes",
        "headers_digest",
        "part_address",
        "hop_source",
    ]
    plain, envelope = (
        found.where(F.col("partition") == way).orderBy("offset").select(*columns).collect() for way in (0, 1)
    )

    assert len(plain) == len(kinds)
    assert plain == envelope
    assert {row["id"] and bytes(row["id"]) for row in plain} == {None, b"1"}
    assert [row["group"] for row in plain] == [key for key, _, _ in kinds]


def test_the_last_of_a_name(spark: SparkSession) -> None:
    """The last header of a name counts; it is null if the header is missing or has no value.

    A bridge header is left only if its whole name is one of these; a longer name is not.
    """
    rows = _records(
        spark, [("x_RF_HOPS", b"1")], [("a", b"1"), ("_RF_HOPS", b"1")], [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4")],
        [("a", b"1"), ("a", None), ("_RF_BRIDGE_IDS", None)], [("_RF_BRIDGE_x", b"1")],
    )  # fmt: skip
    found = rows.orderBy("number").select(
        envelopes.header("a"), envelopes.has("a"), hops.left_behind().isNotNull()
    )

    assert [tuple(row) for row in found.collect()] == [
        (None, False, False), (b"1", True, True), (b"3", True, False), (None, True, True), (None, False, False),
    ]  # fmt: skip


PLACES: dict[bytes | None, tuple[int, int] | None] = {
    b"in/1/23": (1, 23),
    b"in/-1/5": (-1, 5),
    b"in/1/9223372036854775807": (1, 2**63 - 1),
    b"in/1/9223372036854775808": None,
    b"in/2147483648/1": None,
    b"in/1": None,
    b"in//1": None,
    b"in/1/2/3": None,
    b"other/1/2": None,
    b"inn/1/2": None,
    b"in/a/2": None,
    b"": None,
    b"\xff\xfe/1/2": None,
    None: None,
}


def test_a_place(spark: SparkSession) -> None:
    rows = _records(spark, *([(wire_names.HEADER_SOURCE, text)] for text in PLACES))
    found = [place for (place,) in rows.orderBy("number").select(_place()).collect()]

    assert [None if place is None else tuple(place) for place in found] == list(PLACES.values())
