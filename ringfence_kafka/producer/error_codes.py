"""Error codes of brokers in the answers to a transaction's requests."""

from collections.abc import Iterable
from typing import Final

from aiokafka.errors import (
    DuplicateSequenceNumber,
    GroupAuthorizationFailedError,
    NoError,
    ProducerFenced,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnknownError,
    for_code,
)

NO_ANSWER: Final = -2
"""In the place of an error code."""
_FENCED: Final = {47, 90}
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""
_MOMENTARY: Final = {13, 51}
"""NETWORK_EXCEPTION, between brokers, and CONCURRENT_TRANSACTIONS: more errors after which to ask again than aiokafka knows."""
COORDINATOR_GONE: Final = {7, 15, 16}
"""REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
COORDINATOR_BUSY: Final = {3, 14} | _MOMENTARY
"""UNKNOWN_TOPIC_OR_PARTITION, of a broker that has not heard of it yet, and COORDINATOR_LOAD_IN_PROGRESS."""


def is_written(code: int) -> bool:
    """Whether a batch is written, also where the broker no longer knows at which offset."""
    return code in {NoError.errno, DuplicateSequenceNumber.errno}


def is_momentary(code: int) -> bool:
    """Whether the same request may succeed later."""
    return code in _MOMENTARY or code == NO_ANSWER or bool(for_code(code).retriable)


def is_elsewhere(code: int) -> bool:
    """Whether the partition may have another leader by now."""
    return code == NO_ANSWER or bool(for_code(code).invalid_metadata)


def names(codes: Iterable[int]) -> str:
    """Name codes as documents do."""
    return ", ".join(sorted("no answer" if code == NO_ANSWER else for_code(code).__name__ for code in codes))


def error(code: int, *, topic: str, group_id: str, transactional_id: str) -> Exception:
    """Return the error of a code; a missing right names what it is about."""
    kind: type[Exception] = ProducerFenced if code in _FENCED else for_code(code)
    named: dict[type[Exception], str] = {
        TopicAuthorizationFailedError: topic,
        GroupAuthorizationFailedError: group_id,
        TransactionalIdAuthorizationFailed: transactional_id,
    }
    if kind in named:
        return kind(named[kind])
    return UnknownError(f"error code {code}") if kind is UnknownError else kind()
