"""Task of one partition: acquires its lease, keeps it over rebalances, then drains and releases or loses it.

It calls ``lost(groups)`` of the handler's module when the partition is released or lost.
"""

import asyncio
import concurrent.futures
import inspect
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiokafka import TopicPartition

from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import LostError
from ringfence_kafka.errors import named, said
from ringfence_kafka.ownership.partition_state import Action, NotOwnerError
from ringfence_kafka.ownership.partition_task import PartitionTask

if TYPE_CHECKING:
    from ringfence_client.consumer.partitions import HeldPartitions

log: Final = logging.getLogger("ringfence.consumer")

LOST_LIMIT_S: Final = 5.0
"""Time limit of the function, in seconds. After that the partition is released anyway."""

Lost = Callable[[Collection[bytes]], Any]
"""A coroutine function, or a plain one, which runs in a thread."""


async def report_lost(lost: Lost | None, place: str, groups: Collection[bytes]) -> None:
    """Report that these groups of a partition are lost. Never raises. ``lost``: None = the application has no such function."""
    if lost is None or not groups:
        return
    try:
        async with asyncio.timeout(LOST_LIMIT_S):
            await (lost(groups) if inspect.iscoroutinefunction(lost) else _in_thread(lost, groups))
    except TimeoutError:
        log.error(
            "%s: lost(groups) does not end within %g s: the partition is released without it, and "
            "caches may be old when it returns",
            place, LOST_LIMIT_S,
        )  # fmt: skip
    except Exception as error:
        log.error(
            "%s: lost(groups) failed, so caches of %d groups may be old when the partition returns: %s",
            place, len(groups), named(error), exc_info=error,
        )  # fmt: skip


async def _in_thread(lost: Lost, groups: Collection[bytes]) -> None:
    """Call a plain function in a thread that does not delay the end of the process."""
    done: concurrent.futures.Future[None] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()  # nobody can cancel it

    def run() -> None:
        try:
            lost(groups)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="ringfence-lost", daemon=True).start()
    await asyncio.wrap_future(done)


CLOSE_LIMIT_S: Final = 8.0
ABORT_LIMIT_S: Final = 2.0
"""Time limit of the final write of an unfinished opening, in seconds. A rebalance waits for it: about 12 s in all if a broker does not answer."""
OPEN_AGAIN_S: Final = 1.0


@dataclass(frozen=True, eq=False)
class Assignment:
    """Generation in which the group assigned partitions to this consumer."""

    generation: int


