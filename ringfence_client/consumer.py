"""The group-ordered consumer: message groups (Qpid) for those who process an accepted topic.

Kafka's group protocol says which partitions are ours; the fence of each partition's progress says it again, and last.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    KafkaError,
    OffsetOutOfRangeError,
)

from conf.errors import ConfigurationError, PrerequisiteError
from conf.settings import AddressSettings, Settings
from ringfence_client import topics
from ringfence_client.claimed import Claimed
from ringfence_client.dead_letters import DeadLetters
from ringfence_client.dispatcher import Dispatcher
from ringfence_client.handler import Handler
from ringfence_client.message import MessageFactory
from ringfence_client.opening import NotOursError, PartitionOpening
from ringfence_client.options import ConsumerOptions
from ringfence_client.parked import ParkedReader
from ringfence_client.progress import ProgressTopic
from tables import insides
from tables.access import client_options
from tables.cluster import Cluster

log: Final = logging.getLogger("ringfence.consumer")

POLL_MS: Final = 100
MOVING_POLL_MS: Final = 10
"""While windows that are full enough move: handlers do not wait long for what one of them lacks."""
FETCH_RECORDS_MAX: Final = 250
"""Taken at once; handlers run between."""
FETCH_PART: Final = 5
"""And no more than this part of a window."""
CLOSE_LIMIT_S: Final = 8.0
"""For the last progress, and to leave the group."""
REBALANCE_MARGIN_S: Final = 20.0
"""Whoever gives away longer than the rebalance time-out is evicted: beyond the drain come the cancelling, the last progress
and the producer's end."""
RETRY_S: Final = 1.0


