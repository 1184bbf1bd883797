"""Double of aiokafka's consumer as a member of a group, in the order of its coordinator: revoked, joined, assigned, while heartbeats continue."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from tests.simulator.doubles.reader import AGAIN_S, SimulatedReader
from tests.simulator.kafka.groups import Joined

HEARTBEAT_S: Final = 1.0
"""The product's is 0.3 s; the session is shorter here too."""
_CODES: Final = {
    "ok": 0,
    "rebalancing": RebalanceInProgressError.errno,
    "unknown": UnknownMemberIdError.errno,
    "old": IllegalGenerationError.errno,
}


class _Coordinator:
    """Attributes of the member that the product reads."""

    def __init__(self, member: "SimulatedMember", group_id: str) -> None:
        self._member = member
        self.group_id = group_id
        self.generation = -1
        self.member_id = ""

    async def _send_req(self, _request: Any) -> Any:
        return SimpleNamespace(error_code=_CODES[await self._member.ask(self._member.group.confirm)])

    def coordinator_dead(self) -> None:
        """Do nothing: the coordinator is asked again."""


class SimulatedMember(SimulatedReader):
    """aiokafka's AIOKafkaConsumer with a group."""

    def __init__(self, *, group_id: str, partition_assignment_strategy: list[Any], **options: Any) -> None:
        super().__init__(**options)
        self._assignor = partition_assignment_strategy[0]
        self._coordinator = _Coordinator(self, group_id)
        self._topics: list[str] = []
        self._listener: Any = None
        self.joining = False
        self._rejoin = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def _failed(self, tp: TopicPartition, error: Exception) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            self._process.learned.append((tp.partition, self._process.loops.now))

    def subscribe(self, topics: Iterable[str], listener: Any) -> None:
        self._topics, self._listener = list(topics), listener

    async def start(self) -> None:
        await super().start()
        self._settled.clear()
        self._tasks = [asyncio.create_task(self._coordinate()), asyncio.create_task(self._beat())]
        await self._settled.wait()

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        member, self._coordinator.generation = self._coordinator.member_id, -1
        if member:
            with contextlib.suppress(KafkaError):
                await self._network.call(self.group.leave, member)
        await super().stop()

    @property
    def group(self) -> Any:
        return self._cluster.group

    async def ask(self, question: Callable[[str, int], str]) -> str:
        known = self._coordinator
        return str(await self._network.call(question, known.member_id, known.generation))

    @property
    def generation(self) -> int:
        return self._coordinator.generation

    async def _coordinate(self) -> None:
        while True:
            self._settled.clear()
            await self._listener.on_partitions_revoked(set(self._positions))
            self.joining = True
            self._process.rights.join()
            joined = await self._join()
            self._rejoin.clear()
            self._coordinator.generation, self._coordinator.member_id = joined.generation, joined.member
            self.assign(TopicPartition(*item) for item in sorted(joined.assigned))
            self.joining = False
            self._settled.set()
            self._came.set()
            await self._listener.on_partitions_assigned(set(self._positions))
            await self._rejoin.wait()

    async def _join(self) -> Joined:
        while True:
            said = self._assignor.metadata(self._topics)
            try:
                joined: Joined = await self._network.join(
                    self.group.join, self._coordinator.member_id or None, self._network.name, said
                )
            except KafkaError:
                await asyncio.sleep(AGAIN_S)
            else:
                return joined

    async def _beat(self) -> None:
        known = self._coordinator
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if known.generation < 0 or self._rejoin.is_set() or not self._settled.is_set():
                continue
            asked = known.generation
            try:
                answer = await self.ask(self.group.heartbeat)
            except KafkaError:
                continue
            if answer == "ok" or asked != known.generation:
                continue
            if answer == "unknown":
                known.member_id = ""
            if answer != "rebalancing":
                known.generation = -1
            self._rejoin.set()
