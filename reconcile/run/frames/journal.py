"""Ring events from the journal: new sizes, emptied rings, and lanes that took over from others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.run.history.cut import AddressCut
from reconcile.run.history.history import Run
from reconcile.run.history.rings import Regroup, Regrouped, Rings, regroups
from reconcile.spark.schemas import EVENTS
from ringfence_kafka.config.settings import AddressSettings

RESIZED: Final = "resized"
"""Event: the ring got another size. It keeps its newest IDs, as many as the smaller size holds."""
GROWN: Final = "grown"
"""Event of more lanes: a lane copies its IDs to those that equal its number modulo the former count."""
REGROUPED: Final = "regrouped"
"""Event: the number of lanes changed. A new lane has the newest IDs of all lanes that had its partitions."""


class Emptied(NamedTuple):
    """Order to empty a ring. The lane judged all inputs below these offsets before it."""

    input_next: int
    forward_next: int
    nexts: Sequence[int] | None = None
    """Offset of each input partition, replacing ``input_next``; None = the lane has one partition."""

    def judged_up_to(self, partition: int) -> int:
        """Return the first offset of an input partition that the lane judged after the order."""
        if self.nexts is None:
            return self.input_next
        return self.nexts[partition] if partition < len(self.nexts) else 0


class RingHistory(NamedTuple):
    """Events of one lane's ring, in brief."""

    lane: int
    capacity: int  # largest size before or after an event
    emptied: Emptied | None  # last order to empty it; None = never


Journal = Mapping[int, Sequence[RingHistory]]
"""Number of the address → its rings; addresses without events are absent."""


def ring_histories(events: DataFrame | None) -> Journal:
    """Collect :data:`reconcile.spark.schemas.EVENTS` by address and lane; None = no events."""
    found: dict[int, list[RingHistory]] = {}
    if events is None:
        return found
    order = F.when(empties(F.col("event"), F.col("before"), F.col("after")), F.col("number"))
    rows = events.groupBy("address", "lane").agg(
        F.coalesce(F.max(F.greatest("before", "after")), F.lit(0)).alias("capacity"),
        F.max_by(F.struct("input_next", "forward_next", "nexts"), order).alias("emptied"),
    )
    for row in rows.where("lane is not null").collect():
        emptied = None if row["emptied"] is None else Emptied(*row["emptied"])
        found.setdefault(row["address"], []).append(RingHistory(row["lane"], row["capacity"], emptied))
    return found


def empties(event: Column, before: Column, after: Column) -> Column:
    """Return whether an event emptied the ring. An event of a reopened ring may change its size too."""
    return F.coalesce(event != RESIZED, before == after)


def of_growth(events: DataFrame | None) -> tuple[DataFrame | None, DataFrame | None]:
    """Split events into all but :data:`GROWN`, and :data:`GROWN`.

    :data:`REGROUPED` events are left out. They need no treatment, because new rings have new numbers.
    """
    if events is None:
        return None, None
    name = F.coalesce("event", F.lit(""))
    return events.where(~name.isin(GROWN, REGROUPED)), events.where(name == GROWN)


def regrouped(events: DataFrame | None) -> Mapping[int, Sequence[Regroup]]:
    """Return changes of the number of lanes by address number; addresses without a change are absent."""
    if events is None:
        return {}
    columns = ("number", "lane", "before", "after", "nexts", "forward_next", "lanes")
    rows = events.where(F.col("event") == REGROUPED).select("address", *columns).collect()
    found: dict[int, list[Regrouped]] = {}
    for row in rows:
        values = {name: row[name] for name in columns}
        values |= {"nexts": tuple(row["nexts"] or ()), "lanes": row["lanes"] or 0}
        found.setdefault(row["address"], []).append(Regrouped(**values))
    return {address: regroups(records) for address, records in found.items()}


def with_events(rows: DataFrame, events: DataFrame) -> DataFrame:
    """Add the ``events`` of the row's lane as an ordered array; null = no events."""
    names = [name for name in EVENTS.names if name not in {"address", "lane", "number"}]
    event = F.struct("number", *names)
    by_lane = events.groupBy("address", "lane").agg(F.array_sort(F.collect_list(event)).alias("events"))
    return rows.join(F.broadcast(by_lane), on=["address", "lane"], how="left")


def judged_before(event: Callable[[str], Column], row: str = "") -> Column:
    """Return whether a row was judged before an event, by its offset on its route.

    ``event`` returns the event's column of a name; ``row`` is the prefix of the row's columns.
    """
    offset, forward_offset = F.col(f"{row}offset"), F.col(f"{row}forward_offset")
    input_next = F.coalesce(F.get(event("nexts"), F.col(f"{row}partition")), event("input_next"))
    return F.when(forward_offset.isNotNull(), forward_offset < event("forward_next")).otherwise(
        offset < input_next
    )


def past_events() -> Column:
    """Return the ``events`` before the row."""
    return F.filter("events", lambda event: ~judged_before(event.__getitem__))


def future_events() -> Column:
    """Return the ``events`` after the row."""
    return F.filter("events", lambda event: judged_before(event.__getitem__))


def emptied_before(rows: DataFrame, events: DataFrame | None) -> DataFrame:
    """Add ``emptied``: how often the ring was emptied before the row; and ``events``, if there are any."""
    if events is None:
        return rows.withColumn("emptied", F.lit(0))
    emptying = F.filter(past_events(), lambda event: empties(event["event"], event["before"], event["after"]))
    known = F.col("events").isNotNull()
    return with_events(rows, events).withColumn("emptied", F.when(known, F.size(emptying)).otherwise(0))


def size_between(past: Column, future: Column) -> Column:
    """Return the ring's size between past and future events; null = no event shows it."""
    return F.coalesce(F.get(F.reverse(past), F.lit(0))["after"], F.get(future, F.lit(0))["before"])


def largest(addresses: Sequence[AddressSettings], histories: Journal, chain: Sequence[Run]) -> list[int]:
    """Return the largest ring size that each address may have had.

    A configured size takes effect when workers restart, and only then the journal shows the size before.
    """
    return [
        max(
            [
                address.ring_capacity,
                *(ring.capacity for ring in histories.get(number, ())),
                *(run.capacity(address.name) for run in chain),
            ]
        )
        for number, address in enumerate(addresses)
    ]


def capacities(addresses: Sequence[AddressSettings], largest: Sequence[int]) -> list[int]:
    """Return the result of :func:`largest`, but 0 for an address whose ring is off now."""
    return [size if address.id_cache_size else 0 for address, size in zip(addresses, largest, strict=True)]


def since(cut: AddressCut, rings: Rings, ring: int, emptied: Emptied, consumed: int) -> bool:
    """Return whether a ring was emptied after ``consumed``, the last run's end in the forward topic."""
    if ring not in rings.now:
        return False
    judged = 0 if cut.forward is None or cut.forward.recreated else consumed
    return emptied.forward_next >= judged and all(
        emptied.judged_up_to(partition) >= cut.input.spans[partition].begin
        for partition in rings.partitions_of(ring)
    )
