"""What a growth of an address has to do. Pure."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import wire_names
from tables.codec import Meta

NAMES_MAX: Final = 16


class GrowthError(RingfenceError):
    """The address cannot be given so many partitions, or not now."""


class Growth(NamedTuple):
    """From how many lanes to how many."""

    began: int
    wanted: int

    def heirs(self, lane: int) -> range:
        """The lanes that are to know what this one knows."""
        return range(lane + self.began, self.wanted, self.began)


class Work(NamedTuple):
    """What a growth has to do."""

    growth: Growth
    counts: dict[str, int]
    """Partitions of each topic that is to have as many; the input comes last."""
    metas: dict[int, Meta]
    """The lanes' last meta records."""
    left: list[int]
    """Lanes whose record does not say so yet."""

    @property
    def parents(self) -> list[int]:
        """Those of them that have heirs."""
        return [number for number in sorted(self.left) if number < self.growth.began]

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.left and all(count == self.growth.wanted for count in self.counts.values())


def plan(address: AddressSettings, now: int, metas: Mapping[int, Meta], wanted: int) -> Growth:
    """From how many lanes to how many.

    Args:
        address: Whose input.
        now: How many partitions that has.
        metas: The lanes' last meta records.
        wanted: How many it is to have.

    Raises:
        GrowthError: that cannot be; says which counts can.
    """
    counts = {meta.partition_counts.get(address.input_topic, now) for meta in metas.values()}
    began = min(counts, default=now)
    under_way = counts - {began, wanted}
    if under_way:
        raise GrowthError(
            f"{address.input_topic} is on its way from {began} to {max(under_way)} partitions: finish that first, by "
            f"--partitions {max(under_way)}"
        )
    least = max(now, began)
    if wanted < least:
        raise GrowthError(f"{address.input_topic} has {least} partitions: Kafka takes none away")
    if wanted % began:
        several = ", ".join(str(multiple) for multiple in islice(multiples(began, least), 3))
        raise GrowthError(
            f"{wanted} is no multiple of the {began} partitions with which the lanes of {address.name} began: what they know could "
            f"not be handed on. Choose {several}, …"
        )
    return Growth(began, wanted)


def multiples(began: int, least: int) -> Iterator[int]:
    """Of ``began``, rising: those above it, and from ``least`` on."""
    first = max(2, -(-least // began))
    count = first
    while True:
        yield count * began
        count += 1


def named_heirs(address: AddressSettings, growth: Growth, lane: int) -> str:
    """The heirs of a lane, for a line that is not to have thousands of names; a document has all."""
    heirs = growth.heirs(lane)
    shown = ", ".join(wire_names.lane_name(address.name, heir) for heir in heirs[:NAMES_MAX])
    return shown if len(heirs) <= NAMES_MAX else f"{shown}, {len(heirs) - NAMES_MAX:,} more"


def foretell(
    address: AddressSettings, work: Work, obstacles: list[str], say: Callable[[str], object]
) -> None:
    """For a person, a line each."""
    for topic, count in work.counts.items():
        if count < work.growth.wanted:
            say(f"would give  {topic}  {count} partitions, then {work.growth.wanted}")
    for lane in work.parents:
        heirs = named_heirs(address, work.growth, lane)
        say(f"would tell  {heirs}  what {wire_names.lane_name(address.name, lane)} knows")
    for obstacle in obstacles:
        say(f"in the way  {obstacle}")


def document(address: AddressSettings, work: Work, obstacles: list[str], *, dry_run: bool) -> dict[str, Any]:
    """For programs."""
    growth = work.growth
    return {
        "dry_run": dry_run,
        "address": address.name,
        "partitions": growth.wanted,
        "topics": [
            {"name": name, "partitions": count, "grows": count < growth.wanted}
            for name, count in work.counts.items()
        ],
        "lanes": [
            {
                "lane": wire_names.lane_name(address.name, lane),
                "heirs": [wire_names.lane_name(address.name, heir) for heir in growth.heirs(lane)],
            }
            for lane in work.parents
        ],
        "in_the_way": obstacles,
    }
