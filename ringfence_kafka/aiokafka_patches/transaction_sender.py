"""Restricts the requests of aiokafka's transactions: only added partitions are written, and offsets and the end are sent only once.

When a coordinator refuses a partition, aiokafka forgets which partitions were still to be added, and sends the waiting records of all of
them. The markers of the previous transaction may not be written yet. In a partition of that transaction the broker then accepts such a
record, and that transaction's marker commits it. A refused transaction would become visible in part: its changelog without its messages.

aiokafka repeats an end request without a response. If the first request was only late, it arrives during the next transaction and ends it
with the part that is written by then. Late offsets replace those of the next transaction, and the group goes back. This epoch must
therefore not have another transaction. Other late requests do no such harm. Brokers recognise repeated records by their sequence numbers.
Late partitions and a late group begin an empty transaction; its time-out ends it, and at worst its holder is fenced.

Neither can happen if each transaction has its own epoch (:mod:`ringfence_kafka.producer.transaction_v2`).
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, NodeNotReadyError, ProducerClosed
from aiokafka.protocol.transaction import EndTxnRequest, TxnOffsetCommitRequest

from ringfence_kafka.concurrency.timeouts import retrieve_outcome

HARMFUL: Final = (TxnOffsetCommitRequest, EndTxnRequest)
"""Requests that do harm when they arrive late."""


def send_only_what_was_added(producer: AIOKafkaProducer) -> None:
    """Hold back batches for partitions that the coordinator has not confirmed; fail those that it will never confirm."""
    accumulator, manager = producer._message_accumulator, producer._txn_manager
    drain = accumulator.drain_by_nodes

    def drain_by_nodes(ignore_nodes: Collection[int], muted_partitions: Iterable[TopicPartition] = ()) -> Any:
        added, to_add = manager.txn_partitions, manager.partitions_to_add()
        for place in [batch for batch in accumulator._batches if batch not in added]:
            if place not in to_add:
                _fail(accumulator._batches.pop(place), _reason(manager))
        return drain(ignore_nodes, {*muted_partitions, *to_add})

    accumulator.drain_by_nodes = drain_by_nodes


def report_unanswered(producer: AIOKafkaProducer, tell: Callable[[], None]) -> None:
    """Call ``tell`` when offsets or an end have no response: the request may still arrive at any time."""
    client = producer.client
    send = client.send

    async def send_and_report(node_id: int, request: Any, **options: Any) -> Any:
        try:
            return await send(node_id, request, **options)
        except NodeNotReadyError:
            raise  # it was not sent
        except KafkaError:
            if isinstance(request, HARMFUL):
                tell()
            raise

    client.send = send_and_report


def _fail(batches: Collection[Any], reason: BaseException) -> None:
    for batch in batches:
        batch.failure(reason)
        retrieve_outcome(batch._drain_waiter)


def _reason(manager: Any) -> BaseException:
    """Return why the transaction can only be aborted, or that it has ended."""
    waiter = manager.wait_for_transaction_end()
    reason: BaseException | None = None
    if waiter is not None and waiter.done() and not waiter.cancelled():
        reason = waiter.exception()
    return reason or ProducerClosed()
