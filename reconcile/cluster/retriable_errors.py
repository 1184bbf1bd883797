"""Retries questions while partition leaders and coordinators move."""

import contextlib
import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

Answer = TypeVar("Answer")

LIMIT_S: Final = 30.0  # exceeds a broker's session, and the start of a restarted broker
PAUSE_S: Final = 0.2
LEADERS_LIMIT_S: Final = 5.0
MOVING: Final = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        # errors of the client: a partition has no leader now; the connection to a leader is lost
        KafkaError._NOENT,
        KafkaError._TRANSPORT,
    }
)


def asked(admin: AdminClient, question: Callable[[], Answer], limit_s: float = LIMIT_S) -> Answer:
    """Ask a question again for up to ``limit_s`` seconds while it fails with an error of :data:`MOVING`.

    Raises:
        KafkaException: Another error, or the last error when the time is over.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return question()
        except KafkaException as error:
            if error.args[0].code() not in MOVING or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_S)
        # The client asks former leaders until it refreshes its metadata.
        with contextlib.suppress(KafkaException):
            admin.list_topics(timeout=LEADERS_LIMIT_S)
