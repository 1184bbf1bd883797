"""Invariants from one holder to the next, whichever topic the partition belongs to."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from tests.simulator.consumers.world import ConsumerWorld, Written
from tests.simulator.names import ACCEPTED

LOOKED_S: Final = 0.5
"""Maximum age in seconds of the knowledge of a lease when its holder is fenced, if requests are answered soon."""


def takeovers(world: ConsumerWorld, partition: int) -> Iterable[str]:
    """Check that each token has one holder, tokens rise, no lease is taken early, and no token is used after the next one."""
    name, all_written = f"{ACCEPTED}/{partition}", world.committed(partition)
    holders: dict[int, str] = {}
    first: dict[int, Written] = {}
    for item in all_written:
        first.setdefault(item.progress.token, item)
    for before, after in pairwise(all_written):
        one, other = before.progress, after.progress
        if holders.setdefault(other.token, other.holder) != other.holder or other.token < one.token:
            yield f"UNFENCED {name}: {other} follows {one}"
        if one.holder == other.holder:
            continue
        if other.token <= one.token:
            yield f"UNFENCED {name}: the token of {other} is not above that of {one}"
        limit = world.plan.lease_timeout if one.running else world.plan.lease_idle
        taken = not one.released and before.owner != after.owner
        if (
            taken
            and world.plan.calm
            and not _outlived(world, partition, one.token)
            and not _killed(world, before, after)
        ):
            yield f"SILENT {name}: {one} was taken at {after.at:.4f}, and its holder was at work"
        if taken and after.at < before.at + limit:
            yield f"EARLY {name}: at {after.at:.4f} {other} has taken what {one} wrote at {before.at:.4f}"
    yield from _followed(world, partition, first)
    yield from _hasty(world, partition, all_written)


def _hasty(world: ConsumerWorld, partition: int, written: Sequence[Written]) -> Iterable[str]:
    """Report holders that were fenced although they had just written, if the fencing process could know that."""
    if not world.plan.quick:
        return
    for process in world.processes:
        for number, at in process.rights.fences:
            before = [item for item in written if item.at < at]
            if number != partition or not before or before[-1].owner == process.name:
                continue
            last = before[-1].progress
            limit = world.plan.lease_timeout if last.running else world.plan.lease_idle
            if not last.released and before[-1].at + LOOKED_S < at < before[-1].at + limit:
                yield f"HASTY {ACCEPTED}/{partition}: {process.name} fences at {at:.4f} who wrote {last} at {before[-1].at:.4f}"


def _followed(world: ConsumerWorld, partition: int, first: dict[int, Written]) -> Iterable[str]:
    following = sorted(first)
    for run in world.handling.runs:
        if run.partition != partition:
            continue
        later = next((first[token] for token in following if token > run.token), None)
        if later is not None and run.begin > later.at:
            yield f"UNFENCED {ACCEPTED}/{partition}: {run}, and {later.progress} was written at {later.at:.4f}"


def _killed(world: ConsumerWorld, before: Written, after: Written) -> bool:
    holder = next(process for process in world.processes if process.name == before.owner)
    return any(before.made_at <= at <= after.at for at in holder.killed_at)


def _outlived(world: ConsumerWorld, partition: int, token: int) -> bool:
    return any(
        run.task == "stubborn"
        for run in world.handling.runs
        if (run.partition, run.token) == (partition, token)
    )
