"""Group-ordered consumers in the test's own event loop, on a real broker."""

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from ringfence_client import ConsumerOptions, GroupConsumer, Message
from ringfence_client.progress import progress_record, record_parts
from ringfence_client.progress.progress_record import Progress
from ringfence_client.progress.progress_topic import PARTITIONS
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.lanes import LIMIT_S, until

Behaviour = Callable[[Message], Awaitable[None]]


async def _returns(message: Message) -> None:
    await asyncio.sleep(0)


class Recorder:
    """A handler that records its runs: time, order, and others beside them. It notes forbidden runs at once."""

    def __init__(self, behaviour: Behaviour = _returns) -> None:
        self.behaviour = behaviour
        self.begun: list[tuple[int, int, int]] = []
        self.done: list[tuple[int, int]] = []
        self.messages: list[Message] = []
        self.running: Counter[tuple[int, bytes | None]] = Counter()
        self.most = 0
        self.wrong: list[str] = []
        self._last: dict[tuple[int, bytes], int] = {}

    async def __call__(self, message: Message) -> None:
        with self.observed(message):
            await self.behaviour(message)

    @contextlib.contextmanager
    def observed(self, message: Message) -> Any:
        key = (message.partition, message.group)
        self.begun.append((message.partition, message.offset, message.attempt))
        self.messages.append(message)
        self.running[key] += 1
        self.most = max(self.most, self.running.total())
        if message.group is not None:
            if self.running[key] > 1:
                self.wrong.append(f"two of group {message.group!r} at once: {message.offset}")
            before = self._last.get((message.partition, message.group), -1)
            if before > message.offset:
                self.wrong.append(f"{message.offset} of group {message.group!r} after {before}")
        try:
            yield
        finally:
            self.running[key] -= 1
        self.done.append((message.partition, message.offset))
        if message.group is not None:
            self._last[message.partition, message.group] = message.offset

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offset in self.done]

    def attempts(self, offset: int) -> list[int]:
        return [attempt for _, number, attempt in self.begun if number == offset]

    def by_group(self) -> dict[bytes | None, list[int]]:
        groups = {(message.partition, message.offset): message.group for message in self.messages}
        found: dict[bytes | None, list[int]] = defaultdict(list)
        for item in self.done:
            found[groups[item]].append(item[1])
        return dict(found)


class Running:
    """A consumer that runs."""

    def __init__(self, consumer: GroupConsumer, handler: Any) -> None:
        self.consumer = consumer
        self.handler = handler
        self._task = asyncio.create_task(consumer.run())

    async def ready(self, partitions: int | None = None) -> None:
        def held() -> bool:
            self.check()
            kept = [partition for partition in self.consumer.partitions.values() if not partition.draining]
            return self.consumer.ready and (partitions is None or len(kept) == partitions)

        await until(
            held,
            lambda: (
                f"holds {set(self.consumer.partitions)} of {self.consumer.held_partitions.assigned}: {self.consumer.reasons}"
            ),
        )

    def check(self) -> None:
        if self._task.done():
            self._task.result()

    async def finished(self) -> None:
        await self._task

    async def stop(self) -> None:
        self.consumer.stop()
        await asyncio.wait_for(self._task, LIMIT_S)

    async def end(self) -> None:
        self.consumer.stop()
        with contextlib.suppress(TimeoutError, Exception):
            await asyncio.wait_for(self._task, LIMIT_S)


