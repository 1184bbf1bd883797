"""Balanced, sticky assignment of lanes to workers.

A lane is a partition of all topics of an address. Faust's own assignor goes by topics of one partition count: it gives partition 0
of all of them to one worker, so that of ten addresses with four partitions each a fifth worker gets nothing. It also depends on
the order in which members are named, so nobody can predict it.
"""

from collections.abc import Collection, Iterable, Mapping

from ringfence_kafka.groups.balanced_sticky import Unit, UnitPartition, balanced_sticky

Partition = tuple[str, int]
Joined = tuple[str, Collection[str], Collection[Partition]]
"""URL, topics and partitions of a member."""


def deal(
    joined: Mapping[str, Joined],
    pairs: Iterable[Collection[str]],
    counts: Mapping[str, int],
    unusable: Collection[str] = (),
) -> dict[str, dict[str, list[int]]]:
    """Partitions by topic for each member. Their URLs order the members, since IDs are new at each join.

    Args:
        joined: Members.
        pairs: The topics of each address.
        counts: Partitions of each topic.
        unusable: Members that cannot write their state: they get nothing if the others subscribe to all topics.
    """
    able = {member: item for member, item in joined.items() if member not in unusable}
    subscribed, wanted = (
        {topic for _, topics, _ in items.values() for topic in topics} for items in (able, joined)
    )
    if able and subscribed >= wanted:
        nothing: dict[str, dict[str, list[int]]] = {member: {} for member in joined if member not in able}
        joined = able
    else:
        nothing = {}
    members = sorted(joined, key=lambda member: (joined[member][0], member))
    units, topics = units_of({member: joined[member][1] for member in members}, pairs, counts)
    unit_of = {topic: name for name, items in topics.items() for topic in items}
    held = {
        member: {
            UnitPartition(unit_of[topic], number) for topic, number in joined[member][2] if topic in unit_of
        }
        for member in members
    }
    dealt: dict[str, dict[str, list[int]]] = {member: {} for member in members}
    for member, lanes in balanced_sticky(units, held).items():
        for name, number in lanes:
            for topic in topics[name]:
                if number < counts[topic]:
                    dealt[member].setdefault(topic, []).append(number)
    return dealt | nothing


def units_of(
    subscribed: Mapping[str, Collection[str]], pairs: Iterable[Collection[str]], counts: Mapping[str, int]
) -> tuple[dict[str, Unit], dict[str, list[str]]]:
    """Units, and the topics of each.

    Other topics go together if the same members subscribe to them and they have as many partitions: they may be an address of
    a member with more addresses than this worker. So do those of a pair that nobody subscribes to as a whole.

    Args:
        subscribed: Topics of each member.
        pairs: Topics that are known to go together.
        counts: Partitions of each topic. A topic without partitions is left out.
    """
    takers: dict[str, tuple[str, ...]] = {
        topic: tuple(member for member in subscribed if topic in subscribed[member])
        for topic in sorted({name for names in subscribed.values() for name in names})
        if counts.get(topic)
    }
    units: dict[str, Unit] = {}
    topics: dict[str, list[str]] = {}
    for pair in pairs:
        there = sorted(topic for topic in pair if topic in takers)
        whole = [member for member in subscribed if all(member in takers[topic] for topic in there)]
        if there and whole:
            units[there[0]] = Unit(range(max(counts[topic] for topic in there)), whole)
            topics[there[0]] = there
    known = {topic for names in topics.values() for topic in names}
    others: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for topic, members in takers.items():
        if topic not in known:
            others.setdefault((members, counts[topic]), []).append(topic)
    for (members, partitions), other in others.items():
        units[other[0]] = Unit(range(partitions), members)
        topics[other[0]] = other
    return units, topics
