"""What aiokafka sends of a transaction: only what is in it, and its end once.

When a coordinator refuses a partition, aiokafka forgets which ones were still to be added, and sends what waits for all of them. Of the
transaction before, the markers may not be written yet: in a partition of that one the broker takes such a record without a question,
and that transaction's marker commits it. So a transaction that was refused would be there in part: its changelog without its messages.

An end that got no answer is asked for again. Where the first question only came late, it comes in the midst of the next transaction, and
ends that: whatever of it is written by then. So there must be none of this epoch.

Neither can happen where each transaction has an epoch of its own (:mod:`ringfence_kafka.transaction.implicit`).
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerClosed

from ringfence_kafka.transaction.outgoing import note_outcome


def send_only_what_was_added(producer: AIOKafkaProducer) -> None:
    """Batches for partitions that the coordinator has not confirmed wait; those that it never will fail."""
    accumulator, manager = producer._message_accumulator, producer._txn_manager  # noqa: SLF001
    drain = accumulator.drain_by_nodes

    def drain_by_nodes(ignore_nodes: Collection[int], muted_partitions: Iterable[TopicPartition] = ()) -> Any:
        added, to_add = manager.txn_partitions, manager.partitions_to_add()
        for place in [each for each in accumulator._batches if each not in added]:  # noqa: SLF001
            if place not in to_add:
                _fail(accumulator._batches.pop(place), _reason(manager))  # noqa: SLF001
        return drain(ignore_nodes, {*muted_partitions, *to_add})

    accumulator.drain_by_nodes = drain_by_nodes


def tell_late_ends(producer: AIOKafkaProducer, tell: Callable[[], None]) -> None:
    """Call ``tell`` when a transaction's end was asked for, perhaps in vain, and is asked for again."""
    sender, manager = producer._sender, producer._txn_manager  # noqa: SLF001
    forget = sender._coordinator_dead  # noqa: SLF001

    def coordinator_dead(kind: int) -> None:
        if manager.needs_transaction_commit() is not None:
            tell()
        forget(kind)

    sender._coordinator_dead = coordinator_dead  # noqa: SLF001


def _fail(batches: Collection[Any], reason: BaseException) -> None:
    for each in batches:
        each.failure(reason)
        note_outcome(each._drain_waiter)  # noqa: SLF001 - waited for by who adds a second batch, if anybody


def _reason(manager: Any) -> BaseException:
    """Why the transaction can only be aborted; else it has ended."""
    waiter = manager.wait_for_transaction_end()
    reason: BaseException | None = None
    if waiter is not None and waiter.done() and not waiter.cancelled():
        reason = waiter.exception()
    return reason or ProducerClosed()
