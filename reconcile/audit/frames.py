"""Distances between resends and their originals, as data frames.

**Order.** Within a partition, offsets give the order. Between partitions the order is unknown. The best
approximation is the *moment*: a record's timestamp, or that of an earlier offset if it is higher. The first
record of an ID has the lowest moment, partition and offset.

**Lanes.** A record's home follows from its group, else from its ID, else from its partition. A lane may have
several partitions.

**Distance.** It is the number of IDs that an endless ring accepts in the lane, from the original (included)
up to the resend. Within the resend's partition it is exact, by offsets. In other partitions all IDs count
whose moment lies between the two or equals one of them, which gives an upper bound.

**Age.** A resend that is older than ``id_max_age`` has no distance, as no ring would catch it. In other
distances it counts as accepted again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconcile.audit.partitioner import FACTOR, MASK, SEED
from reconcile.spark.columns import of_schema
from reconcile.spark.schemas import ARRIVED, AUDITED_RESENDS
from reconcile.spark.topic_reader import concatenated
from ringfence_kafka.protocol.lane_layout import LaneLayout

_BEGIN, _NOW = Window.unboundedPreceding, Window.currentRow
_PLACE = ["moment", "partition", "offset"]
_BEFORE = -1  # end of a range of moments that excludes the current moment


def arrived(
    records: DataFrame,
    layout: LaneLayout,
    partitioner: str,
    *,
    with_id: int,
    without_id: int,
    max_age_ms: int,
) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.ARRIVED` of an audited topic's records.

    ``with_id`` and ``without_id`` are their numbers. An ID counts for ``max_age_ms``; 0 = forever.
    """
    partitions = layout.partitions
    # A single partition is ordered by offset, so the sort for moments is not needed.
    in_order = Window.partitionBy("partition").orderBy("offset").rowsBetween(_BEGIN, _NOW)
    moment = F.max("timestamp").over(in_order) if partitions > 1 else F.lit(0).cast("bigint")
    at = F.coalesce(home(F.coalesce("group", "id"), partitions, partitioner), F.col("partition"))
    lane = at if layout.lanes == partitions else (at % layout.lanes).cast("int")
    placed = records.select(
        "partition", "offset", "timestamp", moment.alias("moment"), "id",
        F.xxhash64("group").alias("group_digest"), "value_digest", lane.alias("lane"),
    )  # fmt: skip
    # Separate frames: in a window by ID, all records without an ID would be one partition.
    frames = []
    if with_id:
        frames.append(_identified(placed.where("id is not null"), max_age_ms))
    if without_id:
        frames.append(placed.where("id is null").select(*_columns({"has_id": F.lit(False)})))
    return concatenated(frames)


def _identified(placed: DataFrame, max_age_ms: int) -> DataFrame:
    of_topic = Window.partitionBy("id").orderBy(*_PLACE)
    of_lane = Window.partitionBy("id", "lane").orderBy(*_PLACE)
    seen = placed.withColumns(
        {
            "number": F.row_number().over(of_topic),
            "first": F.first(F.struct("partition", "timestamp", "group_digest", "value_digest")).over(
                of_topic
            ),
        }
    ).withColumns(
        {
            "number_in_lane": F.row_number().over(of_lane),
            "first_in_lane": F.first(F.struct("partition", "offset", "timestamp")).over(of_lane),
            "times": F.count(F.lit(1)).over(Window.partitionBy("id", "lane")),
        }
    )
    again, fresh = F.col("number") > 1, F.col("number_in_lane") == 1
    repeated = F.when(fresh, F.col("first.timestamp")).otherwise(F.col("first_in_lane.timestamp"))
    expired = ~fresh & (F.col("timestamp") - repeated > max_age_ms) if max_age_ms else F.lit(False)
    return seen.select(
        *_columns(
            {
                "has_id": F.lit(True),
                "fresh": fresh,
                "repeats": F.col("times") > 1,
                "expired": expired,
                "first_partition": F.col("first_in_lane.partition"),
                "first_offset": F.col("first_in_lane.offset"),
                "cross_lane": again & fresh,
                "other_partition": again & (F.col("partition") != F.col("first.partition")),
                "other_group": again & (F.col("group_digest") != F.col("first.group_digest")),
                "other_value": again & (F.col("value_digest") != F.col("first.value_digest")),
                # Clocks of producers may show a resend before its original.
                "age": F.when(again, F.greatest(F.lit(0), F.col("timestamp") - repeated)),
            }
        )
    )


def _columns(special: dict[str, Column]) -> list[Column]:
    """Return all columns in the order of the schema; missing ones are null or False."""
    flags = ("fresh", "repeats", "expired", "cross_lane", "other_partition", "other_group", "other_value")
    missing = {flag: F.lit(False) for flag in flags}
    return of_schema(ARRIVED, missing | special, {"partition", "offset", "timestamp", "moment", "lane"})


