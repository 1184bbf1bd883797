"""Checks whether lanes recorded the same number of lanes as the configuration. Pure.

The meta record of a lane stores ``lanes`` of its address. ``rings regroup`` marks the records of all lanes before it writes a ring. The
mark is a negative number, which no configuration has, so that no worker opens such a lane.
"""

from collections.abc import Iterable, Mapping

from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.wording import counted
from tables.codec import Meta


def mark(lanes: int) -> int:
    """Return ``Meta.lanes`` during a regrouping from ``lanes``; 0 = one lane for each partition."""
    return -1 - lanes


def is_marked(meta: Meta) -> bool:
    """Return whether a lane is being regrouped."""
    return meta.lanes < 0


def lanes_before(meta: Meta) -> int:
    """Return the number of lanes when the ring was written, with or without a mark; 0 = one lane for each partition."""
    return -1 - meta.lanes if is_marked(meta) else meta.lanes


def live(metas: Mapping[int, Meta]) -> dict[int, Meta]:
    """Return meta records by changelog partition, without those of removed lanes."""
    return {
        number: meta
        for number, meta in metas.items()
        if not lanes_before(meta) or number < lanes_before(meta)
    }


def shown_lanes(lanes: int) -> str:
    """Return the key ``lanes`` with its value, for a message."""
    return f"lanes = {lanes}" if lanes else "lanes = 0 (a lane for each partition)"


def regroup_command(address: AddressSettings) -> str:
    """Return the command that rewrites the rings for the number of lanes in the configuration."""
    return f"'ringfence rings regroup {address.name} --lanes {address.lanes}'"


def lane_faults(address: AddressSettings, metas: Iterable[Meta]) -> list[str]:
    """Return a problem if the number of lanes changed or a regrouping is unfinished."""
    name, command = address.name, regroup_command(address)
    for meta in metas:
        if is_marked(meta):
            fault = (
                f"a regrouping of the lanes of {name} is unfinished, and no lane opens until it ends. "
                f"Messages wait in the input: run {command} again"
            )
        elif meta.lanes != address.lanes:
            fault = (
                f"{name} has {shown_lanes(address.lanes)} in this file, its lanes began with {shown_lanes(meta.lanes)}: a ring would not "
                f"know the IDs of its partitions. Stop the workers and run {command}, or set lanes = {meta.lanes}"
            )
        else:
            continue
        return [fault]
    return []


def topic_count_faults(
    address: AddressSettings, source: tuple[str, int], owned: Mapping[str, tuple[str, int]]
) -> list[str]:
    """Return problems with the partition counts of an address that sets ``lanes``.

    ``source``: name and partition count of the input topic; ``owned``: those of changelog and forward topic, by role, if they exist. More
    partitions than lanes are harmless.
    """
    lanes, (name, partitions) = address.lanes, source
    if lanes > partitions:
        fault = (
            f"{name} has {counted(partitions, 'partition')}, {address.name} has lanes = {lanes}: a lane would have no partition. Set lanes = "
            f"{partitions} or lower, or give the topic more: 'ringfence topics grow {address.name} --partitions {lanes}'"
        )
        return [fault]
    return [
        f"{topic} ({role} of {address.name}) has {counted(count, 'partition')}, {address.name} has lanes = {lanes}: stop the workers and run "
        f"{regroup_command(address)}, which gives it {lanes}"
        for role, (topic, count) in owned.items()
        if count < lanes
    ]
