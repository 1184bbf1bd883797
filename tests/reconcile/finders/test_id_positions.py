"""Positions of IDs in lanes without sorting: how many came before, and the order of groups."""

import random
from typing import Any

import pytest
from pyspark.sql import functions as F

from reconcile.anomalies.finders import order
from reconcile.run.frames import id_positions
from reconcile.run.frames.evidence import accepted_ids
from reconcile.run.measures import resend_distance
from reconcile.spark.schemas import DIVERTED
from tests.reconcile.rows import Frames


@pytest.mark.parametrize("seed", range(3))
def test_places_are_those_of_sorted_rows(frames: Frames, seed: int) -> None:
    """The positions equal those of sorted rows, over two partitions with holes.

    A record without an ID, one in quarantine and a dropped one count for none behind them.
    """
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for partition in (0, 1):
        for offset in sorted(rng.sample(range(2**40, 2**40 + 400), 150)):
            row: dict[str, Any] = {"partition": partition, "lane": partition, "offset": offset}
            row |= rng.choice(({}, {}, {}, {"id": None}, {"fate": None}, {"fate": DIVERTED}, {"fate": 3}))
            rows.append(row)
    evidence = frames.evidence(*rows).cache()
    seen = resend_distance.seen(evidence, {0}, {0})
    expected = resend_distance.placed(seen, F.lit(7), [()])
    found = resend_distance.placed(seen, F.lit(7), [()], id_positions.blocks(evidence))
    columns = ["partition", "offset", "earliest", "latest"]

    assert sorted(found.select(*columns).collect()) == sorted(expected.select(*columns).collect())
    kept = accepted_ids(evidence, 1).withColumn("accepted", F.lit(True))
    counted = resend_distance.placed(kept, F.lit(0), [()], id_positions.blocks(evidence)).where(
        "partition = 1"
    )
    assert sorted(row["earliest"] for row in counted.collect()) == list(range(counted.count()))
    evidence.unpersist()


def test_what_was_judged_elsewhere_has_no_place_here(frames: Frames) -> None:
    """A forwarded record has its position in its home lane, and does not count at its input offset."""
    evidence = frames.evidence({}, {"forward_offset": 4, "lane": 1}, {})
    found = resend_distance.placed(
        resend_distance.seen(evidence, {0}, {0}), F.lit(0), [{1}], id_positions.blocks(evidence)
    )

    assert sorted((row["offset"], row["earliest"]) for row in found.collect()) == [(0, 0), (1, 0), (2, 1)]


def _looked_for(frames: Frames, *rows: dict[str, Any]) -> bool:
    evidence = frames.evidence(*rows)
    return order.may_be_broken(evidence, id_positions.blocks(evidence))


def test_what_is_in_order_is_not_looked_at_by_groups(frames: Frames) -> None:
    """Dropped records, markers in the output, records without an ID and several output partitions break no order."""
    assert not _looked_for(frames, *({"out_offset": 2 * index} for index in range(200)))
    assert not _looked_for(frames, {"fate": None}, {"out_offset": 0}, {"fate": None}, {"out_offset": 1})
    assert not _looked_for(
        frames, {"id": None, "out_offset": 5}, {"out_offset": 6}, {"id": None, "out_offset": 7}
    )
    apart = [{"group": b"%d" % (index % 2), "out_partition": index % 2} for index in range(10)]
    assert not _looked_for(frames, *apart)
    assert not _looked_for(frames, {"fate": None})


@pytest.mark.parametrize(
    "rows",
    [
        [{"out_offset": number} for number in (0, 2, 1, 3)],
        [{"out_offset": number} for number in (3, 0, 1, 2)],
        [{"out_offset": number} for number in (5, 1, 7)],
        [{"out_offset": 900}, *({"out_offset": index} for index in range(200))],
        [{"out_offset": 1, "id": None}, {"out_offset": 0, "id": None}],
        [{"out_partition": number} for number in (0, 0, 1, 1)],
    ],
)
def test_no_broken_order_is_passed_over(frames: Frames, rows: list[dict[str, Any]]) -> None:
    """The quick look finds two swapped records, a late one, an early one, and a group in two partitions."""
    assert _looked_for(frames, *rows)
