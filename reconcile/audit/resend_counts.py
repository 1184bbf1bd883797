"""Counts of resends by lane, partition, time and distance."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from reconcile.audit.result import LaneCount, Resends, Spread
from reconcile.page.report_data import Bin, step_ms
from reconcile.spark.columns import power_of_two

_HALF: Final = Fraction(1, 2)
_MOST: Final = Fraction(99, 100)
_SECOND_MS: Final = 1_000


def tallied(arrived: DataFrame, lanes: int, first_ms: int, last_ms: int) -> list[list[Row]]:
    """Return counts by lane, by partition, and by time between two limits (ms). ``lanes``: their number."""
    dropped = F.col("has_id") & ~F.col("fresh") & ~F.col("expired")
    step = step_ms(first_ms, last_ms)
    within = F.col("timestamp").between(first_ms, last_ms) & (F.col("timestamp") > 0)
    at = F.when(within, F.floor(F.col("timestamp") / step) * step)
    by = [F.col(name) for name in ("lane", "place", "at")]
    counted = {
        "records": F.lit(True), "with_id": F.col("has_id"), "ids": F.col("fresh"), "dropped": dropped,
        "resends": dropped | F.col("cross_lane") | F.col("expired"),
        "cross_lane": F.col("cross_lane"), "expired": F.col("expired"),
        "forwarded": F.col("lane") != F.col("partition") % lanes,
        "other_partition": F.col("other_partition"), "other_group": F.col("other_group"), "other_value": F.col("other_value"),
    }  # fmt: skip
    # Grouping sets make the columns of other sets null, so the flags are computed first.
    flags = arrived.select(
        "lane",
        F.col("partition").alias("place"),
        at.alias("at"),
        *(column.alias(name) for name, column in counted.items()),
    )
    rows = (
        flags.groupingSets([[column] for column in by], *by)
        .agg(F.grouping_id().alias("set"), *(F.count_if(name).alias(name) for name in counted))
        .orderBy("set", *by).collect()
    )  # fmt: skip
    dated = [row for row in rows if row["set"] != 0b110 or row["at"] is not None]
    return [[row for row in dated if row["set"] == number] for number in (0b011, 0b101, 0b110)]


def in_lanes(found: Resends, rows: Sequence[Any], lanes: int) -> Resends:
    """Add the counts by lane to the result, including lanes without records."""
    names = ("with_id", "resends", "cross_lane", "expired", "other_partition", "other_group", "other_value")
    there = {row["lane"]: row for row in rows}
    counted = ("records", "ids", "dropped", "forwarded")
    return replace(
        found,
        **{name: sum(row[name] for row in rows) for name in names},
        lanes=[
            LaneCount(lane, *(there[lane][name] if lane in there else 0 for name in counted))
            for lane in range(lanes)
        ],
    )


def spreads(resends: DataFrame, found: Resends, confidence: Fraction, capacity: int) -> Resends:
    """Compute exact distances by cumulative sums in Spark; only counts by bin are collected."""
    caught = found.resends - found.cross_lane - found.expired
    totals = {"distance": caught, "messages": caught, "age": found.resends}
    values = F.array(
        *(
            F.struct(
                F.lit(name).alias("kind"),
                F.col(name).alias("value"),
                F.lit(total).cast("bigint").alias("total"),
            )
            for name, total in totals.items()
        )
    )
    counted = (
        resends.select(F.inline(values)).where("value is not null").groupBy("kind", "total", "value").count()
    )
    upto = (
        Window.partitionBy("kind").orderBy("value").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    summed = counted.withColumn("upto", F.sum("count").over(upto))
    wanted = {"p50": _HALF, "p99": _MOST, "needed": confidence}
    whole = F.when(F.col("kind") == "age", F.ceil(F.col("value") / _SECOND_MS)).otherwise(F.col("value"))
    rows = (
        summed.groupBy("kind", power_of_two(whole).alias("upper"))
        .agg(
            F.sum("count").alias("count"), F.max("value").alias("max"),
            F.sum(F.when(F.col("value") <= capacity, F.col("count"))).alias("within_capacity"),
            *(F.min(F.when(_reached(share), F.col("value"))).alias(name) for name, share in wanted.items()),
            *(F.min(F.when(_reached(share), F.col("upto"))).alias(f"{name}_upto") for name, share in wanted.items()),
        )
        .orderBy("kind", "upper").collect()
    )  # fmt: skip
    by_kind = {total: [row for row in rows if row["kind"] == total] for total in totals}
    distance = by_kind["distance"]
    return replace(
        found,
        distance=_spread(distance),
        messages=_spread(by_kind["messages"]),
        seconds=_spread(by_kind["age"], unit=_SECOND_MS),
        needed=_least(distance, "needed"),
        within_needed=_least(distance, "needed_upto"),
        within_capacity=sum(row["within_capacity"] or 0 for row in distance),
    )


def _reached(share: Fraction) -> Column:
    """Return whether at least this share of the values is not larger, in integer arithmetic."""
    return F.col("upto") * share.denominator >= F.col("total") * share.numerator


def _least(rows: Sequence[Any], name: str) -> int:
    return min((int(row[name]) for row in rows if row[name] is not None), default=0)


def _spread(rows: Sequence[Any], unit: int = 1) -> Spread:
    """Return the spread of rows; values are divided by ``unit``."""

    def shown(value: int) -> float:
        return value / unit if unit > 1 else value

    return Spread(
        sum(row["count"] for row in rows),
        shown(_least(rows, "p50")),
        shown(_least(rows, "p99")),
        shown(max((row["max"] for row in rows), default=0)),
        [Bin(row["upper"], row["count"]) for row in rows],
    )


def confidence_of(share: float) -> Fraction:
    """Return the share as written, to a millionth: binary rounding must not ask for one more resend."""
    return Fraction(str(share)).limit_denominator(10**6)
