"""A simulated process that consumes."""

import asyncio
from collections.abc import Collection
from typing import Any, Final

from ringfence_client.consumer.consumer import GroupConsumer
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_kafka.errors import RingfenceError
from tests.simulator.consumers.handlers import Handling
from tests.simulator.consumers.membership import ConsumerRights
from tests.simulator.doubles.reader import SimulatedReader
from tests.simulator.loop import ProcessLoop
from tests.simulator.process import Process
from tests.simulator.sends.world import READERS

STARTED_AGAIN_S: Final = 1.0
"""Seconds until a process that ended with an error is started again, as its supervisor does."""


class Consumer(Process):
    """One consumer process over all its lives."""

    rights: ConsumerRights

    def __init__(
        self, *base: Any, options: ConsumerOptions, handling: Handling, state_cache: int = 0
    ) -> None:
        super().__init__(*base)
        self.rights = ConsumerRights(self._draining, self.cluster)
        self.learned: list[tuple[int, float]] = []
        self.consumer: GroupConsumer | None = None
        self.readers: dict[SimulatedReader, None] = {}
        self._options = options
        self.handling = handling
        self.state_cache = state_cache
        self._away_s = STARTED_AGAIN_S

    @property
    def joining(self) -> bool:
        member = None if self.consumer is None else getattr(self.consumer, "_consumer", None)
        return member is not None and bool(member.joining)

    @property
    def generation(self) -> int:
        member = None if self.consumer is None else getattr(self.consumer, "_consumer", None)
        return -1 if member is None else int(member.generation)

    @property
    def busy(self) -> bool:
        if self.consumer is None:
            return False
        claims = self.consumer.held_partitions._claims.values()
        return any(claim._doing is not None for claim in claims)

    def stop(self, away_s: float) -> None:
        if self.loop is not None and self.consumer is not None:
            self._away_s = away_s
            self.loop.call_soon(self.consumer.stop)

    def notice(self, topics: Collection[str]) -> None:
        if self.loop is not None and self.loop.alive:
            for reader in self.readers:
                reader.notice(topics)

    def _begin(self) -> None:
        self._away_s = STARTED_AGAIN_S
        several = self._options.batch > 0
        handle: Any = self.handling.handle_several if several else self.handling.handle
        self.consumer = GroupConsumer(
            self.settings, self.settings.addresses[0], READERS, handle, self._options, lost=self.handling.lost
        )
        loop: Any = asyncio.get_running_loop()
        asyncio.create_task(self._run(self.consumer, loop))  # noqa: RUF006 - the loop keeps it

    async def _run(self, consumer: GroupConsumer, loop: ProcessLoop) -> None:
        try:
            await consumer.run()
        except (RingfenceError, OSError, TimeoutError) as error:
            self._note(f"{self.name} ends: {error!r}")
        finally:
            if self.loop is loop:
                self.loops.after(0, self._ended, loop, self._away_s)

    def _note(self, text: str) -> None:
        if self.network.trace is not None:
            self.network.trace.append(f"{self.loops.now:10.4f} == {text}")

    def _gone(self, loop: ProcessLoop) -> None:
        self.handling.ended(loop, self.loops.now)
        self.consumer = None
        self.readers = {}

    def _draining(self, partition: int) -> bool:
        """Whether the process only drains this partition, because it knows that the partition is or may be another's."""
        if self.consumer is None:
            return False
        held = self.consumer.held_partitions
        drained = held.partitions.get(partition)
        return partition not in (held.assigned or ()) or (drained is not None and drained.draining)
