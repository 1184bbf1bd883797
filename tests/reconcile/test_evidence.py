"""Inputs and outputs brought together, on small frames."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from reconcile.anomalies.finders import fates, lost_inputs
from reconcile.run.frames import evidence as ev
from reconcile.spark.columns import small
from reconcile.spark.schemas import (
    ACCEPTED,
    DIVERTED,
    FORWARD_COMMITTED,
    FORWARDS,
    INPUTS,
    OUTPUTS,
    QUARANTINED,
    SPANS,
)

_WAYS = StructType([*INPUTS.fields, *FORWARDS.fields[-2:]])


def _frame(spark: SparkSession, schema: StructType, rows: Sequence[dict[str, Any]]) -> DataFrame:
    found = [
        tuple(({"address": 0, "part_number": 0} | row).get(name) for name in schema.names) for row in rows
    ]
    return small(spark, found, schema)


def _rows(frame: DataFrame, *names: str) -> list[Row]:
    return sorted(frame.select(*names).collect(), key=str)


def test_what_a_home_lane_judged_after_the_cut_waits_with_its_output(spark: SparkSession) -> None:
    """Inputs that a home lane judged after the run began wait, together with their outputs.

    Lane 0 had consumed forward offset 4 when the run began; then it judged 5 and 6, and what is ahead of them. They are neither judged, nor
    PHANTOM or DOUBLED, and the next run has them whole.
    """
    came = {
        "partition": 1,
        "key_digest": 7,
        "value_digest": 8,
        "value_bytes": 1,
        "headers_digest": 9,
        "id": b"x",
    }
    went = {
        "partition": 1,
        "out_key_digest": 7,
        "out_value_digest": 8,
        "out_headers_digest": 9,
        "out_partition": 0,
    }
    committed = _frame(spark, FORWARD_COMMITTED, [{"lane": 0, "committed": 5}])
    evidence = ev.attribute(
        _frame(spark, _WAYS, [{**came, "offset": number} for number in (0, 1, 2)]),
        _frame(
            spark, FORWARDS,
            [{"partition": 1, "offset": number, "lane": 0, "forward_offset": 4 + number} for number in (0, 1, 2)],
        ),
        _frame(
            spark, OUTPUTS,
            [
                {**went, "offset": 0, "fate": ACCEPTED}, {**went, "offset": 1, "fate": DIVERTED, "original": "t/0/9"},
                {**went, "offset": 2, "fate": ACCEPTED}, {**went, "offset": 2, "fate": ACCEPTED, "out_offset": 6},
            ],
        ),
        committed,
    )  # fmt: skip
    evidence.cache()
    spans = small(spark, [(0, 1, 0, 0, 0, 3, 3)], SPANS)
    ahead = ev.ahead(evidence, spans)

    assert _rows(evidence.where("has_input"), "offset", "fate", "waiting") == [
        (0, ACCEPTED, False), (1, None, True), (2, None, True),
    ]  # fmt: skip
    assert lost_inputs.unmatched(evidence).isEmpty()
    assert fates.phantom(evidence, spans).isEmpty()
    assert fates.doubled(evidence).isEmpty()
    assert [row["offset"] for row in ev.accepted_ids(evidence, 1).collect()] == [0]

    later = ev.attribute(
        ev.carried_inputs(evidence).select(*_WAYS.names),
        ev.carried_forwards(ahead),
        ev.carried_outputs(ahead),
        _frame(spark, FORWARD_COMMITTED, [{"lane": 0, "committed": 9}]),
    )
    evidence.unpersist()

    assert _rows(later, "offset", "has_input", "waiting", "fate", "nth", "original") == [
        (1, True, False, DIVERTED, 1, "t/0/9"),
        (2, True, False, ACCEPTED, 1, None),
        (2, True, False, ACCEPTED, 2, None),
    ]
    assert later.where("key_changed or value_changed or headers_changed").select("fate").collect() == []


def test_where_none_can_wait_nothing_is_told_apart(spark: SparkSession) -> None:
    """The look for waiting inputs changes nothing when nothing was forwarded."""
    inputs = _frame(
        spark, _WAYS, [{"partition": index % 2, "offset": index, "id": b"x"} for index in range(4)]
    )
    outputs = _frame(
        spark, OUTPUTS,
        [{"partition": number % 2, "offset": number, "fate": ACCEPTED, "out_offset": number} for number in (0, 0, 3, 9)] + [{"fate": ACCEPTED}],
    )  # fmt: skip
    committed = _frame(spark, FORWARD_COMMITTED, [{"lane": number, "committed": 0} for number in (0, 1)])
    looked, not_looked = (
        ev.attribute(inputs, None, outputs, committed, waited=item) for item in (True, False)
    )

    assert _rows(looked, *looked.columns) == _rows(not_looked, *looked.columns)


def _attributed(
    spark: SparkSession, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]
) -> DataFrame:
    """Return inputs of partition 0 with an output each."""
    places = [{"partition": 0, "offset": at} for at in range(len(inputs))]
    came, went = (
        [{**place, **row} for place, row in zip(places, rows, strict=True)] for rows in (inputs, outputs)
    )
    committed = _frame(spark, FORWARD_COMMITTED, [])
    return ev.attribute(_frame(spark, _WAYS, came), None, _frame(spark, OUTPUTS, went), committed)


def test_stand_in_for_no_value(spark: SparkSession) -> None:
    """A null value that is in quarantine for its headers has no bytes; a value of another size is another value."""
    evidence = _attributed(
        spark,
        [{"value_digest": 42, "value_bytes": size} for size in (None, 3, 3)],
        [{"fate": QUARANTINED, "out_value_digest": 1, "out_value_bytes": size} for size in (0, 3, 4)],
    )

    assert [row["offset"] for row in fates.corrupted(evidence).collect()] == [2]


def test_a_time_that_is_not_the_inputs(spark: SparkSession) -> None:
    """A timestamp that is not the input's is an anomaly of accepted records only.

    An output that brokers stamp gives no evidence by its time; duplicates and quarantine promise none.
    """
    outputs: list[dict[str, Any]] = [
        {"fate": ACCEPTED, "out_timestamp": 7}, {"fate": ACCEPTED, "out_timestamp": 8}, {"fate": ACCEPTED},
        {"fate": DIVERTED, "out_timestamp": 8}, {"fate": QUARANTINED, "out_timestamp": 8},
    ]  # fmt: skip
    evidence = _attributed(
        spark, [{"timestamp": 7}] * 5, [{**output, "out_group_digest": 42} for output in outputs]
    )

    assert [row["offset"] for row in evidence.where("timestamp_changed").collect()] == [1]
    assert [row["detail"] for row in fates.corrupted(evidence).collect()] == ["timestamp not as in the input"]


def test_outputs_of_nothing_are_apart(spark: SparkSession) -> None:
    """Outputs that name no input are not further outputs of one another: one task would have to number all of them."""
    strays = [{"fate": fate, "out_partition": 0, "out_offset": at} for fate in (1, 3) for at in (0, 1)]
    evidence = ev.attribute(
        _frame(spark, _WAYS, []), None, _frame(spark, OUTPUTS, strays), _frame(spark, FORWARD_COMMITTED, [])
    )

    assert _rows(evidence, "partition", "offset", "nth", "out_offset") == [
        (None, None, 1, 0), (None, None, 1, 0), (None, None, 1, 1), (None, None, 1, 1),
    ]  # fmt: skip
    assert fates.phantom(evidence, small(spark, [], SPANS)).count() == 2
