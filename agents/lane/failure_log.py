"""Log of a lane's failures: repeated ones once, unforeseen ones with a trace."""

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
"""A rebalance that takes longer than this to confirm an assignment is worth a warning."""
_REOPENS: Final = (TopicChangedError, PartitionsChangedError, LimitsAgreedError, FolderUsableError)
"""Nothing failed: the lane opens again because something may be used now, or has changed."""
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
"""Failures of a cluster or a disk; any other failure shows its trace once."""


class Failures:
    """Failures of one lane."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._name = opening.name
        self._reported: type[BaseException] = FencedError
        """Type of the failure that was logged with its trace last; a fence never is."""
        self._warn_at: float | None = None
        """When waiting for the group becomes unusual; None = it does not wait."""

    def reason(self, error: BaseException) -> str:
        """Return the text of a failure: one text for each way to repair it, wherever it is found."""
        if isinstance(error, (TopicMissingError, ChangelogRecreatedError, *_REOPENS)):
            return str(error)
        return denied(self._opening.group_id, self._opening.address, error) or named(error)

    def reopens(self, error: BaseException) -> bool:
        """Whether the lane only opens again, and nothing failed."""
        return isinstance(error, _REOPENS)

    def say(self, error: BaseException, delay: float, attempt: int) -> None:
        """Something failed ``attempt`` times in a row; it is tried again after ``delay`` seconds."""
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
        """Once an assignment, as it is part of every rebalance; a warning when it lasts."""
        now = time.monotonic()
        if self._warn_at is None:
            log.info("lane %s waits: %s", self._name, error)
        elif now >= self._warn_at:
            log.warning("lane %s still waits: %s", self._name, error)
        else:
            return
        self._warn_at = now + WAIT_UNUSUAL_S

    def waited(self) -> None:
        """Note that it does not wait for the group any more, or waits for another assignment."""
        self._warn_at = None

    def succeeded(self) -> None:
        """Note a committed transaction."""
        self._reported = FencedError
