"""Whether a committed offset of our group may be followed: an operator sets offsets, a foreign consumer moves them. Pure.

An operator's tool commits to a group without members, and commits no leader epoch. A consumer commits the epoch of the records that it read.
A consumer that names offsets itself commits none. Its commits show in another way: Kafka takes offsets of others only while a group has no
members, so nothing that changes while we are a member is an operator's.
"""

from collections.abc import Sequence

from ringfence_kafka.groups.committed_offsets import NO_EPOCH, Committed
from ringfence_kafka.groups.foreign_members import ForeignMember


def own_commit(committed: Committed | None) -> Committed | None:
    """Return the offset if Ringfence or an operator's tool committed it; None = there is none, or a consumer committed it from what it read."""
    return None if committed is None or committed.leader_epoch != NO_EPOCH else committed


def distrust(
    committed: Committed | None,
    known: int | None,
    at_joining: Committed | None,
    foreign: Sequence[ForeignMember],
    *,
    joined: bool = True,
    reserved: bool = False,
) -> str:
    """Say why a committed offset is not followed.

    Args:
        committed: The offset of the group now.
        known: The offset that Ringfence wrote last, by its own records; None = it has written none.
        at_joining: The offset of the group when this process joined it.
        foreign: Members of the group now that are not ours.
        joined: Whether ``at_joining`` is known.
        reserved: Whether nobody but Ringfence has a use for the group.

    Returns:
        The reason; empty = it is ours, or an operator's.
    """
    if committed is None or committed.offset == known:
        return ""
    if foreign:
        return f"a member that is not Ringfence's has joined the group: {'; '.join(map(str, foreign))}"
    if (reserved or known is not None) and own_commit(committed) is None:
        return "another consumer committed it after reading"
    if joined and committed != at_joining:
        return "it moved while the group had members, so no operator set it"
    return ""
