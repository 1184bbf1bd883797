"""The group-ordered consumer: Qpid's message groups for consumers of an accepted topic.

Kafka's group protocol assigns partitions. The fence of each partition's progress record has the last word.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from ringfence_client.consumer.fetch_loop import POLL_MS, FetchLoop
from ringfence_client.consumer.foreign_members import watch_of
from ringfence_client.consumer.group_admission import GroupAdmission, begin_at_end
from ringfence_client.consumer.partition_task import Lost
from ringfence_client.consumer.partitions import HeldPartitions
from ringfence_client.consumer.topic_watch import TopicWatch
from ringfence_client.dispatch.dispatcher import Dispatcher
from ringfence_client.handlers.handler import Handler, check_handler
from ringfence_client.handlers.message import MessageFactory
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition import topics
from ringfence_client.partition.dead_letters import DeadLetters, DeadLetterTopic
from ringfence_client.partition.lease_acquisition import LeaseAcquisition
from ringfence_client.partition.parked_reader import ParkedReader
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.progress_topic import ProgressTopic
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.state_reader import StateReader
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topic_ids import NO_TOPIC, TopicIdentity
from ringfence_kafka.aiokafka_patches import internals, membership
from ringfence_kafka.aiokafka_patches.metadata_refresh import refresh_metadata_on_doubt
from ringfence_kafka.auth.client_options import client_options
from ringfence_kafka.concurrency.timeouts import cancelled
from ringfence_kafka.config.section import require_consumer_group
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import ConfigurationError, RingfenceError, TopicError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted

log: Final = logging.getLogger("ringfence.consumer")

METADATA_AGE_MS: Final = 10_000
HEARTBEAT_MS: Final = 300
"""Heartbeat interval, in milliseconds. A consumer learns of a rebalance by its next heartbeat, so a partition may pause for that long."""
LEAVE_LIMIT_S: Final = 8.0
REBALANCE_MARGIN_S: Final = 10.0
"""Part of the rebalance time-out beyond the drain time-out, in seconds. The group evicts a member that joins again later."""
LOOK_AGAIN_S: Final = 5.0
FAULT_SHOWS_S: Final = 2.0
"""Age at which a failing write counts as a fault, in seconds. A single failed write is normal."""


class GroupConsumer:
    """Consumes one address for one consumer group. Any number may run at once."""

    def __init__(
        self,
        settings: Settings,
        address: AddressSettings,
        group: str,
        handler: Handler,
        options: ConsumerOptions | None = None,
        *,
        lost: Lost | None = None,
        web: str = "",
    ) -> None:
        """Create a consumer that has not started.

        Args:
            settings: Address of the cluster, and the app's ID.
            address: The address to consume.
            group: The consumer group. Each group has its own progress.
            handler: ``async def handle(message)``, or a plain function, which runs in threads. Returning acknowledges.
            options: Options of the consumer.
            lost: Called after a partition was released or lost, with the groups of which handlers had messages. It drops caches of these
                groups. A coroutine function, or a plain one, which runs in a thread.
            web: Address of this consumer's web server, if it has one.

        Raises:
            HandlerError: The handler cannot be called with a message, or the call would run nothing.
            ConfigurationError: The group's name is invalid, or belongs to another part of the application.
        """
        check_handler(handler, getattr(handler, "__qualname__", repr(handler)))
        if owner := wire_names.group_owner(settings.app.id, group):
            raise ConfigurationError(f"consumer group {group!r} belongs to {owner}: choose another name")
        self.address = address
        self.group = require_consumer_group(group)
        self.options = options or ConsumerOptions()
        self._settings = settings
        self._topic = address.accepted_topic
        self.cluster = Cluster(settings.kafka, group)
        self.memory = MemoryBudget(self.options.memory_max)
        self.dispatcher = Dispatcher(handler, MessageFactory(address), self.options)
        self._parked = ParkedReader(self.cluster, self.dispatcher.counts)
        self.held_partitions = HeldPartitions(self._topic, self.options, self.dispatcher, self._parked, lost)
        self._destinations = Destinations(settings, address, group, self.cluster)
        self._web = web
        self._intake = FetchLoop(self.held_partitions, self.options, self.memory)
        self._consumer: AIOKafkaConsumer
        self._watch = TopicWatch(self.cluster)
        self.group_watch = watch_of(self.cluster, self._topic, lambda: membership.member_id(self._consumer))
        self._looking: asyncio.Task[None] | None = None
        self._admission = GroupAdmission(settings, self._topic, self.cluster, self.options, self.group_watch)
        self._topic_fault = ""
        """Fault of a topic that was deleted and created again during the run."""

    @property
    def app_id(self) -> str:
        """The application that the address belongs to."""
        return self._settings.app.id

    @property
    def ready(self) -> bool:
        """Whether the first assignment came, every assigned partition is held, and nothing is at fault."""
        return self.held_partitions.ready and not self.faults

    @property
    def faults(self) -> list[str]:
        """Faults that keep messages from being handled now. Partitions that are not held yet are not included."""
        now, breaker = time.monotonic(), self.dispatcher.breaker
        found = list(self.dispatcher.attempts.suspects.faults())
        if breaker.open:
            found.append(f"nearly every attempt fails, the last with: {breaker.reason}")
        found += self.group_watch.faults + self._watch.faults + self._intake.faults
        if self._topic_fault:
            found.append(self._topic_fault)
        for held in self.partitions.values():
            writer = held.writer
            if held.window.crowding >= 1:
                found.append(
                    f"{held}: {len(held.window.cache.parked)} messages wait, and fetching from it pauses, "
                    "so healthy groups wait too: 'ringfence groups show' names those that fail, 'skip' and "
                    "'purge' drop them"
                )
            if waiting := held.sends.states.waiting:
                found.append(
                    f"{held}: the messages of {counted(len(waiting), 'group')} wait, because their states cannot be read: "
                    f"{next(iter(waiting.values()))}"
                )
            if writer.fault and now - writer.failing_since > FAULT_SHOWS_S:
                found.append(f"{held}: progress is not written: {writer.fault}")
            if writer.letters.fault:
                found.append(
                    f"{held}: {len(writer.letters)} dead letters are not written: {writer.letters.fault}"
                )
        return found

    @property
    def partitions(self) -> dict[int, HeldPartition]:
        """Held partitions by number."""
        return self.held_partitions.partitions

    @property
    def reasons(self) -> dict[int, str]:
        """Reasons by assigned partition that is not held yet."""
        return self.held_partitions.reasons

    def stop(self) -> None:
        """Ask :meth:`run` to end: it hands out no more messages, drains the handlers and writes progress."""
        self.held_partitions.stopping.set()

    async def run(self) -> None:
        """Consume until :meth:`stop`.

        Raises:
            BrokerUnavailableError: No broker answers at the start.
            ConfigurationError: The group has members of another kind, ``app.id`` or terms.
            TopicError: A topic is missing and cannot be created.
        """
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.cluster)
            letters = DeadLetters(await self._topics(), self.group, self._topics)
            progress = ProgressTopic(self.cluster, self._settings.app.id)
            await progress.start()
            stack.push_async_callback(progress.stop)
            if self.options.start == "latest":
                await begin_at_end(self.cluster, progress, self.group, self._topic)
            states = StateReader(self.cluster, self._destinations)
            stack.push_async_callback(states.stop)
            stack.push_async_callback(self._destinations.topics.stop)
            opening = LeaseAcquisition(
                progress, letters, self.options, self.memory, self.group_watch, states, web=self._web
            )
            stack.push_async_callback(opening.stop)
            stack.push_async_callback(self._parked.stop)
            self.dispatcher.start()
            stack.push_async_callback(self.dispatcher.stop)
            self._watch.observe(self._topic, self._compare)
            self._watch.observe(progress.name, partial(self._compare_progress, progress))
            self._consumer = AIOKafkaConsumer(**self._consumer_options())
            internals.never_create(self._consumer)
            refresh_metadata_on_doubt(self._consumer, self._doubt)
            self.held_partitions.attach(self._consumer, opening)
            self._intake.attach(self._consumer)
            held = self.held_partitions
            internals.subscribe(self._consumer, self._topic, held.revoked, self._given)
            # These run from the last to the first. The consumer leaves the group at once, so only the next holders of its partitions wait
            # for its handlers.
            stack.push_async_callback(self.held_partitions.end)
            stack.push_async_callback(internals.end, self._consumer, LEAVE_LIMIT_S)
            stack.push_async_callback(self.held_partitions.close)
            stack.push_async_callback(self._stop_looking)
            for watching in (self._watch.run_until_cancelled(), self.group_watch.run()):
                stack.push_async_callback(cancelled, asyncio.create_task(watching))
            await self._until_stopped(self._join_and_fetch())

    def _given(self, partitions: Collection[TopicPartition]) -> None:
        self.held_partitions.given(partitions)
        self.group_watch.hurry()

    async def _topics(self) -> DeadLetterTopic:
        return await topics.prepare(self._settings, self.address, self.cluster)

    def _doubt(self) -> None:
        """Check the topic, because a broker no longer has it, or no longer leads a partition."""
        self._intake.doubt()
        self._watch.hurry()

    def _compare(self, identity: TopicIdentity | None) -> None:
        """Apply a topic's present identity. Without an answer, a doubt remains."""
        if identity != NO_TOPIC and not self._watch.hurried:
            self._intake.doubted = False
        if identity is not None:
            self.held_partitions.compare(identity)

    def _compare_progress(self, progress: ProgressTopic, identity: TopicIdentity | None) -> None:
        """Notice that the progress topic was created again."""
        if identity is not None and identity != NO_TOPIC and progress.renew(identity):
            log.error(
                "%s was deleted and created again: consumers write the progress of their partitions "
                "again. Partitions without a consumer restart with fencing token 1, and their messages "
                "that were finished out of order are handled again",
                progress.name,
            )
            self.held_partitions.write_again()
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._report_wrong_settings(), name="look at the topics")

    async def _stop_looking(self) -> None:
        if self._looking is not None:
            await cancelled(self._looking)

    async def _report_wrong_settings(self) -> None:
        """Report wrong settings of a topic that was created again, until they are right."""
        while True:
            found = self._topic_fault
            try:
                await self._topics()
                self._topic_fault = ""
                return
            except TopicError as error:
                self._topic_fault = str(error)
            except (KafkaError, OSError, TimeoutError, RingfenceError) as error:
                log.debug("the topics cannot be checked now: %r", error)
            if self._topic_fault != found:
                log.error("%s", self._topic_fault)
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _until_stopped(self, flow: Coroutine[Any, Any, None]) -> None:
        """Run until :meth:`stop` or a refusal; then cancel, because aiokafka waits without limit for an assignment.

        Nothing is lost: handlers never had records that are not in a window.
        """
        flowing = asyncio.create_task(flow)
        ends = (self.held_partitions.stopping, self.dispatcher.refusing, self._admission.refusing)
        waits = [asyncio.create_task(end.wait()) for end in ends]
        try:
            await asyncio.wait([flowing, *waits], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await cancelled(flowing)
        if self.dispatcher.refused is not None:
            raise self.dispatcher.refused
        if self._admission.fault:
            raise ConfigurationError(self._admission.fault)
        if not flowing.cancelled():
            flowing.result()

    def _consumer_options(self) -> dict[str, Any]:
        rebalance_s = self.options.drain_timeout + REBALANCE_MARGIN_S
        return client_options(self._settings.kafka) | {
            "group_id": self.group,
            "client_id": self._settings.kafka.client_id_of(self.options.name),
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            # Each opening seeks. Later, it also judges offsets that are out of range.
            "auto_offset_reset": "none",
            "session_timeout_ms": int(self.options.session_timeout * 1000),
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "rebalance_timeout_ms": int(rebalance_s * 1000),
            "max_poll_interval_ms": int(rebalance_s * 1000) + 300_000,
            "metadata_max_age_ms": METADATA_AGE_MS,
            # Only one strategy: aiokafka 0.14 joins once for each, every time with another list, and two members never agree.
            "partition_assignment_strategy": [self._admission.assignor(self.held_partitions.owned)],
            "fetch_max_wait_ms": POLL_MS,
            "fetch_max_bytes": self.memory.response_bytes_max,
            "max_partition_fetch_bytes": self.memory.partition_bytes_max,
        }

    async def _join_and_fetch(self) -> None:
        await self._admission.join(self._consumer)
        log.info("consumer %s of group %s begins at %s", self.options.name, self.group, self._topic)
        policy = self.options.policy
        log.info(
            "a message that fails is tried up to %d times within %g s, then it becomes a dead letter in %s; only its own group waits",
            policy.max_attempts, policy.seconds, wire_names.dead_letter_topic(self.address.name),
        )  # fmt: skip
        await self._intake.fetch()
