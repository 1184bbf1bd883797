"""Log of a lane's failures. Repeated failures are logged once, unexpected ones with a traceback."""

import logging
import time
from typing import Final

from aiokafka.errors import KafkaError

from agents.lane.cursor import ClusterWentBackError, TopicRecreatedError
from agents.lane.errors import (
    ChangelogRecreatedError,
    LimitsAgreedError,
    PartitionsChangedError,
    TopicChangedError,
    TopicMissingError,
)
from agents.lane.open import Opening
from agents.lane.state_folder import FolderUsableError
from agents.topic_checks.topics import denied
from ringfence_kafka.errors import RingfenceError, named
from ringfence_kafka.ownership.partition_state import NotOwnerError
from ringfence_kafka.producer.transactional import FencedError
from ringfence_kafka.readers.log_reader import LogStalledError
from tables.rocksdb.errors import DamagedStoreError

log: Final = logging.getLogger("ringfence.lane")

WAIT_UNUSUAL_S: Final = 10.0
"""Time to wait for a confirmed assignment before a warning is logged, in seconds."""
_REOPENS: Final = (TopicChangedError, PartitionsChangedError, LimitsAgreedError, FolderUsableError)
"""Not failures: the lane reopens to use something that is available now, or to apply a change."""
_EXPECTED: Final = (
    *_REOPENS,
    TopicRecreatedError,
    ClusterWentBackError,
    KafkaError,
    OSError,
    TimeoutError,
    ChangelogRecreatedError,
    TopicMissingError,
    LogStalledError,
    DamagedStoreError,
    RingfenceError,
)
"""Failures of a cluster or a disk. Any other failure is logged with its traceback once."""


class Failures:
    """Failures of one lane."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._name = opening.name
        self._reported: type[BaseException] = FencedError
        """Type of the failure whose traceback was logged last. FencedError is never logged with a traceback."""
        self._warn_at: float | None = None
        """Monotonic time from which waiting for the group is logged as a warning; None = the lane does not wait."""

    def reason(self, error: BaseException) -> str:
        """Return the text of a failure. Failures with the same remedy have the same text."""
        if isinstance(error, (TopicMissingError, ChangelogRecreatedError, *_REOPENS)):
            return str(error)
        return denied(self._opening.group_id, self._opening.address, error) or named(error)

    def reopens(self, error: BaseException) -> bool:
        """Return whether the lane only reopens and nothing failed."""
        return isinstance(error, _REOPENS)

    def say(self, error: BaseException, delay: float, attempt: int) -> None:
        """Log the ``attempt``-th failure in a row. ``delay``: seconds until the next attempt."""
        if isinstance(error, FencedError):
            log.warning("lane %s fenced: %s; reopening in %.1f s", self._name, error, delay)
            return
        if isinstance(error, NotOwnerError):
            self._say_waits(error)
            return
        if isinstance(error, _REOPENS):
            log.info("lane %s reopens in %.1f s: %s", self._name, delay, error)
            return
        reason = self.reason(error)
        log.warning("lane %s retrying in %.1f s (attempt %d): %s", self._name, delay, attempt, reason)
        if not isinstance(error, (*_EXPECTED, self._reported)):
            self._reported = type(error)
            log.error(
                "lane %s: internal error, please report it; the batch is kept and retried",
                self._name,
                exc_info=error,
            )

    def _say_waits(self, error: NotOwnerError) -> None:
        """Log the wait once for each assignment, because every rebalance has one. A long wait is a warning."""
        now = time.monotonic()
        if self._warn_at is None:
            log.info("lane %s waits: %s", self._name, error)
        elif now >= self._warn_at:
            log.warning("lane %s still waits: %s", self._name, error)
        else:
            return
        self._warn_at = now + WAIT_UNUSUAL_S

    def waited(self) -> None:
        """Record that the lane no longer waits for the group, or waits for another assignment."""
        self._warn_at = None

    def succeeded(self) -> None:
        """Record a committed transaction: a later failure is logged with its traceback again."""
        self._reported = FencedError
