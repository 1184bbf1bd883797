"""A held partition: its lease, window, progress writer and reader of parked messages."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ringfence_client.handlers.effects import Effects
from ringfence_client.handlers.message import Fence
from ringfence_client.partition.progress_writer import ProgressWriter
from ringfence_client.progress.lease import Lease
from ringfence_client.sends.outbox import OutgoingRecord
from ringfence_client.sends.partition_sends import PartitionSends
from ringfence_client.window.window import End, Window


class HeldPartition:
    """A held partition, from its opening until it is released or lost."""

    def __init__(
        self,
        lease: Lease,
        window: Window,
        writer: ProgressWriter,
        read: Callable[["HeldPartition", int], Awaitable[Any | None]],
        renew: Callable[["HeldPartition"], None],
    ) -> None:
        """``read`` reads a parked record; ``renew`` is called when the partition must be opened again."""
        self.lease = lease
        self.fence = Fence(lease.token, (lease.topic, lease.partition, lease.topic_id))
        self.window = window
        self.writer = writer
        self.groups: set[bytes] = set()
        self._fresh: set[bytes] = set()
        """Groups in ``groups`` without an acknowledged message."""
        self.draining = False
        """The dispatcher hands out no more messages of this partition."""
        self.ending = False
        """The consumer waits for the handlers or cancels them. Turns that would wait for a retry put their messages back."""
        self.failed = False
        """The partition must be opened again, and does not resume."""
        self.ended = asyncio.Event()
        """Set when a handler run of this partition ends."""
        self._unblocked: dict[int, asyncio.Future[None]] = {}
        """Futures by offset that complete when a blocked message is redriven."""
        self._read = read
        self._renew = renew

    def is_first(self, group: bytes | None) -> bool:
        """Return whether no message of this group was acknowledged here. Records that a handler receives one."""
        if group is None:
            return True
        if group not in self.groups:
            self.groups.add(group)
            self._fresh.add(group)
            return True
        return group in self._fresh

    def acknowledge(
        self, group: bytes | None, records: Iterable[OutgoingRecord], effects: Effects | None
    ) -> None:
        """Take over the sends and state changes of an acknowledged attempt."""
        if self._fresh and group is not None:
            self._fresh.discard(group)
        if effects is not None and effects.are_asked_for:
            self.sends.acknowledge(group, records, effects)
            if self.sends.outbox.hurried:
                self.writer.hurry()

    @property
    def sends(self) -> PartitionSends:
        """Sends and states of the partition."""
        return self.writer.sends

    @property
    def partition(self) -> int:
        """Partition number."""
        return self.lease.partition

    def suspend(self) -> None:
        """Hand out no more messages of this partition."""
        self.draining = True

    def end(self) -> None:
        """Hand out no more messages, and put back those that wait for a retry."""
        self.draining = self.ending = True

    def resume(self) -> None:
        """Hand out messages again."""
        self.draining = self.ending = False

    async def load(self, offset: int) -> Any | None:
        """Return a parked record, as :meth:`ringfence_client.partition.parked_reader.ParkedReader.read_parked` does."""
        return await self._read(self, offset)

    def unblocked(self, offset: int) -> "asyncio.Future[None] | None":
        """Return a future that completes when this message is redriven; None = it is not blocked."""
        if offset not in self.window.redrives.blocked:
            return None
        if offset not in self._unblocked:
            self._unblocked[offset] = asyncio.get_running_loop().create_future()
        return self._unblocked[offset]

    def purge(self, group: bytes, below: int) -> int:
        """Purge as :meth:`ringfence_client.window.window.Window.purge` does, but keep fetched messages from ``below`` on."""
        window, ledger = self.window, self.window.ledger
        fetched = window.offsets_of(group)
        if not fetched or fetched[-1] < below:
            return window.purge(group, below)
        # All lower offsets are fetched. The group's owner claims the dropped messages for a moment, so that it keeps the group.
        owner = next(item.owner for item in ledger.groups() if item.group == group) or self
        held = set(ledger.holds(owner)).intersection(fetched)
        dropped = [number for number in fetched if number < below and number not in held]
        if dropped:
            ledger.claim(owner, group, len(held) + len(dropped))
        for number in dropped:
            window.finish(number, End.REJECT, owner)
        return len(dropped)

    def redrive(self, offset: int, number: int) -> bool:
        """Redrive as :meth:`ringfence_client.window.window.Window.redrive` does. The caller notifies the writer."""
        redriven = self.window.redrive(offset, number)
        waiting = self._unblocked.pop(offset, None) if redriven else None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        return redriven

    def lose(self) -> None:
        """Mark the partition as lost: its outcomes do not count any more."""
        self.window.close()
        self.fence.lose()

    def fail(self) -> None:
        """Close the partition and open it again, after an unexpected error."""
        self.failed = True
        self._renew(self)

    def __str__(self) -> str:
        return str(self.lease)