class GroupConsumer:
    """Consumes one address for one consumer group; run as many as you like."""

    def __init__(
        self,
        settings: Settings,
        address: AddressSettings,
        group: str,
        handler: Handler,
        options: ConsumerOptions | None = None,
    ) -> None:
        """Nothing happens yet.

        Args:
            settings: Where the cluster is, and the app's ID.
            address: What to consume.
            group: The consumer group: its own progress, beside all others.
            handler: ``async def handle(message)``, or a plain function, which runs in threads. Returning acknowledges.
            options: How.
        """
        self.address = address
        self.group = group
        self.options = options or ConsumerOptions()
        self._settings = settings
        self._topic = address.accepted_topic
        self._fetch_max = min(FETCH_RECORDS_MAX, max(1, self.options.records_max // FETCH_PART))
        self.cluster = Cluster(settings.kafka, group)
        self._parked = ParkedReader(settings.kafka)
        self.dispatcher = Dispatcher(
            handler,
            MessageFactory(address),
            self.options.name,
            concurrency=self.options.concurrency,
            prefetch=self.options.prefetch,
            max_attempts=self.options.max_attempts,
        )
        self.claims: dict[int, Claimed] = {}
        """The partitions that are held, by number."""
        self.assigned: set[int] | None = None
        """What the group gave us; None = nothing yet."""
        self.reasons: dict[int, str] = {}
        """Why an assigned partition is not held yet."""
        self.web = ""
        self._openings: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._dropping: dict[int, asyncio.Event] = {}
        """Partitions that were lost, while what runs of them is cancelled."""
        self._stopping = asyncio.Event()
        self._finished, self._moved = 0, 0.0
        """Messages that were finished, and when that changed last."""
        self._consumer: AIOKafkaConsumer
        self._opening: PartitionOpening

    @property
    def ready(self) -> bool:
        """Whether the first assignment came and every assigned partition is held."""
        return self.assigned is not None and self.assigned <= self.claims.keys()

    def stop(self) -> None:
        """Ask :meth:`run` to end: nothing more is handed out, what runs is drained, progress is written."""
        self._stopping.set()

    async def run(self) -> None:
        """Consume until :meth:`stop`.

        Raises:
            BrokerUnavailableError: nobody answers at the start.
            TopicError: a topic is missing and cannot be made.
        """
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.cluster)
            prepared = await topics.prepare(self._settings, self.address, self.cluster)
            progress = ProgressTopic(self._settings.kafka, self._settings.app.id, self.cluster)
            await progress.start()
            letters = DeadLetters(*prepared.dead_letters, self.group)
            self._opening = PartitionOpening(
                self._settings.kafka, self._settings.app.id, self.cluster, progress, letters, self.options
            )
            self._opening.web = self.web
            stack.push_async_callback(self._parked.stop)
            self.dispatcher.start()
            stack.push_async_callback(self.dispatcher.stop)
            self._consumer = AIOKafkaConsumer(**self._consumer_options())
            self._consumer.subscribe([self._topic], listener=_Listener(self))
            stack.push_async_callback(insides.end, self._consumer, CLOSE_LIMIT_S)
            stack.push_async_callback(self._close_all)
            await self._until_stopped(self._join_and_fetch())

    async def _until_stopped(self, flow: Coroutine[Any, Any, None]) -> None:
        """Until :meth:`stop`: then it is cancelled, because aiokafka waits without limit for an assignment.

        Nothing is lost with it: what was fetched and did not reach a window was never begun.
        """
        flowing = asyncio.create_task(flow)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([flowing, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            flowing.cancel()
            await asyncio.wait([flowing])
        if not flowing.cancelled():
            flowing.result()

    def _consumer_options(self) -> dict[str, Any]:
        rebalance_s = self.options.drain_timeout + REBALANCE_MARGIN_S
        return client_options(self._settings.kafka) | {
            "group_id": self.group,
            "client_id": self.options.name,
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            # Each opening seeks. What is out of range afterwards, an opening has to judge.
            "auto_offset_reset": "none",
            "session_timeout_ms": int(self.options.session_timeout * 1000),
            "heartbeat_interval_ms": int(self.options.session_timeout * 1000 / 10),
            "rebalance_timeout_ms": int(rebalance_s * 1000),
            "max_poll_interval_ms": int(rebalance_s * 1000) + 300_000,
            "metadata_max_age_ms": 10_000,
            "fetch_max_wait_ms": POLL_MS,
        }

    # -- what flows ------------------------------------------------------------------------------------------

    async def _join_and_fetch(self) -> None:
        try:
            await self._consumer.start()
        except InconsistentGroupProtocolError as error:
            raise ConfigurationError(
                f"the consumer group {self.group} has members that share out partitions in another way: choose another "
                "name"
            ) from error
        except GroupAuthorizationFailedError as error:
            raise PrerequisiteError(
                f"this user may not read as the consumer group {self.group}: allow it, or choose another name"
            ) from error
        log.info("consumer %s of group %s begins at %s", self.options.name, self.group, self._topic)
        while True:
            insides.keep_fetching(self._consumer._fetcher)  # noqa: SLF001
            timeout_ms = MOVING_POLL_MS if self._moving() else POLL_MS
            try:
                fetched = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=self._fetch_max)
            except OffsetOutOfRangeError as error:
                self._judge(error.args[0])
                continue
            except (KafkaError, OSError) as error:
                log.warning("nothing can be fetched: %s", error or type(error).__name__)
                await asyncio.sleep(RETRY_S)
                continue
            self._take(fetched)
            await asyncio.sleep(0)  # aiokafka returns what it has without one

    def _moving(self) -> bool:
        """Whether windows that have enough for now may soon lack something."""
        now, finished = asyncio.get_running_loop().time(), self.dispatcher.counts["finished"]
        if finished != self._finished:
            self._finished, self._moved = finished, now
        return bool(self._consumer.paused()) and now - self._moved <= POLL_MS / 1000

    def _take(self, fetched: dict[TopicPartition, list[Any]]) -> None:
        """No await stands between the fetch and here: a position tells what the windows have."""
        for tp, records in fetched.items():
            claimed = self.claims.get(tp.partition)
            if claimed is not None:
                self.dispatcher.wake(claimed.window.feed(records))
        now = asyncio.get_running_loop().time()
        for number, claimed in self.claims.items():
            tp = TopicPartition(self._topic, number)
            reached = insides.position(self._consumer, tp)
            before = claimed.window.next
            if reached is not None:
                claimed.window.reached(reached)
            if claimed.window.next != before:
                claimed.writer.note()
            claimed.window.tick(now)
            self._throttle(tp, claimed)
            self._parked.read_ahead(claimed)

    def _judge(self, out_of_range: dict[TopicPartition, int]) -> None:
        """Retention deleted what was to be read next, or the topic is another one: its opening says which."""
        for tp, offset in out_of_range.items():
            log.warning("%s/%d: there is no offset %d any more", tp.topic, tp.partition, offset)
            claimed = self.claims.get(tp.partition)
            if claimed is not None:
                self._pause(tp)
                claimed.fail()

    def _pause(self, tp: TopicPartition) -> None:
        if tp in self._consumer.assignment():
            self._consumer.pause(tp)

    def _throttle(self, tp: TopicPartition, claimed: Claimed) -> None:
        if tp not in self._consumer.assignment() or claimed.draining:
            return
        if not claimed.window.wants_more(self.dispatcher.idle, self._fetch_max):
            self._consumer.pause(tp)
        elif tp in self._consumer.paused():
            self._consumer.resume(tp)

    # -- what comes and goes -----------------------------------------------------------------------------------

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by aiokafka before anything is fetched of them."""
        if self._stopping.is_set():
            return
        given = {tp.partition for tp in partitions}
        self._consumer.pause(*partitions)
        for tp in partitions:
            self._consumer.seek(
                tp, 0
            )  # else aiokafka looks for a position itself; nothing is fetched of it yet
        self.assigned = given
        generation = insides.generation(self._consumer)
        log.info("assigned %s of %s", _numbers(given), self._topic)
        for number in given:
            self._open_later(number, generation)

    async def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by aiokafka before it joins again, and waited for: drain, write, give away."""
        self.assigned = None  # first: what is lost meanwhile is not opened again
        numbers = {tp.partition for tp in partitions} | self.claims.keys() | self._openings.keys()
        if numbers:
            log.info("giving away %s of %s", _numbers(numbers), self._topic)
        await self._close(numbers)

    def _open_later(self, number: int, generation: int) -> None:
        self._openings[number] = asyncio.create_task(
            self._open(number, generation), name=f"opening of {self._topic}/{number}"
        )

    async def _open(self, number: int, generation: int) -> None:
        """Until it is held, or no longer ours."""
        if (dropping := self._dropping.get(number)) is not None:
            await dropping.wait()  # what ran of it is not run again beside itself
        while insides.generation(self._consumer) == generation:
            try:
                claimed = await self._opened(number, generation)
            except NotOursError as error:
                log.info("%s", error)  # a rebalance is under way, or comes
            except Exception as error:  # noqa: BLE001 - whatever it is: else the partition would be nobody's
                self.reasons[number] = str(error) or type(error).__name__
                log.warning("%s/%d is not opened yet: %r", self._topic, number, error)
            else:
                self._hold(claimed)
                break
            await asyncio.sleep(RETRY_S)
        self._openings.pop(number, None)

    async def _opened(self, number: int, generation: int) -> Claimed:
        async def confirm() -> bool:
            return await insides.is_member(self._consumer, generation, rebalancing=True)

        claim, window, writer = await self._opening.open(self._topic, number, confirm)
        claimed = Claimed(
            claim, window, writer, self._parked.read, lambda failed: self._renew(failed, lost=False)
        )
        try:
            writer.start(lambda: self._renew(claimed, lost=True))
            # Before anything is handed out: what may have been running is known to a successor.
            await writer.persisted()
        except BaseException:
            await writer.abandon()
            raise
        return claimed

    def _hold(self, claimed: Claimed) -> None:
        number, window = claimed.partition, claimed.window
        tp = TopicPartition(self._topic, number)
        self._consumer.seek(tp, window.next)
        self._consumer.resume(tp)
        self.claims[number] = claimed
        self.reasons.pop(number, None)
        self.dispatcher.add(claimed)
        log.info("%s/%d held from offset %d on, %d messages above it are finished", self._topic, number, window.next,
            sum(end - begin for begin, end in window.watermark.runs()))  # fmt: skip

    def _renew(self, claimed: Claimed, *, lost: bool) -> None:
        """Lost to somebody: nothing of it counts any more; or failed: drained. Then opened again, if it is still ours."""
        task = asyncio.create_task(self._close_and_open(claimed, lost=lost))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _close_and_open(self, claimed: Claimed, *, lost: bool) -> None:
        number = claimed.partition
        if self.claims.get(number) is not claimed or (claimed.draining and not lost):
            return
        self._pause(TopicPartition(self._topic, number))
        if lost:
            del self.claims[number]
            dropping = self._dropping[number] = asyncio.Event()
            await self.dispatcher.drop(claimed)
            dropping.set()
            await claimed.writer.abandon()
        else:
            await self._give_away(claimed)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), RETRY_S)
        # Meanwhile it may have been revoked, or assigned anew.
        taken = number in self.claims or number in self._openings
        if self.assigned is not None and number in self.assigned and not taken:
            self._open_later(number, insides.generation(self._consumer))

    async def _close_all(self) -> None:
        self._stopping.set()  # whatever brought us here: nothing is opened any more
        self.assigned = None
        await self._close(self.claims.keys() | self._openings.keys())
        if self._ending:
            await asyncio.wait(self._ending)

    async def _close(self, numbers: Iterable[int]) -> None:
        numbers = set(numbers)
        for number in numbers & self._openings.keys():
            opening = self._openings.pop(number)
            opening.cancel()
            await asyncio.wait([opening])
        await asyncio.gather(*(self._give_away(self.claims[each]) for each in numbers & self.claims.keys()))

    async def _give_away(self, claimed: Claimed) -> None:
        ended = await self.dispatcher.drain(claimed, self.options.drain_timeout)
        await claimed.writer.close(CLOSE_LIMIT_S, released=ended)
        claimed.window.closed = True
        if self.claims.get(claimed.partition) is claimed:
            del self.claims[claimed.partition]


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka's interface."""

    def __init__(self, owner: GroupConsumer) -> None:
        self._owner = owner

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._owner.on_revoked(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._owner.on_assigned(list(assigned))


def _numbers(partitions: Iterable[int]) -> str:
    return f"partitions {', '.join(map(str, sorted(partitions)))}" if partitions else "no partition"
