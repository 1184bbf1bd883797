"""Plan of an address's growth. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from agents.topic_checks.topics import next_count
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout
from ringfence_kafka.wording import counted, first_of
from tables.codec import Meta

NAMES_MAX: Final = 16
ORDER: Final = (
    "rings know all IDs as before. A group that moves to a new partition may overtake its messages that still wait in the old one: where that "
    "matters, grow while producers are stopped and the lag is 0"
)


class GrowthError(RingfenceError):
    """The address cannot get this number of partitions, or not now."""


class Growth(NamedTuple):
    """Lane counts before and after."""

    began: int
    wanted: int

    def successors(self, lane: int) -> range:
        """Return the lanes that get the IDs of a lane."""
        return range(lane + self.began, self.wanted, self.began)


class Work(NamedTuple):
    """Work of a growth."""

    growth: Growth
    counts: dict[str, int]
    """Topic → present partitions, for each topic that grows; the input comes last."""
    metas: dict[int, Meta]
    """Lane → its last meta record."""
    left: list[int]
    """Lanes whose record does not have the new count."""

    @property
    def parents(self) -> list[int]:
        """Lanes of :attr:`left` that have successors."""
        return [number for number in sorted(self.left) if number < self.growth.began]

    @property
    def done(self) -> bool:
        """Whether everything is done."""
        return not self.left and all(count == self.growth.wanted for count in self.counts.values())


def plan(address: AddressSettings, now: int, metas: Mapping[int, Meta], wanted: int) -> Growth:
    """Return the growth of an input from ``now`` partitions to ``wanted``.

    Raises:
        GrowthError: It is not possible; the message names possible counts.
    """
    counts = {meta.partition_counts.get(address.input_topic, now) for meta in metas.values()}
    began = min(counts, default=now)
    under_way = counts - {began, wanted}
    if under_way:
        raise GrowthError(
            f"{address.input_topic} is growing from {began} to {counted(max(under_way), 'partition')}: finish that "
            f"first, by --partitions {max(under_way)}"
        )
    least = max(now, began)
    if wanted < least:
        raise GrowthError(
            f"{address.input_topic} has {counted(least, 'partition')}, and Kafka cannot remove any"
        )
    if wanted % began:
        first = max(2, -(-least // began))
        choices = ", ".join(str(number * began) for number in range(first, first + 3))
        raise GrowthError(
            f"{wanted} is not a multiple of the {began} partitions with which the lanes of {address.name} "
            f"began: their IDs could not be copied. Choose {choices}, …"
        )
    return Growth(began, wanted)


def plan_input(address: AddressSettings, now: int, metas: Mapping[int, Meta], wanted: int) -> Growth:
    """Return the growth of an address that sets ``lanes``: only its input gets partitions.

    Partition p belongs to lane p modulo ``lanes``. If both counts are multiples of ``lanes``, each group and
    each ID keeps its lane. Then no IDs need to move, and workers may run. With one lane any count works.

    Raises:
        GrowthError: Groups and IDs would move to other lanes, or it is impossible; the message names possible
            counts.
    """
    topic, lanes = address.input_topic, address.lanes
    counts = {meta.partition_counts.get(topic, now) for meta in metas.values()}
    least = max(now, lanes, *counts, 0)
    if wanted < least:
        raise GrowthError(
            f"{topic} is to have {counted(wanted, 'partition')}: it has {now}, and Kafka cannot remove any; choose "
            f"{least} or more, for lanes = {lanes}"
        )
    moving = [
        before
        for before in sorted(counts)
        if not LaneLayout(wanted, lanes).keeps_homes(LaneLayout(before, lanes))
    ]
    if not moving:
        return Growth(now, wanted)
    before = moving[0]
    said = (
        f"{topic} had {counted(before, 'partition')} when the lanes of {address.name} began: with {wanted} and lanes = {lanes}, groups and IDs would "
        "move to other lanes, which do not know them."
    )
    first = next_count(max(now, before + 1), before, lanes)
    if first:
        choices = ", ".join(str(first + number * lanes) for number in range(3))
        raise GrowthError(f"{said} Choose {choices}, …")
    raise GrowthError(
        f"{said} No count works, as {before} is not a multiple of {lanes}: stop the workers and run "
        f"'ringfence rings regroup {address.name} --lanes 1' first; with one lane any count works"
    )


def needs_stop(address: AddressSettings, growth: Growth, metas: Mapping[int, Meta]) -> bool:
    """Return whether workers must stop: lanes without records may have messages whose homes move."""
    lanes = address.lanes
    return not metas and not LaneLayout(growth.wanted, lanes).keeps_homes(LaneLayout(growth.began, lanes))


def named_successors(address: AddressSettings, growth: Growth, lane: int) -> str:
    """Return names of a lane's successors for an output line, at most NAMES_MAX."""
    return first_of([wire_names.lane_name(address.name, to) for to in growth.successors(lane)], NAMES_MAX)


def print_plan(
    address: AddressSettings, work: Work, obstacles: list[str], say: Callable[[str], object]
) -> None:
    """Print the planned work and its obstacles, one line each."""
    for topic, count in work.counts.items():
        if count < work.growth.wanted:
            say(f"would give  {topic}  {counted(count, 'partition')}, then {work.growth.wanted}")
    for lane in work.parents:
        successors = named_successors(address, work.growth, lane)
        say(f"would copy  IDs of {wire_names.lane_name(address.name, lane)} to {successors}")
    for obstacle in obstacles:
        say(f"obstacle    {obstacle}")


def document(address: AddressSettings, work: Work, obstacles: list[str], *, dry_run: bool) -> dict[str, Any]:
    """Return the document of a growth, for programs."""
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
                "heirs": [wire_names.lane_name(address.name, number) for number in growth.successors(lane)],
            }
            for lane in work.parents
        ],
        "in_the_way": obstacles,
    }
