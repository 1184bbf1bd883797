"""Decides whether a committed offset may be trusted: operators set offsets, foreign consumers move them. Pure.

An operator's tool commits to a group without members, and without a leader epoch. A consumer commits the epoch of the records that it
read, except if it sets offsets explicitly. Such commits are detected differently: Kafka accepts commits of outsiders only while a group
has no members, so a change during this process's membership is not an operator's.
"""

from collections.abc import Sequence

from ringfence_kafka.groups.committed_offsets import NO_EPOCH, Committed
from ringfence_kafka.groups.foreign_members import ForeignMember


def own_commit(committed: Committed | None) -> Committed | None:
    """Return the offset if Ringfence or an operator's tool committed it. None = no offset, or a consumer committed its read position."""
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
    """Return why a committed offset is not trusted.

    Args:
        committed: Present offset of the group.
        known: Offset that Ringfence wrote last, from its own records; None = it has written none.
        at_joining: Offset of the group when this process joined it.
        foreign: Present foreign members of the group.
        joined: Whether ``at_joining`` is known.
        reserved: Whether only Ringfence has a use for the group.

    Returns:
        The reason; empty = Ringfence or an operator committed it.
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
