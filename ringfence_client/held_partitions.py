"""The partitions of one consumer: assigned, opened, held, suspended in a rebalance, let go, lost.

Kafka's eager group protocol takes all partitions away at each change and gives most of them back a moment later. A lease
outlives that: nothing new is handed out until the assignment is known, what runs goes on, and its acknowledgements count.
What comes back goes on as if nothing had been; what does not is drained and released, and whoever got it waits for that.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from aiokafka import TopicPartition

from ringfence_client.dispatcher import Dispatcher
from ringfence_client.held_partition import Assignment, HeldPartition
from ringfence_client.lease import LostError
from ringfence_client.lease_acquisition import LeaseAcquisition, NotOursError
from ringfence_client.options import ConsumerOptions
from ringfence_client.parked import ParkedReader
from ringfence_kafka import insides
from ringfence_kafka.cluster import NO_TOPIC, TopicIdentity
from ringfence_kafka.waiting import set_within

log: Final = logging.getLogger("ringfence.consumer")

CLOSE_LIMIT_S: Final = 8.0
"""For the last progress."""
ABORT_LIMIT_S: Final = 2.0
"""For the last progress of what was only being opened. A rebalance waits for it, and then for its producer to be discarded:
with a broker that does not answer some 12 s in all."""
OPEN_AGAIN_S: Final = 1.0


class HeldPartitions:
    """Of one accepted topic."""

    def __init__(
        self, topic: str, options: ConsumerOptions, dispatcher: Dispatcher, parked: ParkedReader
    ) -> None:
        self.partitions: dict[int, HeldPartition] = {}
        """The partitions that are held, by number; suspended and leaving ones too."""
        self.assigned: set[int] | None = None
        """What the group gave us; None = nothing yet, or it is about to change."""
        self._had: set[int] = set()
        """What the group gave us last."""
        self.reasons: dict[int, str] = {}
        """Why an assigned partition is not held yet."""
        self.stopping = asyncio.Event()
        self._topic = topic
        self._options = options
        self._dispatcher = dispatcher
        self._parked = parked
        self._openings: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._dropping: dict[int, asyncio.Event] = {}
        """Partitions that were lost, while what runs of them is cancelled."""
        self._consumer: Any
        self._membership: insides.Membership
        self._opening: LeaseAcquisition

    def begin(self, consumer: Any, opening: LeaseAcquisition) -> None:
        """With aiokafka's consumer, which calls :meth:`revoked` and :meth:`given` from now on."""
        self._consumer = consumer
        self._membership = insides.Membership(consumer)
        self._opening = opening

    @property
    def ready(self) -> bool:
        """Whether the first assignment came and every assigned partition is held."""
        held = {number for number, each in self.partitions.items() if not each.draining}
        return self.assigned is not None and self.assigned <= held

    def owned(self) -> dict[int, int]:
        """What the group gave us last, with the fencing token of what is held and 0 where it is not, for who shares out."""
        return {
            number: self.partitions[number].fence.token if number in self.partitions else 0
            for number in self._had
        }

    # -- what aiokafka calls ---------------------------------------------------------------------------------

    async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Before the consumer joins again, and waited for: nothing new is handed out until the assignment is known."""
        self.assigned = None  # first: what is lost meanwhile is not opened again
        numbers = {tp.partition for tp in partitions}
        if numbers:
            log.info("%s of %s may go to others", _numbers(numbers), self._topic)
        for held in self.partitions.values():
            self._suspend(held)
        await self._end_openings()

    def given(self, partitions: Collection[TopicPartition]) -> None:
        """Before anything is fetched of them."""
        if self.stopping.is_set():
            return
        numbers = {tp.partition for tp in partitions}
        self._consumer.pause(*partitions)
        for tp in partitions:
            # Else aiokafka looks for a position itself; nothing is fetched of it yet.
            self._consumer.seek(tp, 0)
        self.assigned = self._had = numbers
        generation = insides.generation(self._consumer)
        log.info("assigned %s of %s", _numbers(numbers), self._topic)
        self.reasons = {}
        for number, held in list(self.partitions.items()):
            if number not in numbers:
                self._let_go(held)
        for number in numbers:
            self._openings[number] = asyncio.create_task(
                self._come(number, generation), name=f"opening of {self._topic}/{number}"
            )

    def compare(self, identity: TopicIdentity) -> None:
        """Which topic it is now: what is held of another one of that name is drained, and opened anew."""
        for each in self.partitions.values():
            each.writer.exists(each.partition < identity.partitions)
        if identity == NO_TOPIC:
            return  # the group will take its partitions away, or it comes back
        others = [each for each in self.partitions.values() if each.lease.topic_id != identity.topic_id]
        old = [each for each in others if not each.failed]
        if old:
            log.warning(
                "%s was deleted and created again: %s of it begin anew, at its start; what of it was handled already is handled again",
                self._topic, _numbers(each.partition for each in old),
            )  # fmt: skip
        for each in old:
            each.fail()

    def write_again(self) -> None:
        """All leases, at once: the topic that they stood in is gone."""
        for held in self.partitions.values():
            held.writer.write_again()

    async def close(self) -> None:
        """Begin to give all away. From here on no membership is needed: others may be assigned what nothing runs of."""
        self.stopping.set()  # whatever brought us here: nothing is opened any more
        self.assigned = None
        for held in self.partitions.values():
            self._suspend(held)
            self._let_go(held)
        await self._end_openings()

    async def end(self) -> None:
        """After :meth:`close`: until all is drained, written and released."""
        while self._ending:
            await asyncio.wait(list(self._ending))

    # -- coming ------------------------------------------------------------------------------------------------

    async def _come(self, number: int, generation: int) -> None:
        """Until it is held, or no longer ours."""
        held = self.partitions.get(number)
        if held is not None and await self._regained(held, generation):
            self._openings.pop(number, None)
            return
        await self._open(number, generation)

    async def _regained(self, held: HeldPartition, generation: int) -> bool:
        """Whether a lease that was suspended goes on; if not, nothing of it is left."""
        if held.failed:
            await asyncio.wait([self._let_go(held)])
        elif held.leaving is not None:
            if not held.window.closed:
                held.leaving.cancel()
            await asyncio.wait([held.leaving])
        if self.partitions.get(held.partition) is not held or held.window.closed:
            return False
        held.assignment.generation = generation
        held.writer.hold(True)
        try:
            await held.writer.persisted()
        except LostError:
            return False  # and the writer has said so
        if insides.generation(self._consumer) != generation or not held.draining:
            return True  # the next assignment decides
        if held.failed:  # meanwhile
            return await self._regained(held, generation)
        self._flow(held, held.window.end)
        self._dispatcher.resume(held)
        log.info("%s goes on", held)
        return True

    async def _open(self, number: int, generation: int) -> None:
        if (dropping := self._dropping.get(number)) is not None:
            await dropping.wait()  # what ran of it is not run again beside itself
        while insides.generation(self._consumer) == generation:
            try:
                held = await self._opened(number, generation)
            except NotOursError as error:
                log.info("%s", error)  # a rebalance is under way, or comes
            except Exception as error:  # noqa: BLE001 - whatever it is: else the partition would be nobody's
                self.reasons[number] = str(error) or type(error).__name__
                log.warning("%s/%d is not opened yet: %r", self._topic, number, error)
            else:
                self._hold(held)
                break
            await asyncio.sleep(OPEN_AGAIN_S)
        self._openings.pop(number, None)

    async def _opened(self, number: int, generation: int) -> HeldPartition:
        assignment = Assignment(generation)

        async def confirm() -> bool:
            return await self._membership.confirm(assignment.generation)

        def waiting(text: str) -> None:
            self.reasons[number] = text

        lease, window, writer = await self._opening.open(self._topic, number, confirm, waiting)
        held = HeldPartition(
            lease,
            window,
            writer,
            assignment,
            self._parked.read,
            lambda failed: self._renew(failed, lost=False),
        )
        try:
            writer.start(lambda: self._renew(held, lost=True))
            # Before anything is handed out: whose it is, and what may be running, is known to others.
            await writer.persisted()
        except BaseException as error:
            window.resident.close()
            if isinstance(error, LostError) or window.suspect_below:
                await writer.abandon()
            else:
                await writer.close(ABORT_LIMIT_S, released=True)  # whoever comes next need not wait
            self._opening.ended(lease.holder)
            raise
        return held

    def _hold(self, held: HeldPartition) -> None:
        number, window = held.partition, held.window
        self._flow(held, window.next)
        self.partitions[number] = held
        self.reasons.pop(number, None)
        self._dispatcher.add(held)
        log.info("%s held with token %d from offset %d on, %d messages above it are finished", held,
            held.fence.token, window.next, sum(end - begin for begin, end in window.watermark.runs()))  # fmt: skip

    def _flow(self, held: HeldPartition, offset: int) -> None:
        tp = TopicPartition(self._topic, held.partition)
        self._consumer.seek(tp, offset)
        self._consumer.resume(tp)

    async def _end_openings(self) -> None:
        openings = list(self._openings.values())
        self._openings.clear()
        for each in openings:
            each.cancel()
        if openings:
            await asyncio.wait(openings)

    # -- going -------------------------------------------------------------------------------------------------

    def _suspend(self, held: HeldPartition) -> None:
        if not held.draining:
            self._dispatcher.suspend(held)
        held.writer.hold(False)

    def _let_go(self, held: HeldPartition) -> "asyncio.Task[None]":
        """Release it when all that runs of it has ended."""
        leaving = held.leaving
        # One that is cancelled has not ended yet, and will let nothing go.
        if leaving is None or leaving.done() or leaving.cancelling():
            leaving = held.leaving = self._later(self._leave(held))
        return leaving

    async def _leave(self, held: HeldPartition) -> None:
        ended = await self._dispatcher.drain(held, self._options.drain_timeout)
        held.lose()
        written = await held.writer.close(CLOSE_LIMIT_S, released=ended)
        self._gone(held, ended)
        if ended and written:
            log.info("%s is released", held)
        else:
            reason = "it could not be written" if ended else "a handler still runs"
            log.warning("%s is let go and not released: %s", held, reason)

    def _renew(self, held: HeldPartition, *, lost: bool) -> None:
        """Lost to somebody: nothing of it counts any more; or failed: drained. Then opened again, if it is still ours."""
        number = held.partition
        if self.partitions.get(number) is not held:
            return
        self._pause(number)
        if held.draining and not lost:
            return
        if lost:
            del self.partitions[number]
            self._dropping[number] = asyncio.Event()
            self._later(self._drop_and_open(held, self._dropping[number]))
        else:
            self._suspend(held)
            self._later(self._leave_and_open(held, self._let_go(held)))

    async def _drop_and_open(self, held: HeldPartition, dropping: asyncio.Event) -> None:
        ended = await self._dispatcher.drop(held)
        dropping.set()
        await held.writer.abandon()
        self._gone(held, ended)
        await self._open_again(held.partition)

    async def _leave_and_open(self, held: HeldPartition, leaving: "asyncio.Task[None]") -> None:
        await asyncio.wait([leaving])
        await self._open_again(held.partition)

    async def _open_again(self, number: int) -> None:
        await set_within(self.stopping, OPEN_AGAIN_S)
        # Meanwhile it may have been revoked, or assigned anew.
        taken = number in self.partitions or number in self._openings
        if self.assigned is not None and number in self.assigned and not taken:
            self._openings[number] = asyncio.create_task(
                self._open(number, insides.generation(self._consumer))
            )

    def _gone(self, held: HeldPartition, ended: bool) -> None:
        held.window.resident.close()
        if ended:
            self._opening.ended(held.lease.holder)
        if self.partitions.get(held.partition) is held:
            del self.partitions[held.partition]

    def _pause(self, number: int) -> None:
        tp = TopicPartition(self._topic, number)
        if tp in self._consumer.assignment():
            self._consumer.pause(tp)

    def _later(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


def _numbers(partitions: Iterable[int]) -> str:
    numbers = sorted(partitions)
    return f"partitions {', '.join(map(str, numbers))}" if numbers else "no partition"
