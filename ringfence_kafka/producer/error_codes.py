"""Error codes of brokers in the responses to a transaction's requests."""

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
"""Stands for a missing response, in place of an error code."""
_FENCED: Final = {47, 90}
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""
_MOMENTARY: Final = {13, 51}
"""NETWORK_EXCEPTION between brokers, and CONCURRENT_TRANSACTIONS: retriable errors that aiokafka does not know as such."""
COORDINATOR_GONE: Final = {7, 15, 16}
"""REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
COORDINATOR_BUSY: Final = {3, 14} | _MOMENTARY
"""UNKNOWN_TOPIC_OR_PARTITION from a broker that does not know the topic yet, and COORDINATOR_LOAD_IN_PROGRESS."""


def is_written(code: int) -> bool:
    """Return whether a batch is written, even if the broker no longer knows its offset."""
    return code in {NoError.errno, DuplicateSequenceNumber.errno}


def is_momentary(code: int) -> bool:
    """Return whether the same request may succeed later."""
    return code in _MOMENTARY or code == NO_ANSWER or bool(for_code(code).retriable)


def is_elsewhere(code: int) -> bool:
    """Return whether the partition may have another leader by now."""
    return code == NO_ANSWER or bool(for_code(code).invalid_metadata)


def names(codes: Iterable[int]) -> str:
    """Return the names of error codes in Kafka's documentation."""
    return ", ".join(sorted("no answer" if code == NO_ANSWER else for_code(code).__name__ for code in codes))


def error(code: int, *, topic: str, group_id: str, transactional_id: str) -> Exception:
    """Return the error of a code. An authorization error names the topic, group or transactional ID."""
    kind: type[Exception] = ProducerFenced if code in _FENCED else for_code(code)
    named: dict[type[Exception], str] = {
        TopicAuthorizationFailedError: topic,
        GroupAuthorizationFailedError: group_id,
        TransactionalIdAuthorizationFailed: transactional_id,
    }
    if kind in named:
        return kind(named[kind])
    return UnknownError(f"error code {code}") if kind is UnknownError else kind()
