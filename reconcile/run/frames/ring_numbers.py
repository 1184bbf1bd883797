"""Columns with ring numbers: see :mod:`reconcile.run.history.rings`."""

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from reconcile.run.history.rings import Rings
from reconcile.spark.constants import constant


def of_inputs(rings: Sequence[Rings]) -> Column:
    """Return the ring that judged an input in its own partition, from address, partition and offset."""
    return _by_address(rings, _of_input)


def of_forwards(rings: Sequence[Rings]) -> Column:
    """Return the ring that judged a forwarded input, from address, lane (partition) and forward_offset."""
    return _by_address(rings, _of_forward)


def of_events(rings: Sequence[Rings]) -> Column:
    """Return the ring of an event, from the columns address, lane and number."""
    return _by_address(rings, _of_event)


def settled(rings: Sequence[Rings], ring: str = "lane") -> Column:
    """Return the present ring that took over all IDs of a ring, or the ring itself."""

    def of(item: Rings) -> Column:
        moved = [item.settled(number) for number in item.all]
        return F.coalesce(_listed(moved, F.col(ring)), F.col(ring))

    return _by_address(rings, lambda item: of(item) if item.regroups else F.col(ring))


def knowing(rings: Sequence[Rings]) -> Column:
    """Return the rings that know, or knew, IDs of the ring ``lane``."""
    listed = [[list(item.knowing(ring)) for ring in item.all] for item in rings]
    known = F.get(constant(listed, "array<array<array<int>>>"), F.col("address"))
    return F.coalesce(F.get(known, F.col("lane")), F.array("lane"))


def present(rings: Sequence[Rings]) -> Column:
    """Return the ring of the lane that now has the row's partition; reads also lane and forward_offset."""

    def of(item: Rings) -> Column:
        own = F.lit(item.start) + F.col("partition") % item.layout.lanes
        return F.when(F.col("forward_offset").isNull(), own).otherwise(settled(rings))

    return _by_address(rings, lambda item: of(item) if item.regroups else F.col("lane"))


def _by_address(rings: Sequence[Rings], column: Callable[[Rings], Column]) -> Column:
    """Return the column of each row's address. Addresses with equal rings share one expression."""
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


def _of_input(rings: Rings) -> Column:
    partition, layout = F.col("partition"), rings.layout
    plain = layout.lanes == layout.partitions and not rings.regroups
    found = partition if plain else F.lit(rings.start) + partition % layout.lanes
    for start, change in reversed([*zip(rings.starts, rings.regroups, strict=False)]):
        nexts = [change.nexts.get(number, 0) for number in range(layout.partitions)]
        before = F.col("offset") < F.coalesce(_listed(nexts, partition), F.lit(0))
        found = F.when(before, F.lit(start) + partition % change.before).otherwise(found)
    return found


def _of_forward(rings: Rings) -> Column:
    lane = F.col("lane")
    found = F.lit(rings.start) + lane if rings.regroups else lane
    for start, change in reversed([*zip(rings.starts, rings.regroups, strict=False)]):
        nexts = [change.forward_nexts.get(number, 0) for number in range(change.after)]
        # New lanes read only their own forward partitions; the others were read by former lanes.
        before = F.coalesce(F.col("forward_offset") < _listed(nexts, lane), F.lit(True))
        found = F.when(before, F.lit(start) + lane).otherwise(found)
    return found


def _of_event(rings: Rings) -> Column:
    found = F.col("lane")
    for start, change in zip(rings.starts[1:], rings.regroups, strict=True):
        found = F.when(F.col("number") >= change.number, F.col("lane") + start).otherwise(found)
    return found


def _listed(values: Sequence[int], at: Column) -> Column:
    return F.get(constant(values, "array<bigint>"), at)
