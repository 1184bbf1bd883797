"""Small frames for the judging functions: a test states only the fields that matter to it."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from reconcile.spark.columns import small
from reconcile.spark.schemas import ACCEPTED, ANOMALIES, EVENTS, EVIDENCE, HOPS, IDS, RULES, SPANS


def cut(frame: DataFrame) -> DataFrame:
    """Return the rows without their plan, as a run does by scratch files: a plan that contains itself several times takes long."""
    return frame.localCheckpoint()


class Frames:
    """Factory of rows: a test states only the fields that matter to it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def evidence(self, *rows: dict[str, Any]) -> DataFrame:
        """Return inputs of one group, accepted at their own offsets, unless a row has other values."""
        frame = self._frame(EVIDENCE, [_evidence(number, row) for number, row in enumerate(rows)])
        return frame.withColumns(
            {
                "whole": F.coalesce("whole", "fate"),
                "ids": F.coalesce("ids", F.col("id").isNotNull().cast("int")),
                "home_digest": F.coalesce("home_digest", F.xxhash64("group")),
            }
        )

    def ids(self, *rows: dict[str, Any]) -> DataFrame:
        """IDs accepted in lane 0, in order, in run 1."""
        zero = (
            "address",
            "id_address",
            "lane",
            "partition",
            "part_number",
            "out_address",
            "out_partition",
            "timestamp",
        )
        plain = {**dict.fromkeys(zero, 0), "group_digest": 1, "run": 1}
        return self._frame(
            IDS, [_homed({**plain, "offset": n, "out_offset": n, **row}) for n, row in enumerate(rows)]
        )

    def events(self, *rows: dict[str, Any]) -> DataFrame:
        return self._frame(
            EVENTS, [{"address": 0, "lane": 0, "number": n, **row} for n, row in enumerate(rows)]
        )

    def hops(self, *rows: dict[str, Any]) -> DataFrame:
        return self._frame(HOPS, list(rows))

    def anomalies(self, *rows: dict[str, Any]) -> DataFrame:
        """Anomalies as they are written: addresses by name."""
        names = {"address": StringType()}
        kept = [StructField(anomaly.name, names.get(anomaly.name, anomaly.dataType)) for anomaly in ANOMALIES]
        return self._frame(StructType(kept), list(rows))

    def rules(self, **changes: Any) -> DataFrame:
        return self.rules_of(changes)

    def rules_of(self, *addresses: dict[str, Any]) -> DataFrame:
        """Rules of several addresses; each states only what is not usual."""
        rows = [_rule({"address": number, **changes}) for number, changes in enumerate(addresses)]
        return small(self._spark, rows, RULES)

    def spans(self) -> DataFrame:
        """Partition 0: nothing before 10 was ever judged, this run judges 20 to 30, the log ends at 40."""
        return small(self._spark, [(0, 0, 10, 20, 20, 30, 40)], SPANS)

    def _frame(self, schema: StructType, rows: list[dict[str, Any]]) -> DataFrame:
        return small(self._spark, [tuple(row.get(name) for name in schema.names) for row in rows], schema)


def _rule(changes: dict[str, Any]) -> tuple[Any, ...]:
    rule = {
        "address": 0, "max_age_ms": 0, "min_age_ms": 0, "size": 0, "largest": 20_000, "divert": False, "observes": False, "enforces": True, "diverts_conflicts": False, "detects": True, "outputs_gone": False,
        "targets_gone": False, "evidence_deleted": False, "lanes_whole": [], "whole_since": 0, "moved": -1, "renamed": -1, **changes,
    }  # fmt: skip
    return tuple(rule.values())


def _evidence(number: int, row: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "address": 0, "partition": 0, "offset": number, "part_number": 0, "has_input": True, "timestamp": 0, "id": b"%d" % number,
        "group": b"g", "lane": 0, "waiting": False, "fate": ACCEPTED, "nth": 1, "out_address": row.get("address", 0), "out_partition": 0,
        "out_offset": number, "part_address": row.get("address", 0), "resent": False, "after_new": False,
        **{name: False for name in EVIDENCE.names if name.endswith("_changed")},
    }  # fmt: skip
    made = plain | row
    if made["fate"] is None:
        made |= {"nth": None, "out_address": None, "out_partition": None, "out_offset": None}
    return made


def _homed(row: dict[str, Any]) -> dict[str, Any]:
    """Row with the home of its group."""
    return {"home_digest": row["group_digest"], **row}


def named(frame: DataFrame) -> list[tuple[str, int | None]]:
    """Name and input offset, in order."""
    return sorted((row["anomaly"], row["offset"]) for row in frame.collect())


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.collect())
