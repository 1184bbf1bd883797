"""Double of aiokafka's producer below :class:`TransactionalProducer`; in three requests, only InitProducerId is simulated."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from aiokafka.client import CoordinationType
from aiokafka.errors import IllegalOperation

from tests.simulator.doubles.batch_builder import Builder
from tests.simulator.doubles.sender import AGAIN_S, Sender, Sent
from tests.simulator.doubles.transaction_client import ID, Metadata, send


class SimulatedProducer:
    """aiokafka's AIOKafkaProducer, as far as the product uses its internals."""

    def __init__(
        self, transactional_id: str, max_batch_size: int, transaction_timeout_ms: int = 60_000, **_: Any
    ) -> None:
        loop: Any = asyncio.get_running_loop()
        process = loop.process
        self._process = process
        self._loop = loop
        self._id = transactional_id
        self._limit = max_batch_size
        self._timeout_s = transaction_timeout_ms / 1000
        self._sent = Sender(process, transactional_id, lambda: self.client)
        self._state = "ready"
        self._opening: asyncio.Task[Any] | None = None
        self._begun_at = -1
        # Attributes that the product reads.
        self.client: Any = SimpleNamespace(
            _metadata_update=None, close=self._nothing, force_metadata_update=self._nothing, send=send
        )
        self._metadata: Any = Metadata(process.cluster.brokers)
        self._txn_manager = SimpleNamespace(
            _transaction_waiter=None, _pending_txn_offsets=[], producer_id=ID, producer_epoch=-1
        )
        self._sender = SimpleNamespace(
            sender_task=None, client=None, _retry_backoff=AGAIN_S, _coordinators={CoordinationType.TRANSACTION: 0},
            _find_coordinator=self._find, _coordinator_dead=lambda _kind: None,
        )  # fmt: skip
        self._request_timeout_ms = 0
        self._message_accumulator = SimpleNamespace(
            _batches={}, _pending_batches=[], _batch_size=max_batch_size, _compression_type=0
        )

    @staticmethod
    async def _nothing() -> None:
        """Do nothing: this is not simulated."""

    @staticmethod
    async def _find(_kind: int, _key: str) -> int:
        return 0

    async def start(self) -> None:
        self._opening = self._process.rights.fence(self._id)
        self._process.producers[self] = None
        self._txn_manager.producer_epoch = await self._sent.initialise(self._timeout_s)

    def create_batch(self) -> Builder:
        builder = Builder(self._limit, round(self._process.wall() * 1000))
        builder.by = self
        return builder

    def begins(self) -> None:
        if self._begun_at == self._loop.steps:
            return
        self._begun_at = self._loop.steps
        lanes = self._process.lanes
        self._process.rights.write(self._id, self._opening, [] if lanes is None else lanes.lanes)

    async def begin_transaction(self) -> None:
        self._require_sound()
        if self._state != "ready":
            raise IllegalOperation(self._state)
        self.begins()
        self._state = "in transaction"
        self._sent.begin()

    async def send_batch(self, builder: Builder, topic: str, *, partition: int) -> "asyncio.Future[Sent]":
        self._require_in_transaction()
        return self._sent.write((topic, partition), builder)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], _group_id: str) -> None:
        self._require_in_transaction()
        await self._sent.commit_offsets(
            {(tp.topic, tp.partition): offset.offset for tp, offset in offsets.items()}
        )

    async def commit_transaction(self) -> None:
        await self._finish(commit=True)

    async def abort_transaction(self) -> None:
        await self._finish(commit=False)

    async def stop(self) -> None:
        self._state = "stopped"
        self._process.producers.pop(self, None)
        self._sent.stop()
        await self.client.close()

    async def _finish(self, *, commit: bool) -> None:
        self._require_in_transaction()
        self._state = "ending"
        await self._sent.end(commit=commit)
        self._state = "ready"

    def _require_sound(self) -> None:
        failed = self._sent.failed
        if failed is not None:
            raise type(failed)(self._id)

    def _require_in_transaction(self) -> None:
        self._require_sound()
        if self._state != "in transaction":
            raise IllegalOperation(self._state)
