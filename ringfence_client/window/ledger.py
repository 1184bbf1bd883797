"""Ledger of a group-ordered consumer: which consumer may take which message. Pure.

The rules are those of Qpid's message groups. A consumer that acquires a message owns its group until it acknowledges, releases or rejects
all messages of the group that it holds. The owner may acquire more messages of the group, up to its prefetch; other consumers skip them. A
consumer gets the oldest available message whose group is free or its own, so groups never block one another. A release also puts back
the later messages of the group. A message is therefore never processed before an earlier one of its group.

Each call costs O(log n) for n messages, amortised. Calls that put back or drop several messages pay for each of them. ``_free`` is a heap:
the first waiting position of each group without an owner. Each consumer has such a heap for its own groups that have room. Entries inside a
heap are never removed. A stale entry is dropped when it reaches the top, or when more than half of the entries are stale.

An ungrouped message is a group of its own, without a name. Not thread-safe.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

_STALE_MIN: Final = 64
"""Number of entries of a heap, beyond two for each group, that start a sweep."""


class GroupInfo(NamedTuple):
    """Snapshot of one group. All ungrouped messages together are one row without owner."""

    group: bytes | None
    depth: int
    """Unfinished messages, including acquired ones."""
    acquired: int
    owner: Hashable | None
    head: int
    """Position of the group's first unfinished message."""
    head_timestamp: int
    """Timestamp of the first unfinished message, in milliseconds since the epoch."""


class _Group:
    """A group with unfinished messages, or one ungrouped message."""

    __slots__ = ("held", "name", "owner", "waiting")

    def __init__(self, name: bytes | None) -> None:
        self.name = name
        self.owner: _Consumer | None = None
        self.waiting: list[int] = []
        """Heap of positions that no consumer holds."""
        self.held: list[int] = []
        """Positions that the owner holds, in ascending order."""

    @property
    def head(self) -> int:
        """The first unfinished position."""
        if not self.held:
            return self.waiting[0]
        return min(self.held[0], self.waiting[0]) if self.waiting else self.held[0]


class _Consumer:
    """A consumer that holds at least one message."""

    __slots__ = ("groups", "heads", "name")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.groups: dict[_Group, None] = {}
        """Groups that the consumer owns, as an ordered set."""
        self.heads: list[int] = []
        """Heap of the first waiting positions of its groups."""


