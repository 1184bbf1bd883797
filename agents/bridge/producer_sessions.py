"""Producer sessions of a bridge, one after the other."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final

from aiokafka.errors import KafkaError

from agents.bridge.batch_builder import BatchBuilder
from agents.bridge.flow import POLL_S, Flow
from agents.bridge.offset_commits import Committer
from agents.bridge.partitions import OUTDATED, UNLIKE, Partitions
from agents.bridge.plan import AGAIN_FIRST_S, AGAIN_MOST_S, LASTED_S
from agents.bridge.producer_session import ProducerSession, SessionEndedError
from agents.bridge.source import Read
from agents.bridge.state import SOURCE, TARGET, UNREADABLE
from agents.bridge.target import read_target
from ringfence_kafka.concurrency.timeouts import StoppingError, back_off, cancelled, set_within, unless
from ringfence_kafka.errors import RingfenceError, said
from ringfence_kafka.producer.idempotent import IdempotentProducer
from ringfence_kafka.wording import counted

log: Final = logging.getLogger("ringfence.bridge")

SETTLED_S: Final = 2.0
"""Time after which an idle producer without a failure counts as healthy, in seconds."""
REST_S: Final = 5.0
"""Interval of checks whether the target takes what it refused, in seconds."""
AGAIN_S: Final = 60.0
"""Time after which refused records are tried again without a visible change, in seconds. A new refusal ends the producer."""


class OutdatedError(RingfenceError):
    """The members or terms of the bridge are out of date: it must query them again before it forwards anything."""


class ProducerSessions:
    """Producer sessions of one connection to the source."""

    def __init__(
        self, flow: Flow, committer: Committer, partitions: Partitions, instance: str, stopping: asyncio.Event
    ) -> None:
        """Create the sessions, without a connection."""
        self.current: ProducerSession | None = None
        self._plan = flow.plan
        self._instance = instance
        self._state = flow.state
        self._flow = flow
        self._window = flow.window
        self._committer = committer
        self._partitions = partitions
        self._stopping = stopping

    async def run(self) -> None:
        """Run sessions until a stop is requested.

        Raises:
            OutdatedError: the members of the connection may have changed.
            StoppingError: a stop was requested before a session started.
        """
        attempt = 0
        while not self._stopping.is_set():
            self._require_members()
            began, fault, at_once = time.monotonic(), "", False
            try:
                await self._run_session()
                return
            except (OutdatedError, StoppingError):
                raise
            except SessionEndedError as error:
                at_once = self._flow.learn(error)
                fault = "" if at_once else str(error)
            except Exception as error:
                fault = self._state.error_text(error)
            attempt = 1 if at_once or time.monotonic() - began > LASTED_S else attempt + 1
            for number, offset in self._flow.start_over():
                self._partitions.consumer.go_on(number, offset)
            if fault:
                self._state.fail(TARGET, f"target: {fault}")
            await self._committer.commit(self._partitions.consumer)
            if not at_once:
                await set_within(self._stopping, back_off(attempt, AGAIN_FIRST_S, AGAIN_MOST_S))

    async def _run_session(self) -> None:
        """Run one session, until it fails or a stop is requested."""
        target = await unless(self._stopping, read_target(self._plan))
        bytes_max = min(target.bytes_max, target.quarantine_bytes_max or target.bytes_max)
        producer = IdempotentProducer(self._plan.target, self._instance, bytes_max)
        life = ProducerSession(self._plan.name, producer)
        try:
            await unless(self._stopping, producer.start())
            self.current, self._state.reached = life, True
            flow = self._flow
            flow.update_target(target)
            loader = BatchBuilder(self._plan, target, producer.builder, flow.records_max, flow.refused)
            looking = asyncio.create_task(self._check_target(loader))
            try:
                await self._forward(life, loader, target.partitions)
            finally:
                await cancelled(looking)
            await flow.drain(life)
            await self._committer.commit(self._partitions.consumer, last=True)
        finally:
            self.current = None
            await life.discard()

    async def _check_target(self, loader: BatchBuilder) -> None:
        """Check the target while partitions wait for it to take a record. Other partitions continue."""
        asked = time.monotonic()
        while True:
            await asyncio.sleep(REST_S)
            if not self._flow.stopped:
                continue
            try:
                loader.target = await read_target(self._plan)
            except Exception as error:
                log.debug("bridge %s: the target cannot be checked: %r", self._plan.name, error)
                continue
            waiting = list(self._flow.stopped)
            again = time.monotonic() - asked > AGAIN_S
            asked = time.monotonic() if again else asked
            self._flow.update_target(loader.target, again=again)
            for place in waiting:
                if self._window.places.get(place.partition) is place:
                    self._partitions.consumer.go_on(place.partition, place.next)

    async def _forward(self, life: ProducerSession, loader: BatchBuilder, partitions: int) -> None:
        began, flow, topic = time.monotonic(), self._flow, self._plan.target_topic
        while not self._stopping.is_set():
            life.check()
            self._require_members()
            life.moved.clear()
            if await flow.confirm() or (not self._window.busy and time.monotonic() - began > SETTLED_S):
                self._state.recover(TARGET)
            there = life.producer.partitions(topic)
            if there not in {0, partitions}:
                raise SessionEndedError(
                    f"{topic} has {counted(there, 'partition')} now, and had {partitions}"
                )
            if self._committer.due or not self._window.busy:
                await self._committer.commit(self._partitions.consumer)
            halted = self._partitions.handing_over or self._partitions.doubted or self._window.full
            wanted = {} if halted else self._wanted()
            found = await self._read(wanted) if wanted else None
            if found is not None:
                await flow.send(life, loader, wanted, found, lambda: read_target(self._plan))
            elif not wanted:
                await set_within(life.moved, POLL_S)

    def _require_members(self) -> None:
        """Check the members: while this process was suspended, others may have drained the connection and changed its members."""
        if self._partitions.refused:
            raise OutdatedError(UNLIKE)
        if self._partitions.outdated:
            raise OutdatedError(OUTDATED)
        if self._plan.share is not None and not self._state.was_never_suspended():
            raise OutdatedError("this process was suspended for a while: it checks the members again")

    def _wanted(self) -> dict[int, int]:
        """Return the position of each partition that may be read now.

        A new partition waits until its start offset is committed, so that the next process starts at the same offset.
        """
        return {
            number: at
            for number, at in self._flow.wanted().items()
            if self._committer.committed_offset(number) is not None
        }

    async def _read(self, wanted: Mapping[int, int]) -> Read | None:
        """Read new records; None if they may not be used."""
        epoch = self._partitions.epoch
        try:
            records_max = self._flow.records_at_once()
            found = await self._partitions.consumer.read(wanted, self._window.take, records_max, POLL_S)
        except (KafkaError, OSError) as error:
            self._read_again(wanted)
            self._state.fail(SOURCE, f"source: {said(error)}")
            await set_within(self._stopping, 1.0)
            return None
        self._state.recover(SOURCE)
        if epoch != self._partitions.epoch or self._partitions.doubted or self._partitions.handing_over:
            self._read_again(wanted)
            return None
        for number, missing in found.lost.items():
            topic = self._plan.source_topic
            log.warning(
                "bridge %s: %s/%d: offset %d no longer exists", self._plan.name, topic, number, missing
            )
            self._partitions.reopen(number, f"opening: offset {missing} no longer exists", missing)
        self._note_unreadable(found)
        return found

    def _read_again(self, wanted: Mapping[int, int]) -> None:
        """Read these partitions again, because their records were discarded."""
        for number in wanted:
            place = self._window.places.get(number)
            if place is not None:
                self._partitions.consumer.go_on(number, place.next)

    def _note_unreadable(self, found: Read) -> None:
        for number in found.reached:
            self._state.go_on(UNREADABLE, number)
        for number, why in found.unreadable.items():
            at = self._window.places[number].next
            self._state.stop(
                UNREADABLE,
                number,
                f"stopped: {self._plan.source_topic}/{number} cannot be read from {at} on: {why}",
            )