class Bench:
    """One accepted topic, and any number of consumers of one group."""

    def __init__(self, bootstrap: str, partitions: int, others: Sequence[dict[str, Any]] = ()) -> None:
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.name = kafka.unique("consuming")
        self.accepted = f"{self.name}.accepted"
        self.dead_letters = f"{self.name}.dlq"
        self.group = f"{self.name}-readers"
        self.settings: Settings = validate(
            {
                "kafka": {"bootstrap_servers": bootstrap},
                "app": {"id": f"{self.name}-app"},
                "addresses": [{"name": self.name}, *others],
            }
        )
        self.running: list[Running] = []

    def lease_name(self, partition: int = 0) -> str:
        return f"{self.group}/{self.accepted}/{partition}"

    def send(self, *records: Sent, partition: int = 0) -> None:
        kafka.send(self.bootstrap, self.accepted, records, partition)

    def launch(self, handler: Any, **options: Any) -> Running:
        """Start a consumer, not ready yet; ``through``: other bootstrap servers; ``app_id``: app of its progress topic; ``lost``: takes lost groups."""
        through: str = options.pop("through", self.bootstrap)
        lost = options.pop("lost", None)
        app = self.settings.app.model_copy(update={"id": options.pop("app_id", self.settings.app.id)})
        chosen = ConsumerOptions(
            **{"concurrency": 4, "drain_timeout": 5.0, "lease_timeout": 3.0, "lease_idle": 0.3, **options}
        )
        entry = self.settings.kafka.model_copy(update={"bootstrap_servers": through})
        settings = self.settings.model_copy(update={"kafka": entry, "app": app})
        consumer = GroupConsumer(settings, settings.addresses[0], self.group, handler, chosen, lost=lost)
        self.running.append(Running(consumer, handler))
        return self.running[-1]

    async def start(self, handler: Any, **options: Any) -> Running:
        running = self.launch(handler, **options)
        await running.ready()
        return running

    async def handle(self, handler: Any, offset: int, **options: Any) -> Running:
        """Run a consumer until partition 0 is finished up to an offset; it has ended in order."""
        running = await self.start(handler, **options)
        await self.until_next(running, offset)
        await running.stop()
        return running

    async def progress(self, partition: int = 0) -> Progress | None:
        key = progress_record.encode_key(self.group, self.accepted, partition)
        topic = f"{self.name}-app-progress"
        got = await asyncio.to_thread(kafka.read_all, self.bootstrap, topic, PARTITIONS)
        latest = {item.key: item.value for item in got}

        def find(number: int) -> bytes | None:
            return latest.get(record_parts.key_of(key, number))

        value = latest.get(key)
        return None if value is None else progress_record.decode(value, find)

    async def committed(self, partition: int = 0) -> int:
        got = await asyncio.to_thread(
            kafka.committed, self.bootstrap, self.group, self.accepted, self.partitions
        )
        return got[partition]

    async def agreed(self) -> Progress:
        """Return the record, as soon as it states the committed offset: between the two reads it may be written again."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                progress, committed = await self.progress(), await self.committed()
                if progress is not None and committed == progress.next:
                    return progress
                await asyncio.sleep(0.05)

    async def until_committed(self, offset: int, partition: int = 0) -> None:
        """Wait until the group's committed offset is so far: all below it is acknowledged for good."""
        deadline = time.monotonic() + LIMIT_S
        while (committed := await self.committed(partition)) < offset:
            assert time.monotonic() < deadline, f"{committed} is committed instead of {offset}"
            await asyncio.sleep(0.05)

    async def letters(self) -> list[Got]:
        return await asyncio.to_thread(kafka.read_all, self.bootstrap, self.dead_letters, self.partitions)

    async def read(self, topic: str, partitions: int = 1) -> list[Got]:
        return await asyncio.to_thread(kafka.read_all, self.bootstrap, topic, partitions)

    async def until_next(self, running: Running, offset: int, partition: int = 0) -> None:
        def reached() -> bool:
            running.check()
            held = running.consumer.partitions.get(partition)
            return held is not None and held.window.next >= offset

        def seen() -> str:
            held = running.consumer.partitions.get(partition)
            return f"{held and (held.window.next, held.window.counts)} instead of {offset}"

        await until(reached, seen)


@contextlib.asynccontextmanager
async def consuming(
    bootstrap: str, partitions: int = 1, others: Sequence[dict[str, Any]] = ()
) -> AsyncIterator[Bench]:
    made = Bench(bootstrap, partitions, others)
    kafka.create_topics(bootstrap, {made.accepted: (partitions, {})})
    try:
        yield made
    finally:
        await asyncio.gather(*(running.end() for running in made.running))


def numbered(group: bytes | None, count: int) -> list[Sent]:
    return [Sent(None, group, b"%d" % index) for index in range(count)]


def interleaved(groups: int, each: int) -> list[Sent]:
    return [Sent(None, b"group-%d" % group, b"%d" % turn) for turn in range(each) for group in range(groups)]
