"""Transactions with three requests, on brokers with KIP-890 (``transaction.version`` 2): each write adds its own partition.

aiokafka needs five requests and one more round trip. This module uses aiokafka's connections and metadata with its own requests, because
aiokafka lacks the necessary versions.

Each transaction has its own epoch: the coordinator raises the epoch at every end, including its own aborts. Late requests of an earlier
transaction or holder therefore cannot affect a later one. The fence works as before: initialising the transactional ID raises the epoch.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, NoReturn

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    NoError,
    ProducerClosed,
)

from ringfence_kafka.aiokafka_patches import internals, producer_internals
from ringfence_kafka.process import failpoints
from ringfence_kafka.process.failpoints import reach
from ringfence_kafka.producer import error_codes, transaction_v2_requests
from ringfence_kafka.producer.error_codes import COORDINATOR_BUSY, COORDINATOR_GONE, NO_ANSWER
from ringfence_kafka.producer.marker_delay import MarkerDelay
from ringfence_kafka.producer.outgoing import (
    OF_TOPICS,
    Outgoing,
    name_topics,
    refusal,
    require_partition,
    wait_for_all,
)
from ringfence_kafka.producer.transaction_v2_requests import Place, Producer
from ringfence_kafka.protocol.flexible_requests import Question

log: Final = logging.getLogger("ringfence.kafka")

AGAIN_FIRST_S: Final = 0.005
"""First delay before a retriable request is repeated, in seconds: mostly the markers of the last transaction are still being written."""
USUAL_ATTEMPTS: Final = 6
"""Number of attempts, which take a tenth of a second, after which the cause is logged."""
SAY_S: Final = 5.0
"""Minimum time between two log lines about repeated requests, in seconds."""


class TransactionV2:
    """Transactions of one producer, one at a time."""

    def __init__(self, producer: AIOKafkaProducer, transactional_id: str, lane: str) -> None:
        """Use an initialised ``producer``, which writes nothing itself. ``lane``: name of its owner, for fail points."""
        self._producer = producer
        self._id = transactional_id
        self._lane = lane
        self._who = Producer(*producer_internals.identity(producer))
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()
        """Partitions in the current transaction."""
        self._back_off_s = producer_internals.retry_backoff_s(producer)
        self._say_at = 0.0
        self._unanswered: set[int] = set()
        """API keys of requests whose last attempt had no response."""
        self._written = self._committing = False
        self._begun = False
        """Whether the first write of the current transaction was answered."""
        self._delay = MarkerDelay()
        self._ended_at = -math.inf
        """Monotonic time at which the last transaction ended."""

    async def begin_transaction(self) -> None:
        """Begin the next transaction. This needs no request, because the first write begins it."""
        self._added.clear()
        self._begun = False
        self._written = self._committing = False

    async def write(
        self, batches: Sequence[Outgoing], offsets: Mapping[TopicPartition, int], group_id: str
    ) -> list[int]:
        """Write records; see :meth:`ringfence_kafka.producer.transaction_v1.TransactionV1.write`."""
        for batch in batches:
            if self._leader(batch) is None:
                await self._look_for(batch)
        left = self._ended_at + self._delay.seconds - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        self._written = bool(batches or offsets)
        committed = {(tp.topic, tp.partition): offset for tp, offset in offsets.items()}
        if not committed:
            return await self._produce_all(batches)
        group_node = await self._coordinator(CoordinationType.GROUP, group_id)
        if {self._leader(batch) for batch in batches} == {group_node}:
            # Both use one connection, whose broker processes the second after the first. Two requests that add themselves to a
            # transaction at the same time would disturb each other.
            return await self._produce_all(
                batches, self._commit_offsets(committed, group_id, ConnectionGroup.DEFAULT)
            )
        bases = await self._produce_all(batches)
        await self._commit_offsets(committed, group_id, ConnectionGroup.COORDINATION)
        return bases

    async def commit(self) -> None:
        """Commit the transaction. The request is repeated until it is answered; until then the outcome is unknown."""
        self._committing = True
        await self._end(commit=True)

    async def abort(self) -> None:
        """Abort the transaction, so that readers skip its records. Does nothing if the transaction may be committed already."""
        if not self._committing:
            await self._end(commit=False)

    async def _produce_all(
        self, batches: Sequence[Outgoing], *beside: Coroutine[Any, Any, None]
    ) -> list[int]:
        also = [*beside, self._sent(batches)] if failpoints.any_installed() else beside
        if not also:
            return await self._produce(batches)
        bases, *_ = await wait_for_all([self._produce(batches), *also])
        return list(bases)

    async def _look_for(self, batch: Outgoing) -> None:
        await require_partition(self._producer, batch.topic, batch.partition, wait=True)
        await internals.await_topic(self._producer.client, batch.topic)

    async def _sent(self, batches: Sequence[Outgoing]) -> None:
        for _ in batches:
            await reach("mid-send", self._lane)

    # -- writes --------------------------------------------------------------------------------------------

    async def _produce(self, batches: Sequence[Outgoing]) -> list[int]:
        """Write the batches: one at a time for each partition, all partitions at once. Return their base offsets."""
        bases = [-1] * len(batches)
        waiting: dict[Place, deque[int]] = {}
        for number, batch in enumerate(batches):
            place = batch.topic, batch.partition
            waiting.setdefault(place, deque()).append(number)
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + batch.builder.record_count()
            producer_internals.number(batch.builder, *self._who, sequence)
        attempt = 0
        while waiting:
            answers = await self._ask_leaders({place: batches[value[0]] for place, value in waiting.items()})
            refused: dict[Place, int] = {}
            again: set[int] = set()
            for place in list(waiting):
                code, base = answers.get(place, (NO_ANSWER, -1))
                if error_codes.is_written(code):
                    self._added.add(place)
                    bases[waiting[place].popleft()] = base
                    if not waiting[place]:
                        del waiting[place]
                elif error_codes.is_momentary(code):
                    again.add(code)
                else:
                    refused[place] = code
            if refused:
                self._refuse(refused, batches)
            if again:
                attempt += 1
                if attempt >= USUAL_ATTEMPTS:
                    self._say(
                        f"{error_codes.names(again)} of {', '.join(f'{topic}/{one}' for topic, one in waiting)}"
                    )
                await self._wait(attempt, metadata=any(error_codes.is_elsewhere(number) for number in again))
        return bases

    async def _ask_leaders(self, heads: Mapping[Place, Outgoing]) -> dict[Place, tuple[int, int]]:
        """Return error code and base offset by partition; partitions without a known leader or without a response are absent.

        Brokers are asked one at a time until all have added their partitions: the coordinator refuses one of two that do so at once.
        """
        by_leader: dict[int, dict[Place, bytes]] = {}
        for place, head in heads.items():
            leader = self._leader(head)
            if leader is not None:
                by_leader.setdefault(leader, {})[place] = producer_internals.encode(head.builder)
        if len(by_leader) > 1 and self._added.issuperset(heads):
            answers = await wait_for_all([self._ask_leader(*item) for item in by_leader.items()])
        else:
            answers = [await self._ask_leader(*item) for item in by_leader.items()]
        return {place: found for answer in answers for place, found in answer.items()}

    async def _ask_leader(self, node: int, data: Mapping[Place, bytes]) -> dict[Place, tuple[int, int]]:
        timeout_ms = producer_internals.request_timeout_ms(self._producer)
        began = time.monotonic()
        found = await self._ask(
            node, transaction_v2_requests.produce(self._id, timeout_ms, data), ConnectionGroup.DEFAULT
        )
        if found and not self._begun:
            self._begun = True
            self._delay.wrote(time.monotonic() - began, began - self._ended_at)
        return found or {}

    def _leader(self, batch: Outgoing) -> int | None:
        return producer_internals.leader_of(self._producer, TopicPartition(batch.topic, batch.partition))

    def _refuse(self, refused: Mapping[Place, int], batches: Sequence[Outgoing]) -> NoReturn:
        (topic, _), code = next(iter(refused.items()))
        error = self._error(code, topic)
        topics = {name for (name, _), its_code in refused.items() if its_code == code}
        if isinstance(error, OF_TOPICS):
            raise refusal(error, topics, batches)
        name_topics(error, topics)
        raise error

    async def _commit_offsets(
        self, offsets: Mapping[Place, int], group_id: str, connection: ConnectionGroup
    ) -> None:
        question = transaction_v2_requests.commit_offsets(self._id, group_id, self._who, offsets)
        attempt = 0
        while True:
            node = await self._coordinator(CoordinationType.GROUP, group_id)
            answers = await self._ask(node, question, connection)
            codes = {NO_ANSWER} if answers is None else set(answers.values()) - {NoError.errno}
            if not codes:
                return
            for (topic, _), code in (answers or {}).items():
                if code not in COORDINATOR_BUSY | COORDINATOR_GONE | {NoError.errno}:
                    raise self._error(code, topic, group_id)
            attempt += 1
            await self._look_again(CoordinationType.GROUP, codes, attempt)

    # -- end -----------------------------------------------------------------------------------------------

    async def _end(self, *, commit: bool) -> None:
        if not self._written:
            return
        question = transaction_v2_requests.end(self._id, self._who, commit=commit)
        attempt = 0
        while True:
            node = await self._coordinator(CoordinationType.TRANSACTION, self._id)
            answer = await self._ask(node, question, ConnectionGroup.COORDINATION)
            code = NO_ANSWER if answer is None else answer.error_code
            if code == NoError.errno:
                break
            if code not in COORDINATOR_BUSY | COORDINATOR_GONE | {NO_ANSWER}:
                raise self._error(code)
            attempt += 1
            await self._look_again(CoordinationType.TRANSACTION, {code}, attempt)
        self._written = self._committing = False
        self._ended_at = time.monotonic()
        if answer.producer.id >= 0 and answer.producer != self._who:
            self._who = answer.producer
            self._sequences.clear()

    # -- requests ------------------------------------------------------------------------------------------

    async def _ask(self, node: int, question: Question, connection: ConnectionGroup) -> Any:
        """Return the response; None = there is none, and the request must be repeated."""
        try:
            answer = await self._producer.client.send(node, question, group=connection)
        except (IncompatibleBrokerVersion, ProducerClosed):
            raise
        except KafkaError as error:
            # Brokers close connections that were idle or authenticated for long when the next request arrives. One such failure is
            # normal.
            if question.API_KEY in self._unanswered or not isinstance(error, KafkaConnectionError):
                self._say(f"broker {node} does not answer ({error!r})")
            self._unanswered.add(question.API_KEY)
            return None
        self._unanswered.discard(question.API_KEY)
        return answer

    async def _coordinator(self, kind: int, key: str) -> int:
        return await producer_internals.find_coordinator(self._producer, kind, key)

    async def _look_again(self, kind: int, codes: set[int], attempt: int) -> None:
        """Wait before a coordinator is asked again, and find out whether it changed."""
        if attempt >= USUAL_ATTEMPTS:
            self._say(f"{error_codes.names(codes)} of the coordinator")
        if codes & (COORDINATOR_GONE | {NO_ANSWER}):
            producer_internals.forget_coordinator(self._producer, kind)
        await self._wait(attempt)

    def _say(self, what: str) -> None:
        """Log repeated requests, at most every :data:`SAY_S`: a broker that is down refuses at once."""
        if time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + SAY_S
            log.warning("transactional ID %s: %s, asking again", self._id, what)

    async def _wait(self, attempt: int, *, metadata: bool = False) -> None:
        if metadata:
            await self._producer.client.force_metadata_update()
        await asyncio.sleep(min(self._back_off_s, AGAIN_FIRST_S * 2 ** min(attempt - 1, 10)))

    def _error(self, code: int, topic: str = "", group_id: str = "") -> Exception:
        return error_codes.error(code, topic=topic, group_id=group_id, transactional_id=self._id)