def resends(arrived: DataFrame, *, alone: bool) -> DataFrame:
    """Return :data:`reconcile.spark.schemas.AUDITED_RESENDS` of all :data:`reconcile.spark.schemas.ARRIVED`.

    ``alone``: each lane has only records of its own partition. Then offsets suffice, which saves two sorts.
    """
    counts = ["ids", "records", *_BETWEEN]
    repeated = Window.partitionBy("first_partition", "first_offset").orderBy(F.desc("fresh"))
    # A window puts each record beside the first of its ID in its lane in one pass. A join would compute all
    # counts twice.
    both = (
        _ranked(arrived, alone=alone)
        .where("repeats or cross_lane")
        .withColumn("a", F.first(F.struct(*counts)).over(repeated.rowsBetween(_BEGIN, _NOW)))
        .where("cross_lane or not fresh")
    )
    same = F.col("partition") == F.col("first_partition")
    distances = {
        "distance": _between("ids", same, offset_of_both=1),
        "messages": _between("records", same, offset_of_both=0),
    }
    known = ~F.col("fresh") & ~F.col("expired")
    return both.select(
        *of_schema(AUDITED_RESENDS, {name: F.when(known, distance) for name, distance in distances.items()})
    )


_BETWEEN = tuple(
    f"{whose}_{what}_{upto}"
    for whose in ("all", "own")
    for what in ("ids", "records")
    for upto in ("now", "before")
)


def _ranked(arrived: DataFrame, *, alone: bool) -> DataFrame:
    """Add the number of IDs and records up to each row: by offset in its partition, by moment in all."""
    accepted, one = (F.col("fresh") | F.col("expired")).cast("int"), F.lit(1)
    own = Window.partitionBy("lane", "partition").orderBy("offset").rowsBetween(_BEGIN, _NOW)
    counted = arrived.withColumns({"ids": F.sum(accepted).over(own), "records": F.sum(one).over(own)})
    if alone:
        return counted.withColumns({name: F.lit(0).cast("bigint") for name in _BETWEEN})
    for whose, part in (("all", ["lane"]), ("own", ["lane", "partition"])):
        by_moment = Window.partitionBy(*part).orderBy("moment")
        counted = counted.withColumns(
            {
                f"{whose}_{what}_{upto}": F.coalesce(
                    F.sum(value).over(by_moment.rangeBetween(_BEGIN, limit)), F.lit(0)
                )
                for what, value in (("ids", accepted), ("records", one))
                for upto, limit in (("now", _NOW), ("before", _BEFORE))
            }
        )
    return counted


def _between(what: str, same: Column, offset_of_both: int) -> Column:
    """Count from the original to the resend: exact in its partition, an upper bound for the others."""
    of_all = F.col(f"all_{what}_now") - F.col(f"a.all_{what}_before")
    of_own = F.col(f"own_{what}_now") - F.col(f"a.own_{what}_before")
    exact = F.col(what) - F.col(f"a.{what}") + offset_of_both
    return F.when(same, exact + of_all - of_own).otherwise(of_all - (1 - offset_of_both))


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Yield the frame, persisted on disk for several queries."""
    there = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield there
    finally:
        there.unpersist()


def home(data: Column, partitions: int, partitioner: str) -> Column:
    """Return the partition of a key; null if the key is null."""
    if partitions == 1:
        return F.when(data.isNotNull(), 0)
    hashed = F.crc32(data) if partitioner == "crc32" else murmur2(data).bitwiseAND(0x7FFFFFFF)
    return (hashed % partitions).cast("int")


def murmur2(data: Column) -> Column:
    """Compute :func:`reconcile.audit.partitioner.murmur2` in Spark.

    Each step stays below 2^63, because a word is below 2^32 and the factor below 2^31.
    """
    text, length = F.hex(data), F.length(data)
    count = F.shiftright(length, 2)
    numbers = F.when(count > 0, F.sequence(F.lit(0), count - 1)).otherwise(F.array().cast("array<int>"))
    words = F.transform(numbers, lambda at: _number(text.substr(at * 8 + 1, F.lit(8))))
    words = F.transform(F.transform(words, _swapped), _times)
    words = F.transform(words, lambda word: _times(word.bitwiseXOR(F.shiftright(word, 24))))
    rest = length.bitwiseAND(3)
    # Pad the last bytes with zeros to four, so that the same swap gives their little-endian number.
    tail = _let(_number(F.rpad(text.substr(count * 8 + 1, rest * 2), 8, "0")), _swapped)
    return F.aggregate(
        words,
        F.lit(SEED).bitwiseXOR(length.cast("bigint")),
        lambda found, word: _times(found).bitwiseXOR(word),
        lambda found: _let(
            _let(
                F.when(rest > 0, _times(found.bitwiseXOR(tail))).otherwise(found),
                lambda word: _times(word.bitwiseXOR(F.shiftright(word, 13))),
            ),
            lambda word: word.bitwiseXOR(F.shiftright(word, 15)),
        ),
    )


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Compute ``value`` once, and apply ``body`` to it."""
    return F.element_at(F.transform(F.array(value), body), 1)


def _times(value: Column) -> Column:
    return (value * F.lit(FACTOR)).bitwiseAND(F.lit(MASK))


def _number(digits: Column) -> Column:
    return F.conv(digits, 16, 10).cast("bigint")


def _swapped(word: Column) -> Column:
    """Return the four bytes in reverse order."""
    low, second = word.bitwiseAND(F.lit(0xFF)), word.bitwiseAND(F.lit(0xFF00))
    third, high = F.shiftright(word, 8).bitwiseAND(F.lit(0xFF00)), F.shiftright(word, 24)
    return F.shiftleft(low, 24).bitwiseOR(F.shiftleft(second, 8)).bitwiseOR(third).bitwiseOR(high)
