"""Columns with ring numbers: see :mod:`reconcile.run.history.rings`."""

import functools
from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from reconcile.run.history.rings import Rings
from reconcile.spark.columns import constant


def _of_all(column: Callable[[Rings], Column]) -> Callable[[Sequence[Rings]], Column]:
    """Make the column of one address that of each row's address. Equal rings share one expression."""

    @functools.wraps(column)
    def by_address(rings: Sequence[Rings]) -> Column:
        alike: dict[tuple[object, ...], list[int]] = {}
        for number, item in enumerate(rings):
            lanes = 0 if item.layout.lanes == item.layout.partitions else item.layout.lanes
            key = ("address", number) if item.regroups else ("lanes", lanes)
            alike.setdefault(key, []).append(number)
        (_, first), *others = alike.items()
        found = column(rings[first[0]])
        for _, numbers in others:
            found = F.when(F.col("address").isin(numbers), column(rings[numbers[0]])).otherwise(found)
        return found.cast("int")

    return by_address


@_of_all
def of_inputs(rings: Rings) -> Column:
    """Return the ring that judged an input in its own partition, from address, partition and offset."""
    partition, layout = F.col("partition"), rings.layout
    plain = layout.lanes == layout.partitions and not rings.regroups
    found = partition if plain else F.lit(rings.start) + partition % layout.lanes
    for start, change in reversed([*zip(rings.starts, rings.regroups, strict=False)]):
        nexts = [change.nexts.get(number, 0) for number in range(layout.partitions)]
        before = F.col("offset") < F.coalesce(_listed(nexts, partition), F.lit(0))
        found = F.when(before, F.lit(start) + partition % change.before).otherwise(found)
    return found


@_of_all
def of_forwards(rings: Rings) -> Column:
    """Return the ring that judged a forwarded input, from address, lane (partition) and forward_offset."""
    lane = F.col("lane")
    found = F.lit(rings.start) + lane if rings.regroups else lane
    for start, change in reversed([*zip(rings.starts, rings.regroups, strict=False)]):
        nexts = [change.forward_nexts.get(number, 0) for number in range(change.after)]
        # New lanes read only their own forward partitions; the others were read by former lanes.
        before = F.coalesce(F.col("forward_offset") < _listed(nexts, lane), F.lit(True))
        found = F.when(before, F.lit(start) + lane).otherwise(found)
    return found


@_of_all
def of_events(rings: Rings) -> Column:
    """Return the ring of an event, from the columns address, lane and number."""
    found = F.col("lane")
    for start, change in zip(rings.starts[1:], rings.regroups, strict=True):
        found = F.when(F.col("number") >= change.number, F.col("lane") + start).otherwise(found)
    return found


def _settled(rings: Rings) -> Column:
    lane = F.col("lane")
    if not rings.regroups:
        return lane
    return F.coalesce(_listed([rings.settled(ring) for ring in rings.all], lane), lane)


@_of_all
def settled(rings: Rings) -> Column:
    """Return the present ring that took over all IDs of the ring ``lane``, or that ring itself."""
    return _settled(rings)


@_of_all
def present(rings: Rings) -> Column:
    """Return the ring of the lane that now has the row's partition; reads also lane and forward_offset."""
    if not rings.regroups:
        return F.col("lane")
    own = F.lit(rings.start) + F.col("partition") % rings.layout.lanes
    return F.when(F.col("forward_offset").isNull(), own).otherwise(_settled(rings))


def knowing(rings: Sequence[Rings]) -> Column:
    """Return the rings that know, or knew, IDs of the ring ``lane``."""
    listed = [[list(item.knowing(ring)) for ring in item.all] for item in rings]
    known = F.get(constant(listed, "array<array<array<int>>>"), F.col("address"))
    return F.coalesce(F.get(known, F.col("lane")), F.array("lane"))


def _listed(values: Sequence[int], at: Column) -> Column:
    return F.get(constant(values, "array<bigint>"), at)
