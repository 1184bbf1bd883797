"""Outbox: sends messages of one address, and returns the verdict on each.

It needs only what workers write anyway. The producer returns a message's place in the input. The lane's changelog shows the lane's
position, and the message that was accepted with an ID.
"""

import asyncio
import contextlib
import math
import threading
import time
from pathlib import Path
from typing import Any, Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from ringfence_client.receipts.changelog_follower import ChangelogFollower
from ringfence_client.receipts.lane_memory import Place
from ringfence_client.receipts.outgoing import Composer, Content, GivenHeaders, OutgoingMessage
from ringfence_client.receipts.receipt import OutboxError, Receipt, ReceiptTimeoutError
from ringfence_client.receipts.verdict_reader import VerdictReader
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.aiokafka_patches import internals, producer_internals
from ringfence_kafka.auth.client_options import producer_options
from ringfence_kafka.config.load import load
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import named
from ringfence_kafka.producer.transactional import REQUEST_BYTES_MAX
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import lane_of
from ringfence_kafka.readers.log_reader import RESTING_MAX, LogReader

METADATA_AGE_MS: Final = 10_000
"""Age of metadata, in milliseconds, after which the producer notices new partitions."""


class Outbox:
    """Sends messages to one address, and returns the verdict on each.

    Use it with ``async with``; ``with`` returns its twin for programs without an event loop. Any number of sends may run at once.
    """

    def __init__(
        self,
        config: Settings | Path | str,
        address: AddressSettings | str,
        *,
        sender: str = "",
        timeout: float = 30.0,
    ) -> None:
        """Create an unconnected outbox.

        Args:
            config: The settings, or the path of the TOML file.
            address: The target address.
            sender: A unique name that this sender keeps over restarts. A message that it sent before with the same ID and value then gets
                the same answer each time. Empty = the answer is DUPLICATE, as for another sender's message.
            timeout: Time limit of :meth:`send`, in seconds.

        Raises:
            ValueError: The time-out is not a number of seconds.
            ConfigurationError: The file is unusable, the address is unknown, or another address feeds its input.
        """
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
            raise ValueError(f"Outbox(timeout={timeout!r}): give a number of seconds above 0, such as 30.0")
        self._settings = config if isinstance(config, Settings) else load(Path(config))
        self._address = self._settings.configured(address if isinstance(address, str) else address.name)
        self._settings.require_own_input(self._address, "the outbox cannot send")
        self._timeout = timeout
        self._composer = Composer(self._address, sender)
        self._cluster = Cluster(self._settings.kafka, self._settings.app.id)
        self._reader = LogReader(self._settings.kafka, RESTING_MAX)
        self._changelog = wire_names.changelog_topic(self._settings.app.id, self._address.name)
        self._follower = ChangelogFollower(self._cluster, self._reader, self._changelog)
        self._verdicts = VerdictReader(
            self._settings, self._address, self._composer, self._cluster, self._reader, self._follower
        )
        self._spread = 0
        """Number of sent messages without a home. It spreads them over the partitions."""
        self._producer: Any = None
        self._connecting = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._open = contextlib.AsyncExitStack()
        self._blocking: BlockingOutbox | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            BrokerUnavailableError: No broker answers.
            MissingTopicError: A topic of the address does not exist.
        """
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._cluster)
            counts = await self._verdicts.partition_counts()
            stack.push_async_callback(self._reader.stop)
            stack.push_async_callback(self._follower.stop)
            await self._follower.start(counts[self._changelog])
            stack.push_async_callback(self._stop_producers)
            await self._connected()
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect. Running sends fail."""
        await self._open.aclose()

    def __enter__(self) -> "BlockingOutbox":
        """Connect as :meth:`__aenter__` does, in a separate thread."""
        self._blocking = BlockingOutbox(self)
        return self._blocking

    def __exit__(self, *_: object) -> None:
        if self._blocking is not None:
            self._blocking.close()

    async def send(
        self,
        value: Content | None,
        *,
        duplicate_id: Content | None = None,
        key: Content | None = None,
        headers: GivenHeaders = (),
    ) -> Receipt:
        """Send a message, and wait until a worker has judged it.

        Raises:
            ReceiptTimeoutError: The message is sent, and its verdict did not come in time.
            OutboxError: The message is not sent, or that is unknown; the text says which.
            ValueError: The verdict would be impossible to find.
        """
        message = self._composer.compose(value, duplicate_id, key, headers)
        self._follower.require()
        place: Place | None = None
        try:
            async with asyncio.timeout(self._timeout):
                producer = await self._connected()
                partition = self._partition(producer, message)
                lane = lane_of(partition, self._address.lanes)
                with self._follower.awaiting(lane, message.id) as awaited:
                    place = awaited.place = await self._produce(producer, message, partition)
                    return await self._verdicts.receipt(message, awaited, place, lane)
        except TimeoutError as error:
            if place is None:
                raise self._doubt(message, f"not acknowledged within {self._timeout:g} s") from error
            source = self._verdicts.source(place)
            raise ReceiptTimeoutError(source, self._timeout, has_id=message.id is not None) from error
        except KafkaError as error:
            raise OutboxError(
                f"{self._address.name}: the message is sent, and its verdict cannot be read ({named(error)}): call send again with the same ID"
            ) from error

    # -- the producer --------------------------------------------------------------------------------------

    async def _connected(self) -> AIOKafkaProducer:
        async with self._connecting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **producer_options(self._settings.kafka),
                    enable_idempotence=True,
                    acks="all",
                    max_request_size=REQUEST_BYTES_MAX,
                    metadata_max_age_ms=METADATA_AGE_MS,
                )
                internals.never_create(producer)
                try:
                    await producer.start()
                    await producer.partitions_for(self._address.input_topic)
                except (KafkaError, OSError) as error:
                    await producer.stop()
                    raise OutboxError(f"{self._address.name}: nothing is sent: {named(error)}") from error
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer

    def _partition(self, producer: AIOKafkaProducer, message: OutgoingMessage) -> int:
        """Return the partition of the message's home, where its lane judges it without forwarding."""
        topic = self._address.input_topic
        count = len(producer_internals.partitions_of(producer, topic) or ()) or 1
        if message.home is None:
            self._spread += 1
            return self._spread % count
        return self._composer.partition(message.home, count)

    async def _produce(self, producer: AIOKafkaProducer, message: OutgoingMessage, partition: int) -> Place:
        now = round(time.time() * 1000)
        try:
            sent = await producer.send_and_wait(
                self._address.input_topic,
                message.value,
                message.key,
                partition=partition,
                timestamp_ms=now,
                headers=message.headers,
            )
            # For all records of a batch, aiokafka returns the time of the first one.
            appended = sent.timestamp if sent.timestamp_type else now
            return Place(sent.partition, sent.offset, appended)
        except MessageSizeTooLargeError as error:
            self._give_up(producer)
            raise OutboxError(
                f"{self._address.name}: the message is not sent: it is larger than the topic takes; send a smaller one, or raise "
                "max.message.bytes"
            ) from error
        except (KafkaError, OSError) as error:
            self._give_up(producer)
            raise self._doubt(message, named(error)) from error

    def _give_up(self, producer: Any) -> None:
        """Let the next send create another producer: brokers refuse an idempotent producer after a lost batch."""
        if producer is not None and producer is self._producer:
            self._producer = None
            task = asyncio.create_task(producer.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _stop_producers(self) -> None:
        self._give_up(self._producer)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _doubt(self, message: OutgoingMessage, why: str) -> OutboxError:
        again = (
            "call send again with the same ID: it is not accepted twice"
            if message.id is not None
            else "it has no ID, so look into the topic before it is sent again"
        )
        return OutboxError(
            f"{self._address.name}: it is unknown whether the message was sent ({why}): {again}"
        )


class BlockingOutbox:
    """Does the same as :class:`Outbox` without ``await``. Any number of threads may use it."""

    def __init__(self, outbox: "Outbox") -> None:
        """Connect as :meth:`Outbox.__aenter__` does."""
        self._outbox = outbox
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="outbox", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(outbox.__aenter__(), self._loop).result()
        except BaseException:
            self._end()
            raise

    def send(
        self,
        value: Content | None,
        *,
        duplicate_id: Content | None = None,
        key: Content | None = None,
        headers: GivenHeaders = (),
    ) -> Receipt:
        """Send a message, and wait until a worker has judged it, as :meth:`Outbox.send` does."""
        if self._loop.is_closed():
            raise OutboxError("the outbox is closed, and nothing is sent: use it within 'with'")
        sending = self._outbox.send(value, duplicate_id=duplicate_id, key=key, headers=headers)
        return asyncio.run_coroutine_threadsafe(sending, self._loop).result()

    def close(self) -> None:
        """Disconnect."""
        try:
            asyncio.run_coroutine_threadsafe(self._outbox.__aexit__(), self._loop).result()
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
