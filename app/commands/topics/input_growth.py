"""``ringfence topics grow`` for an address that sets ``lanes``: only its input gets partitions. Pure.

Partition p belongs to lane p modulo ``lanes``. If both counts are multiples of ``lanes``, each group and each
ID keeps its lane. Then no IDs need to move, and workers may run. With one lane any count works.
"""

from collections.abc import Mapping

from agents.topic_checks.topics import next_count
from app.commands.topics.growth_plan import Growth, GrowthError
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol.lane_layout import LaneLayout
from ringfence_kafka.wording import counted
from tables.codec import Meta

ORDER: str = (
    "rings know all IDs as before. A group that moves to a new partition may overtake its messages that still wait in the old one: where that "
    "matters, grow while producers are stopped and the lag is 0"
)


def plan_input(address: AddressSettings, now: int, metas: Mapping[int, Meta], wanted: int) -> Growth:
    """Return the growth of an input from ``now`` partitions to ``wanted``.

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