class GroupLedger:
    """Messages by position, and the groups that consumers own."""

    def __init__(self, prefetch: int = 1) -> None:
        """``prefetch``: limit of messages of one group that its owner holds at once, at least 1."""
        self._prefetch = prefetch
        self._messages: dict[int, tuple[_Group, int]] = {}
        self._groups: dict[bytes, _Group] = {}
        self._ungrouped: dict[_Group, None] = {}
        self._consumers: dict[Hashable, _Consumer] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        """Return the number of unfinished messages."""
        return len(self._messages)

    def append(self, position: int, group: bytes | None, timestamp: int) -> None:
        """Add a message; positions may come in any order. ``group``: None = ungrouped; ``timestamp``: milliseconds since the epoch."""
        if position in self._messages:
            there = self._messages[position][0].name
            raise ValueError(f"{position!r} is in the ledger already, in group {there!r}")
        found: _Group | None = self._groups.get(group) if group is not None else None
        if found is None:
            found = _Group(group)
            if group is None:
                self._ungrouped[found] = None
            else:
                self._groups[group] = found
        self._messages[position] = found, timestamp
        heappush(found.waiting, position)
        if found.waiting[0] is position:
            self._offer(found)

    def acquire(self, consumer: Hashable) -> int | None:
        """Acquire the oldest available message whose group is free or the consumer's own; None = no such message."""
        holder = self._consumers.get(consumer)
        heads, group = self._free, self._first(self._free, None)
        if holder is not None:
            own = self._first(holder.heads, holder)
            if own is not None and (group is None or own.waiting[0] < group.waiting[0]):
                heads, group = holder.heads, own
        if group is None:
            return None
        if group.owner is None:
            if holder is None:
                holder = self._consumers[consumer] = _Consumer(consumer)
            group.owner = holder
            holder.groups[group] = None
        heappop(heads)
        position = heappop(group.waiting)
        insort(group.held, position)
        self._offer(group)
        return position

    def acquire_more(self, consumer: Hashable) -> list[int]:
        """Acquire waiting messages of the consumer's own groups, up to the prefetch of each. Each group's messages are in order."""
        holder = self._consumers.get(consumer)
        taken: list[int] = []
        for group in () if holder is None else holder.groups:
            while self._takable(group, holder):
                position = heappop(group.waiting)
                insort(group.held, position)
                taken.append(position)
        return taken

    def acknowledge(self, consumer: Hashable, position: int) -> None:
        """Remove a message that the consumer holds, because it is processed or rejected. A KeyError names another holder."""
        group, index = self._held(consumer, position)
        del group.held[index]
        del self._messages[position]
        self._settle(group)

    def release(self, consumer: Hashable, position: int) -> list[int]:
        """Put back a message and the later ones of its group that the consumer holds; return them in order. A KeyError names another holder."""
        group, index = self._held(consumer, position)
        released = group.held[index:]
        del group.held[index:]
        for item in released:
            heappush(group.waiting, item)
        self._settle(group)
        return released

    def close(self, consumer: Hashable) -> list[int]:
        """Put back all messages that the consumer holds, and free its groups; return the positions in order."""
        holder = self._consumers.get(consumer)
        if holder is None:
            return []
        return sorted(
            chain.from_iterable(self.release(consumer, group.held[0]) for group in list(holder.groups))
        )

    def purge(self, group: bytes | None) -> list[int]:
        """Drop the messages of a group that no consumer acquired, and return them in order. None = ungrouped messages."""
        if group is None:
            chosen: Iterable[_Group] = [group for group in self._ungrouped if group.owner is None]
        else:
            chosen = [self._groups[group]] if group in self._groups else []
        dropped: list[int] = []
        for item in chosen:
            dropped += item.waiting
            item.waiting.clear()
            if item.owner is None:
                self._forget(item)
        for position in dropped:
            del self._messages[position]
        self._sweep(self._free, None)
        return sorted(dropped)

    def skip(self, group: bytes) -> int | None:
        """Drop and return the first message of a group without an owner; None = nothing was dropped."""
        found = self._groups.get(group)
        if found is None or found.owner is not None:
            return None
        position = heappop(found.waiting)
        del self._messages[position]
        if not found.waiting:
            self._forget(found)
        self._offer(found)
        self._sweep(self._free, None)
        return position

    def claim(self, consumer: Hashable, group: bytes, count: int | None = None) -> list[int]:
        """Acquire the waiting messages of a group beyond the prefetch: all of them, or until the consumer holds ``count``.

        Returns all messages of the group that the consumer holds then, in order. Empty if another consumer owns the group.
        """
        found = self._groups.get(group)
        if found is None or (found.owner is not None and found.owner.name != consumer):
            return []
        holder = self._consumers.get(consumer)
        if holder is None:
            holder = self._consumers[consumer] = _Consumer(consumer)
        found.owner = holder
        holder.groups[found] = None
        while found.waiting and (count is None or len(found.held) < count):
            insort(found.held, heappop(found.waiting))
        self._offer(found)
        self._sweep(self._free, None)
        return list(found.held)

    def groups(self) -> list[GroupInfo]:
        """Return all groups with unfinished messages, in the order of their first messages. O(n log n) for n groups."""
        rows = [(group.head, group) for group in self._groups.values()]
        if self._ungrouped:
            rows.append(min(((group.head, group) for group in self._ungrouped), key=itemgetter(0)))
        rows.sort(key=itemgetter(0))
        return [self._info(*row) for row in rows]

    @property
    def free(self) -> int:
        """Number of unfinished groups without an owner. An ungrouped message counts as a group. O(n) for n consumers."""
        owned = sum(len(consumer.groups) for consumer in self._consumers.values())
        return len(self._groups) + len(self._ungrouped) - owned

    def find(self, position: int) -> tuple[bytes | None, int] | None:
        """Return the group and timestamp of an unfinished message."""
        message = self._messages.get(position)
        return None if message is None else (message[0].name, message[1])

    def available(self, group: bytes) -> list[int]:
        """Return the positions of a group that no consumer holds, unsorted."""
        found = self._groups.get(group)
        return [] if found is None else list(found.waiting)

    def holds(self, consumer: Hashable) -> list[int]:
        """Return all positions that the consumer holds, in order."""
        holder = self._consumers.get(consumer)
        return [] if holder is None else sorted(chain.from_iterable(group.held for group in holder.groups))

    def _info(self, head: int, group: _Group) -> GroupInfo:
        timestamp = self._messages[head][1]
        if group.name is None:
            acquired = sum(group.owner is not None for group in self._ungrouped)
            return GroupInfo(None, len(self._ungrouped), acquired, None, head, timestamp)
        held, owner = len(group.held), group.owner
        depth = len(group.waiting) + held
        return GroupInfo(group.name, depth, held, owner and owner.name, head, timestamp)

    def _held(self, consumer: Hashable, position: int) -> tuple[_Group, int]:
        """Return the group of a message that this consumer holds, and its index in ``held``."""
        group = self._messages[position][0] if position in self._messages else None
        if group is not None and group.owner is not None:
            index = bisect_left(group.held, position)
            if index < len(group.held) and group.held[index] == position:
                if group.owner.name == consumer:
                    return group, index
                raise KeyError(f"{position} is held by {group.owner.name!r}, not by {consumer!r}")
        raise KeyError(
            f"{position} is held by no consumer, so {consumer!r} cannot end it: it waits, or is finished"
        )

    def _settle(self, group: _Group) -> None:
        """Update the group's owner and heaps after a held message is removed or put back."""
        holder = group.owner
        if holder is not None and not group.held:
            group.owner = None
            holder.groups.pop(group, None)
            if not holder.groups:
                del self._consumers[holder.name]
            if not group.waiting:
                self._forget(group)
        self._offer(group)

    def _forget(self, group: _Group) -> None:
        if group.name is None:
            self._ungrouped.pop(group, None)
        else:
            del self._groups[group.name]

    # -- the heaps of heads -----------------------------------------------------------------------------------------

    def _takable(self, group: _Group, owner: _Consumer | None) -> bool:
        """Return whether this owner may take the group's first waiting message. None as owner stands for any consumer."""
        return group.owner is owner and bool(group.waiting) and len(group.held) < self._prefetch

    def _offer(self, group: _Group) -> None:
        """Push the group's head onto the heap of its owner, or of free groups, if a consumer may take it."""
        owner = group.owner
        if self._takable(group, owner):
            heads = self._free if owner is None else owner.heads
            heappush(heads, group.waiting[0])
            self._sweep(heads, owner)

    def _first(self, heads: list[int], owner: _Consumer | None) -> _Group | None:
        """Return the group with the oldest head that this owner may take, and drop stale entries above it."""
        while heads:
            message = self._messages.get(heads[0])
            if message is not None:
                group = message[0]
                if self._takable(group, owner) and group.waiting[0] == heads[0]:
                    return group
            heappop(heads)
        return None

    def _sweep(self, heads: list[int], owner: _Consumer | None) -> None:
        """Rebuild a heap when most entries are stale. The pushes that made them stale pay for the rebuild."""
        groups = len(self._groups) + len(self._ungrouped) if owner is None else len(owner.groups)
        if len(heads) <= 2 * groups + _STALE_MIN:
            return
        candidates = chain(self._groups.values(), self._ungrouped) if owner is None else owner.groups
        heads[:] = [candidate.waiting[0] for candidate in candidates if self._takable(candidate, owner)]
        heapify(heads)
