"""What the journal tells of rings, a row a lane: how large each was, when it was last emptied by order, and whose heirs there are."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconcile.run.history.cut import AddressCut
from reconcile.run.history.history import Run
from ringfence_kafka.config.settings import AddressSettings


class Emptied(NamedTuple):
    """By order: all of the lane's inputs below these offsets were judged before."""

    input_next: int
    forward_next: int


class RingHistory(NamedTuple):
    """Of one lane."""

    lane: int
    capacity: int
    """The largest that its ring had before or after an event."""
    emptied: Emptied | None
    """The last time; None = never."""


Journal = Mapping[int, Sequence[RingHistory]]
"""By the address's number; only those of which it tells."""


def told(events: DataFrame | None) -> Journal:
    """Collect it.

    Args:
        events: :data:`reconcile.spark.schemas.EVENTS`; None = there are none.
    """
    found: dict[int, list[RingHistory]] = {}
    if events is None:
        return found
    order = F.when(empties(F.col("event"), F.col("before"), F.col("after")), F.col("number"))
    rows = events.groupBy("address", "lane").agg(
        F.coalesce(F.max(F.greatest("before", "after")), F.lit(0)).alias("capacity"),
        F.max_by(F.struct("input_next", "forward_next"), order).alias("emptied"),
    )
    for row in rows.where("lane is not null").collect():
        emptied = None if row["emptied"] is None else Emptied(*row["emptied"])
        found.setdefault(row["address"], []).append(RingHistory(row["lane"], row["capacity"], emptied))
    return found


RESIZED: Final = "resized"
"""The journal's word for a ring of another size: the newest stay, as many as the smaller of the two holds."""


def empties(event: Column, before: Column, after: Column) -> Column:
    """Whether a ring lost all that it knew, by what the journal says of it; one that was opened anew may have got another size too."""
    return F.coalesce(event != RESIZED, before == after)


GROWN: Final = "grown"
"""The journal's word for an address that has got more lanes: those that are a lane's number modulo the former count know what it knew."""


def of_growth(events: DataFrame | None) -> tuple[DataFrame | None, DataFrame | None]:
    """The events that are none of an address that has got more lanes, and those."""
    if events is None:
        return None, None
    grown = F.coalesce(F.col("event") == GROWN, F.lit(False))
    return events.where(~grown), events.where(grown)


def of_rings(events: DataFrame | None) -> DataFrame | None:
    """Those of :data:`reconcile.spark.schemas.EVENTS` that happened to rings themselves."""
    return None if events is None else events.where(~F.coalesce("of_hops", F.lit(False)))


def capacities(addresses: Sequence[AddressSettings], told: Journal, chain: Sequence[Run]) -> list[int]:
    """As :func:`largest`; 0 where it is off now."""
    sizes = largest(addresses, told, chain)
    return [size if address.id_cache_size else 0 for address, size in zip(addresses, sizes, strict=True)]


def largest(addresses: Sequence[AddressSettings], told: Journal, chain: Sequence[Run]) -> list[int]:
    """The largest ring that each address can have had.

    A size that is configured is in force when workers were restarted, and only then the journal tells what it was before.

    Args:
        addresses: By their numbers.
        told: What happened to rings.
        chain: Nights before.
    """
    found = []
    for number, address in enumerate(addresses):
        lanes = [lane.capacity for lane in told.get(number, ())]
        nights = [night.capacity(address.name) for night in chain]
        found.append(max([address.id_cache_size, *lanes, *nights]))
    return found


def since(cut: AddressCut, lane: int, emptied: Emptied, consumed: int) -> bool:
    """Whether a ring was emptied after the last night: nothing that it judged came later.

    Args:
        cut: Of the address, in this night.
        lane: The ring's.
        emptied: When.
        consumed: Up to where the lane had consumed the forward topic on the last night.
    """
    spans = cut.input.spans
    judged = 0 if cut.forward.recreated else consumed
    return lane < len(spans) and emptied.input_next >= spans[lane].begin and emptied.forward_next >= judged