class ConsumerPartitionTask(PartitionTask[Assignment, HeldPartition]):
    """Task that acquires the lease of one partition and opens it."""

    def __init__(self, number: int, ours: "HeldPartitions") -> None:
        super().__init__(f"claim on {ours.topic}/{number}")
        self._number = number
        self._ours = ours

    def assigned(self, assignment: Assignment) -> None:
        """Open the partition, or continue with it."""
        self._tenure.assigned(assignment)
        self._disturb()

    def revoked(self, *, for_good: bool = False) -> None:
        """Hand out no new messages; running handlers continue. ``for_good``: release the lease when they have ended."""
        (self._tenure.ended if for_good else self._tenure.revoked)()
        self._suspend()
        self._disturb()

    async def await_opening(self) -> None:
        """Wait after the revocation until no opening is under way."""
        if self._doing is not None and self._doing[0] is not Action.DRAIN:
            await asyncio.wait([self._doing[2]])

    async def gone(self) -> None:
        """Wait after a final revocation until the partition is drained, written and released."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _lost(self, held: HeldPartition) -> None:
        if self._opened is held:
            self._pause()
            self._ours.partitions.pop(self._number, None)
            self._tenure.failed(time.monotonic() + OPEN_AGAIN_S)
            self._disturb()

    def _broke(self, held: HeldPartition) -> None:
        """Drain the partition, and open it again if it is still assigned."""
        if self._opened is held:
            self._pause()
            self._suspend()
            self._tenure.broke(time.monotonic() + OPEN_AGAIN_S)
            self._disturb()

    async def _open(self, right: Assignment) -> HeldPartition:
        held = await self._acquired()
        window = held.window
        self._flow(window.next)
        self._ours.partitions[self._number] = held
        self._ours.reasons.pop(self._number, None)
        self._ours.dispatcher.add_partition(held)
        log.info("%s opened with token %d at offset %d, %d messages above it are finished", held,
            held.fence.token, window.next, sum(end - begin for begin, end in window.watermark.runs()))  # fmt: skip
        return held

    async def _acquired(self) -> HeldPartition:
        ours, number = self._ours, self._number

        async def confirm() -> bool:
            while (latest := self._tenure.latest) is not None:
                if await ours.membership.confirm(latest.generation):
                    return True
                if self._tenure.latest is latest:
                    return False
                # It was assigned again meanwhile, in the next generation, which counts now.
            return False

        waiting = partial(ours.reasons.__setitem__, number)
        lease, window, writer = await ours.acquisition.open(ours.topic, number, confirm, waiting)
        held = HeldPartition(lease, window, writer, ours.parked.read_parked, self._broke)
        try:
            writer.start(lambda: self._lost(held), held.fail)
            # Other consumers must know the holder and its possible running messages before the first message is handed out.
            await writer.persisted()
        except BaseException as error:
            window.cache.close()
            if isinstance(error, LostError) or window.suspect_below:
                await writer.abandon()
            else:
                await writer.close(ABORT_LIMIT_S, released=True)  # the next holder need not wait
            ours.acquisition.ended(lease)
            raise
        # Counted after the write. If it failed, the next opening would find the same gap and count it again.
        ours.dispatcher.counts["gap_records"] += window.gap_records
        return held

    async def _resume(self, right: Assignment, held: HeldPartition) -> None:
        """Continue after one successful write. Another consumer that had the partition meanwhile has fenced this one."""
        held.writer.hold(True)
        await held.writer.persisted()
        self._flow(held.window.end)
        self._ours.dispatcher.resume(held)
        log.info("%s continues", held)

    async def _drain(self, held: HeldPartition) -> None:
        await self._ours.dispatcher.drain(held, self._ours.drain_timeout)

    async def _close(self, held: HeldPartition) -> None:
        ended = await self._ours.dispatcher.drop(held)
        # No consumer, including this one, may have the groups before this call ends.
        await report_lost(self._ours.lost, str(held), held.groups)
        written = await held.writer.close(CLOSE_LIMIT_S, released=ended)
        self._forget(held, ended)
        if ended and written:
            log.info("%s is released", held)
            return
        reason = "a handler still runs" if written else "its progress could not be written"
        log.warning("%s ends without a release of its lease: %s", held, reason)

    async def _drop(self, held: HeldPartition) -> None:
        ended = await self._ours.dispatcher.drop(held)
        await report_lost(self._ours.lost, str(held), held.groups)
        await held.writer.abandon()
        self._forget(held, ended)

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, NotOwnerError):
            self._ours.reasons[self._number] = said(error)
            log.warning("%s/%d is not opened yet: %s", self._ours.topic, self._number, said(error))
        elif not self._tenure.attempts:
            log.info("%s", error)  # a rebalance is under way, or follows
        self._tenure.failed(time.monotonic() + OPEN_AGAIN_S)

    def _forget(self, held: HeldPartition, ended: bool) -> None:
        self._ours.partitions.pop(self._number, None)
        held.window.cache.close()
        held.sends.states.close()
        if ended:
            self._ours.acquisition.ended(held.lease)

    def _suspend(self) -> None:
        held = self._opened
        if held is not None:
            if not held.draining:
                self._ours.dispatcher.suspend(held)
            held.writer.hold(False)

    def _flow(self, offset: int) -> None:
        tp = TopicPartition(self._ours.topic, self._number)
        self._ours.consumer.seek(tp, offset)
        self._ours.consumer.resume(tp)

    def _pause(self) -> None:
        tp = TopicPartition(self._ours.topic, self._number)
        if tp in self._ours.consumer.assignment():
            self._ours.consumer.pause(tp)
