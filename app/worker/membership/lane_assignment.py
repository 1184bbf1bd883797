"""Balanced, sticky assignment of lanes to workers.

A lane owns partitions of its input topic, and one of its forward topic if there is one. Its weight is its
number of partitions. Faust's own assignor groups topics by partition count, and gives partition 0 of all
topics in a group to one worker. With ten addresses of four partitions each, a fifth worker gets nothing.
Faust's result also depends on the order in which members are listed, so it cannot be predicted.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ringfence_kafka.groups.balanced_sticky import Unit, UnitPartition, balanced_sticky
from ringfence_kafka.protocol.lane_layout import LaneLayout, lane_of

Partition = tuple[str, int]
Joined = tuple[str, Collection[str], Collection[Partition]]
"""URL, topics and partitions of a member."""


class LaneTopics(NamedTuple):
    """Topics whose partitions make up the lanes of an address."""

    input: str
    forward: str = ""
    """Its partition p belongs to lane p; empty = no forward topic."""
    lanes: int = 0
    """Partition p of the input belongs to lane p modulo this; 0 = each partition is a lane."""

    @property
    def names(self) -> list[str]:
        """Names of the existing topics."""
        return [self.input, self.forward] if self.forward else [self.input]

    def lane_of(self, topic: str, partition: int) -> int:
        """Return the lane of a partition of one of these topics."""
        return lane_of(partition, self.lanes) if topic == self.input else partition

    def partitions_of(self, topic: str, lane: int, count: int) -> list[int]:
        """Return the partitions that a lane owns in a topic with ``count`` partitions."""
        lanes = self.lanes if topic == self.input else 0
        return list(LaneLayout.from_setting(lanes, count).partitions_of(lane))


def deal(
    joined: Mapping[str, Joined],
    addresses: Iterable[LaneTopics],
    counts: Mapping[str, int],
    unusable: Collection[str] = (),
) -> dict[str, dict[str, list[int]]]:
    """Assign partitions (``counts``) to members, by topic.

    Members are ordered by URL, because their IDs change at each join. Those in ``unusable`` cannot write
    their state, and get nothing if the others subscribe to all topics.
    """
    dealt: dict[str, dict[str, list[int]]] = {member: {} for member in joined}
    able = {member: item for member, item in joined.items() if member not in unusable}
    subscribed, wanted = (
        {topic for _, topics, _ in items.values() for topic in topics} for items in (able, joined)
    )
    if able and subscribed >= wanted:
        joined = able
    members = sorted(joined, key=lambda member: (joined[member][0], member))
    units, groups = units_of({member: joined[member][1] for member in members}, addresses, counts)
    unit_of = {topic: name for name, group in groups.items() for topic in group.there}
    held = {
        member: {
            UnitPartition(unit_of[topic], groups[unit_of[topic]].topics.lane_of(topic, number))
            for topic, number in joined[member][2]
            if topic in unit_of
        }
        for member in members
    }
    for member, lanes in balanced_sticky(units, held).items():
        for name, lane in lanes:
            for topic in groups[name].there:
                if numbers := groups[name].topics.partitions_of(topic, lane, counts[topic]):
                    dealt[member].setdefault(topic, []).extend(numbers)
    for topics in dealt.values():
        for numbers in topics.values():
            numbers.sort()
    return dealt


class TopicGroup(NamedTuple):
    """Topics whose partitions are assigned together."""

    topics: LaneTopics
    there: list[str]
    """Existing topics with a subscriber."""


def units_of(
    subscribed: Mapping[str, Collection[str]], addresses: Iterable[LaneTopics], counts: Mapping[str, int]
) -> tuple[dict[str, Unit], dict[str, TopicGroup]]:
    """Return the units to assign, and the topics of each unit.

    Other topics form a unit if they have the same subscribers and the same number of partitions. They may be
    an address that only other members configure. Topics of an address are treated so too if no member
    subscribes to all of them.

    Args:
        subscribed: Member → its topics.
        addresses: Topics that are known to belong together.
        counts: Topic → number of partitions. A topic without partitions is left out.
    """
    takers: dict[str, tuple[str, ...]] = {
        topic: tuple(member for member in subscribed if topic in subscribed[member])
        for topic in sorted({name for names in subscribed.values() for name in names})
        if counts.get(topic)
    }
    units: dict[str, Unit] = {}
    groups: dict[str, TopicGroup] = {}
    for address in addresses:
        there = sorted(topic for topic in address.names if topic in takers)
        whole = [member for member in subscribed if all(member in takers[topic] for topic in there)]
        if there and whole:
            lanes = address.lanes or max(counts[topic] for topic in there)
            weight = max(1, round(counts.get(address.input, 0) / lanes))
            units[there[0]] = Unit(range(lanes), whole, weight)
            groups[there[0]] = TopicGroup(address, there)
    known = {topic for group in groups.values() for topic in group.there}
    others: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for topic, members in takers.items():
        if topic not in known:
            others.setdefault((members, counts[topic]), []).append(topic)
    for (members, partitions), other in others.items():
        units[other[0]] = Unit(range(partitions), members)
        groups[other[0]] = TopicGroup(LaneTopics(other[0]), other)
    return units, groups
