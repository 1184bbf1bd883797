"""The bench for tests that run in an event loop."""

import asyncio
import contextlib
import dataclasses
import inspect
from collections.abc import Awaitable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from ringfence_client.consumer.lost_groups import Lost
from ringfence_client.handlers.effects import Data, encoded
from ringfence_client.handlers.handler import Handler, check_handler
from ringfence_client.handlers.message import Fence, Message
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.lease import LostError
from ringfence_client.testing.holder import Holder, Scene
from ringfence_client.testing.memory_cluster import MemoryLogs
from ringfence_client.testing.messages import ADDRESS, TIMESTAMP, accepted_record
from ringfence_client.testing.results import DeadLetterRecord, HandlerRun, SentRecord
from ringfence_client.testing.virtual_time import VirtualTime
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.protocol import wire_names

CALM: Final = 20
"""Turns of the event loop without anything to do, after which the bench is settled."""
POLL_S: Final = 0.001
RELEASES_MAX: Final = 10
"""Messages that are released so often by one call wait for the next call: their handlers may do so for ever."""
OPTIONS: Final = ConsumerOptions(concurrency=1, retry_jitter=0)
"""Default options of a bench: runs and delays are the same each time."""


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
            handler: As a consumer has it: a coroutine function, or a plain one, which runs in threads.
            options: As a consumer has them. None = one handler at a time, and delays without chance. The breaker is always off: it
                judges the services that handlers depend on.
            lost: The function of that name in the handler's module.
            addresses: Names of addresses. A send to the input topic of one, which has its name, carries a duplicate ID.
            topics: How many partitions topics have. All others exist and have one; a topic with 0 does not exist.
            states: The states of groups at the start.
            settings: A configuration, for addresses with settings of their own, in place of ``addresses``.
            address: Name of the address that is consumed.
            consumer_group: Name of the consumer group.

        Raises:
            HandlerError: the handler cannot be called with a message, or nothing of it would run.
            ConfigurationError: the configuration has no such address.
        """
        check_handler(handler, getattr(handler, "__qualname__", repr(handler)))
        if settings is None:
            names = dict.fromkeys([address, *addresses])
            settings = Settings.model_validate({"addresses": [{"name": name} for name in names]})
        self.runs: list[HandlerRun] = []
        self._time = VirtualTime()
        self._handler = handler
        self._held_up: int | None = None
        """Transactions wait when more runs have ended than this; None = they do not."""
        self._ended_runs = 0
        self._scene = Scene(
            handler=self._recorded(),
            options=dataclasses.replace(options or OPTIONS, breaker=False),
            lost=lost,
            settings=settings,
            address=settings.configured(address),
            group=consumer_group,
            logs=MemoryLogs(topics or {}),
            time=self._time,
            holds=lambda: self._held_up is not None and self._ended_runs > self._held_up,
        )
        self._holder: Holder | None = None
        self._state_topic = wire_names.state_topic(
            settings.app.id, consumer_group, self._scene.address.accepted_topic
        )
        self._keep_states(states or {})

    # -- what happens ---------------------------------------------------------------------------------------------

    async def deliver(self, *messages: Message, wait: bool = True, commit: bool = True) -> None:
        """Publish messages, and run the handler until nothing is left to do.

        Args:
            messages: Their order is that of the log.
            wait: Let the delays between attempts pass. Without it, failed messages wait for :meth:`pass_time`, or for the next call.
            commit: Write the transactions. Without it, everything that is acknowledged from now on waits for :meth:`commit`, or for the next
                call with it, and is lost by :meth:`take_over` and :meth:`crash`.

        Raises:
            HandlerError: the handler returned a generator, of which nothing has run.
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
        """Let time pass, and run the handler where delays are over."""
        await self._opened()
        until = self._time.now_s + seconds
        await self._run(until=until)
        self._time.pass_until(until)
        await self._settle()

    async def commit(self) -> None:
        """Write what ``deliver(…, commit=False)`` left unwritten."""
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
        """Have another process take the partition from this one: what is not written comes again there, and ``lost(groups)`` is called here."""
        holder = await self._opened()
        await holder.lose()
        await self._reopen(wait=wait)

    async def crash(self, *, wait: bool = True) -> None:
        """Kill the process: what is not written comes again in the next one. Nobody calls ``lost(groups)``.

        The memory of a process ends with it; a test empties what its module keeps.
        """
        holder = await self._opened()
        await holder.crash()
        await self._reopen(wait=wait)

    async def crash_before_commit(self, *messages: Message) -> None:
        """Deliver messages, and kill the process when the handler has ended and nothing is written. The next process handles them again."""
        await self.deliver(*messages, commit=False, wait=False)
        await self.crash()

    async def redrive(self, letter: DeadLetterRecord | None = None) -> None:
        """Have the message of a dead letter done once more, as ``ringfence dlq redrive`` does; None = of the last one.

        Raises:
            ValueError: the dead letter does not exist, or its message was done again already.
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
        """End. Committed records can still be looked at."""
        holder, self._holder = self._holder, None
        if holder is not None:
            self._held_up = None
            await holder.crash()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- what can be looked at ------------------------------------------------------------------------------------

    @property
    def sent(self) -> list[SentRecord]:
        """Committed sends of all topics, in order."""
        logs, scene = self._scene.logs, self._scene
        own = {scene.progress_topic, scene.dead_letter_topic, self._state_topic}
        by_input = {found.input_topic: found for found in scene.settings.addresses}
        return [
            SentRecord.of(record, by_input.get(record.topic))
            for record in logs.written
            if record.topic not in own
        ]

    @property
    def dead_letters(self) -> list[DeadLetterRecord]:
        """Committed dead letters, in order."""
        return [DeadLetterRecord.of(record) for record in self._scene.logs.of(self._scene.dead_letter_topic)]

    @property
    def unfinished(self) -> list[Message]:
        """Messages that no commit calls finished, in the order of the log: they wait, or are not written, or are parked."""
        window = None if self._holder is None else self._holder.window
        factory = None if self._holder is None else self._holder.factory
        if window is None or factory is None:
            return []
        return [
            factory.make(record, window.attempts.counts.get(record.offset, 0), Fence(0))
            for record in self._scene.accepted
            if self._is_unfinished(record.offset)
        ]

    @property
    def delays(self) -> list[float]:
        """Seconds that groups waited between attempts, and after releases, in order."""
        return list(self._time.delays)

    @property
    def time(self) -> float:
        """Seconds that have passed since the beginning."""
        return self._time.now_s

    def state(self, group: Data) -> bytes | None:
        """Return the committed state of a group; None = it has none."""
        record = self._scene.logs.latest(self._state_topic).get(encoded(group, "group") or b"")
        return None if record is None else record.value

    def _is_unfinished(self, offset: int) -> bool:
        holder = self._holder
        if holder is None:
            return False
        committed = self._scene.progress(holder.held.lease)
        if committed is None:
            return True
        if offset in committed.again:
            return True
        return offset >= committed.next and not any(
            begin <= offset < end for begin, end in committed.finished
        )

    # -- within ---------------------------------------------------------------------------------------------------

    def _keep_states(self, states: Mapping[bytes, Data]) -> None:
        logs = self._scene.logs
        logs.absent(self._state_topic)
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
        """Run what can run now, and what can after each delay."""
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
        """Wait until nothing goes on any more, and write."""
        calm = turns = 0
        while calm < CALM:
            holder = await self._opened()  # another task may have another process take over meanwhile
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
        """Return the handler, which notes its runs."""
        handler = self._handler
        call = getattr(handler, "__call__", handler)  # noqa: B004 - an object with an asynchronous __call__

        async def watched(result: Awaitable[Any], run: HandlerRun) -> Any:
            try:
                return await result
            except BaseException as error:
                run.error = error
                raise
            finally:
                self._ended_runs += 1

        def begun(argument: Any) -> HandlerRun:
            run = HandlerRun(list(argument) if isinstance(argument, list) else [argument])
            self.runs.append(run)
            return run

        async def handle(argument: Any) -> Any:
            return await watched(handler(argument), begun(argument))

        def handle_in_thread(argument: Any) -> Any:
            run = begun(argument)
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

        return (
            handle
            if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
            else handle_in_thread
        )
