"""The bench for tests that run in an event loop."""

import asyncio
import contextlib
import dataclasses
import inspect
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final, Self

from ringfence_client.consumer.partition_task import Lost
from ringfence_client.handlers.effects import Data, encoded
from ringfence_client.handlers.handler import Handler, check_handler, is_async
from ringfence_client.handlers.message import Fence, Message
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.lease import LostError
from ringfence_client.progress.watermark import Watermark
from ringfence_client.testing.holder import Holder, Scene
from ringfence_client.testing.memory_cluster import MemoryLogs, VirtualTime
from ringfence_client.testing.messages import (
    ADDRESS,
    TIMESTAMP,
    DeadLetterRecord,
    HandlerRun,
    SentRecord,
    accepted_record,
)
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.protocol import wire_names

CALM: Final = 20
"""Idle turns of the event loop after which the bench counts as settled."""
POLL_S: Final = 0.001
RELEASES_MAX: Final = 10
"""Releases of a message in one call after which it waits for the next call. Its handler may release it for ever."""
OPTIONS: Final = ConsumerOptions(concurrency=1, retry_jitter=0)
"""Default options of a bench. Runs and delays are the same each time."""


class AsyncHandlerBench:
    """Runs a handler in memory, within the event loop of the test.

    Attributes:
        runs: Calls of the handler, in order.
    """

    def __init__(
        self,
        handler: Handler,
        options: ConsumerOptions | None = None,
        *,
        lost: Lost | None = None,
        addresses: Iterable[str] = (),
        topics: Mapping[str, int] | None = None,
        states: Mapping[bytes, Data] | None = None,
        settings: Settings | None = None,
        address: str = ADDRESS,
        consumer_group: str = ADDRESS,
    ) -> None:
        """Create a bench that has not started.

        Args:
            handler: A coroutine function, or a plain one, which runs in threads.
            options: Options of the consumer. None = one handler at a time, and delays without jitter. The breaker is always off, because it
                judges the services that handlers depend on.
            lost: The function of that name in the handler's module.
            addresses: Names of addresses. A send to an input topic, which has the name of its address, carries a duplicate ID.
            topics: Numbers of partitions by topic. Other topics exist with one partition; a topic with 0 does not exist.
            states: The states of groups at the start.
            settings: A configuration, for addresses with their own settings, in place of ``addresses``.
            address: Name of the consumed address.
            consumer_group: Name of the consumer group.

        Raises:
            HandlerError: The handler cannot be called with a message, or the call would run nothing.
            ConfigurationError: The configuration has no such address.
        """
        check_handler(handler, getattr(handler, "__qualname__", repr(handler)))
        if settings is None:
            names = dict.fromkeys([address, *addresses])
            settings = Settings.model_validate({"addresses": [{"name": name} for name in names]})
        self.runs: list[HandlerRun] = []
        self._time = VirtualTime()
        self._handler = handler
        self._held_up: int | None = None
        """Number of ended runs after which transactions wait; None = they do not wait."""
        self._ended_runs = 0
        consumed = settings.configured(address)
        self._state_topic = wire_names.state_topic(settings.app.id, consumer_group, consumed.accepted_topic)
        self._scene = Scene(
            handler=self._recorded(),
            options=dataclasses.replace(options or OPTIONS, breaker=False),
            lost=lost,
            settings=settings,
            address=consumed,
            group=consumer_group,
            logs=MemoryLogs({self._state_topic: 0} | dict(topics or {})),
            time=self._time,
            holds=lambda: self._held_up is not None and self._ended_runs > self._held_up,
        )
        self._holder: Holder | None = None
        self._keep_states(states or {})

    # -- what happens ---------------------------------------------------------------------------------------------

    async def deliver(self, *messages: Message, wait: bool = True, commit: bool = True) -> None:
        """Publish messages, and run the handler until no work is left.

        Args:
            messages: Messages in the order of the log.
            wait: Let the delays between attempts pass. Otherwise failed messages wait for :meth:`pass_time`, or for the next call.
            commit: Write the transactions. Otherwise acknowledgements from now on wait for :meth:`commit` or for the next call with it, and
                :meth:`take_over` and :meth:`crash` lose them.

        Raises:
            HandlerError: The handler returned a generator, which has run nothing.
        """
        holder = await self._opened()
        if commit:
            await self._release_commits()
        elif self._held_up is None:
            self._held_up = self._ended_runs
        attempts, accepted = holder.window.attempts, self._scene.accepted
        begin = len(accepted)
        for given in messages:
            record = accepted_record(given, self._scene.address, len(accepted))
            accepted.append(record)
            if given.attempt > 1:
                attempts.counts[record.offset] = given.attempt - 1
                attempts.failures[record.offset] = Failures(given.attempt - 1, self._time.now_ms())
            if given.redriven:
                holder.window.redrives.counts[record.offset] = given.redriven
        holder.feed(accepted[begin:])
        await self._run(wait=wait)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and run the handler when delays are over."""
        await self._opened()
        until = self._time.now_s + seconds
        await self._run(until=until)
        self._time.pass_until(until)
        await self._settle()

    async def commit(self) -> None:
        """Write the acknowledgements of ``deliver(…, commit=False)``."""
        await self._opened()
        await self._release_commits()
        await self._run(wait=False)

    async def hand_over(self, *, wait: bool = True) -> None:
        """Give the partition to another process, as in a rebalance: everything is written, and ``lost(groups)`` is called."""
        holder = await self._opened()
        await self._release_commits()
        await holder.give_away()
        await self._reopen(wait=wait)

    async def take_over(self, *, wait: bool = True) -> None:
        """Let another process take the partition. It repeats unwritten messages; ``lost(groups)`` is called in this one."""
        holder = await self._opened()
        await holder.lose()
        await self._reopen(wait=wait)

    async def crash(self, *, wait: bool = True) -> None:
        """Kill the process. The next one repeats unwritten messages; ``lost(groups)`` is not called.

        A real process would lose its memory, so the test must empty its module's caches.
        """
        holder = await self._opened()
        await holder.crash()
        await self._reopen(wait=wait)

    async def crash_before_commit(self, *messages: Message) -> None:
        """Deliver messages, and kill the process after the handler and before the write. The next process repeats them."""
        await self.deliver(*messages, commit=False, wait=False)
        await self.crash()

    async def redrive(self, letter: DeadLetterRecord | None = None) -> None:
        """Process the message of a dead letter again (None = the last one), as ``ringfence dlq redrive`` does.

        Raises:
            ValueError: The dead letter does not exist, or its message was redriven already.
        """
        holder = await self._opened()
        letters = self.dead_letters
        if letter is None and not letters:
            raise ValueError("nothing to redrive: the bench has no dead letter yet")
        found = letter or letters[-1]
        if not holder.held.redrive(found.offset, found.redriven + 1):
            raise ValueError(f"the message with offset {found.offset} was done again already")
        holder.feed(())
        await self._run()

    async def close(self) -> None:
        """Stop. Committed records stay readable."""
        holder, self._holder = self._holder, None
        if holder is not None:
            self._held_up = None
            await holder.crash()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- what can be looked at ------------------------------------------------------------------------------------

    @property
    def sent(self) -> list[SentRecord]:
        """Committed sends of all topics, in order."""
        logs, scene = self._scene.logs, self._scene
        own = {scene.progress_topic, scene.dead_letter_topic, self._state_topic}
        by_input = {found.input_topic: found for found in scene.settings.addresses}
        return [
            SentRecord.from_record(record, by_input.get(record.topic))
            for record in logs.written
            if record.topic not in own
        ]

    @property
    def dead_letters(self) -> list[DeadLetterRecord]:
        """Committed dead letters, in order."""
        return [
            DeadLetterRecord.from_record(record)
            for record in self._scene.logs.records(self._scene.dead_letter_topic)
        ]

    @property
    def unfinished(self) -> list[Message]:
        """Messages that no commit counts as finished, in the order of the log: waiting, unwritten or parked."""
        holder = self._holder
        if holder is None:
            return []
        committed, counts = self._scene.progress(holder.held.lease), holder.window.attempts.counts
        finished = Watermark() if committed is None else Watermark(committed.next, committed.finished)
        again = () if committed is None else committed.again
        return [
            holder.factory.make(record, counts.get(record.offset, 0), Fence(0))
            for record in self._scene.accepted
            if record.offset in again or not finished.is_finished(record.offset)
        ]

    @property
    def delays(self) -> list[float]:
        """Waits of groups between attempts and after releases, in order, in seconds."""
        return list(self._time.delays)

    @property
    def time(self) -> float:
        """Time since the start, in seconds."""
        return self._time.now_s

    def state(self, group: Data) -> bytes | None:
        """Return the committed state of a group; None = no state."""
        record = self._scene.logs.latest(self._state_topic).get(encoded(group, "group") or b"")
        return None if record is None else record.value

    # -- within ---------------------------------------------------------------------------------------------------

    def _keep_states(self, states: Mapping[bytes, Data]) -> None:
        logs = self._scene.logs
        if states:
            logs.create(self._state_topic, 1, {"cleanup.policy": "compact"})
        for group, state in states.items():
            logs.append_record(
                self._state_topic, 0, TIMESTAMP, encoded(group, "group"), encoded(state, "state")
            )

    async def _opened(self) -> Holder:
        if self._holder is None:
            self._holder = Holder(self._scene)
            await self._holder.open()
        return self._holder

    async def _reopen(self, *, wait: bool) -> None:
        self._held_up = None
        self._holder = Holder(self._scene)
        await self._holder.open()
        await self._run(wait=wait)

    async def _release_commits(self) -> None:
        if self._held_up is not None and self._holder is not None:
            self._held_up = None
            self._holder.producer.resume()
            await self._holder.writer.persisted()

    async def _run(self, *, wait: bool = True, until: float | None = None) -> None:
        counts = (await self._opened()).dispatcher.counts
        released = counts["released"]
        await self._settle()
        while wait and counts["released"] - released < RELEASES_MAX:
            due = self._time.next_at
            if due is None or (until is not None and due > until):
                return
            self._time.pass_until(due)
            await self._settle()

    async def _settle(self) -> None:
        """Wait until no work continues, and write."""
        calm = turns = 0
        while calm < CALM:
            holder = await self._opened()  # another task may call take_over meanwhile
            await asyncio.sleep(0 if turns < CALM or not holder.busy else POLL_S)
            turns += 1
            if holder.dispatcher.refused is not None:
                raise holder.dispatcher.refused
            if holder.broken:
                raise RuntimeError("the consumer failed: its log (logger ringfence.consumer) has the error")
            calm = 0 if holder.busy else calm + 1
            if calm == CALM - 1 and self._held_up is None:
                with contextlib.suppress(LostError):
                    await holder.writer.persisted()

    def _recorded(self) -> Handler:
        handler = self._handler

        async def watched(result: Awaitable[Any], run: HandlerRun) -> Any:
            try:
                return await result
            except BaseException as error:
                run.error = error
                raise
            finally:
                self._ended_runs += 1

        def handle(argument: Any) -> Any:
            run = HandlerRun(list(argument) if isinstance(argument, list) else [argument])
            self.runs.append(run)
            try:
                result = handler(argument)
            except BaseException as error:
                run.error = error
                self._ended_runs += 1
                raise
            if inspect.isawaitable(result):
                return watched(result, run)
            self._ended_runs += 1
            return result

        async def handle_async(argument: Any) -> Any:
            return await handle(argument)

        return handle_async if is_async(handler) else handle
