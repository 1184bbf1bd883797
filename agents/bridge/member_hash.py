"""Which member of a strict cluster connection a group belongs to. Pure.

By the highest hash of member and group (rendezvous hashing): each bridge finds it alone, and a member that comes or goes moves no groups but
its own share.
"""

from collections.abc import Iterable
from hashlib import blake2b

from agents.decision.group_cache import GroupCache


def owner(members: Iterable[str], group: bytes) -> str:
    """The member that a group belongs to; of equal hashes the last name's."""
    return max(members, key=lambda member: (_weight(member.encode(), group), member))


def _weight(member: bytes, group: bytes) -> bytes:
    return blake2b(b"%d/%b/%b" % (len(member), member, group), digest_size=8).digest()


class Owner(GroupCache[str]):
    """The same, memoised: ``owner[group]``."""

    def __init__(self, members: Iterable[str]) -> None:
        super().__init__()
        self._members = tuple(members)

    def find(self, key: bytes) -> str:
        """By the hashes."""
        return owner(self._members, key)
