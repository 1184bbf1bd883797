"""How a group-ordered consumer runs."""

import math
import os
import socket
import uuid
from dataclasses import dataclass, field
from typing import Final, Literal

from ringfence_client.handlers.backoff import RETRY_FIRST_S, RETRY_JITTER, DelayOptions
from ringfence_client.handlers.rejected_errors import check_rejected_errors
from ringfence_client.handlers.retries import RetryPolicy, fitting_policy

LEASE_TIMEOUT_MIN: Final = 3.0
LEASE_IDLE_MIN: Final = 0.2
CONCURRENCY_MAX: Final = 10_000
"""Each handler costs memory before it has a message: more is a typing error, and more consumers do more."""
PREFETCH_MAX: Final = 10_000
"""As many as are kept of a partition."""
RETRY_DELAY_MIN: Final = 0.001
MEMORY_MIN: Final = 16 * 2**20
"""Less would be used up by one fetch."""
_SECONDS: Final = (
    "retry_time", "retry_delay", "retry_max", "handler_timeout", "ack_interval", "drain_timeout", "lease_timeout", "lease_idle", "session_timeout",
)  # fmt: skip


def _name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """All have defaults that a first trial can keep.

    Attributes:
        concurrency: Handlers that run at once, each for another group.
        prefetch: Messages of its group that a handler holds; more saves little and makes groups change hands later.
        batch: The handler is called with a list of up to so many messages of one group; 0 = with one message.
        max_attempts: A message goes to the dead letters after so many failed ones (None = 5) …
        retry_time: … and not before so many seconds since the first. None = 600 if ``max_attempts`` is None too, else 0, because a given
        number of attempts is meant exactly.
        retry_delay: Seconds before the second attempt.
        retry_multiplier: Growth of each delay. None = it follows from ``max_attempts`` and ``retry_time``, or is 2.
        retry_max: Longest delay, in seconds. None = 60, or no limit where the growth follows. With one of the last two, and without
            ``max_attempts``, the number of attempts follows from ``retry_time``.
        retry_jitter: Fraction, from 0 to 1, by which a delay is longer or shorter at random.
        reject_on: Classes of exceptions with which a message goes to the dead letters at once.
        breaker: Whether to slow down, and give nothing up, while nearly everything fails.
        on_dead_letter: ``flow``: the group goes on behind a dead letter. ``park``: it waits until that is redriven, dropped or
            skipped.
        handler_timeout: Seconds after which a handler's run is ended, as a failed attempt; 0 = never. A thread cannot be ended:
            its group waits for it.
        ack_interval: Seconds between writes of the progress. Messages that are finished and not written when a process dies are handled
        again.
        ack_count: Acknowledgements after which progress is written before that.
        drain_timeout: Seconds that handlers get to end when the partition goes to another consumer.
        lease_timeout: Seconds after which the lease of a holder that says nothing more is taken from it.
        lease_idle: The same where nothing that it was delivered is unacknowledged.
        records_max: Records of a partition that are kept in memory.
        memory_max: Bytes of messages in memory, of all partitions together: values, keys, headers, overhead, and fetched messages that are
        not taken yet. The process needs some 100 MiB beside that.
        session_timeout: Seconds after which the group assigns a dead consumer's partitions to others.
        start: Start position of a new consumer group: the ``earliest`` message, or the next one to come (``latest``). A group that has
            consumed before continues where it is.
        name: Name of this consumer, for others to see.
    """

    concurrency: int = 10
    prefetch: int = 1
    batch: int = 0
    max_attempts: int | None = None
    retry_time: float | None = None
    retry_delay: float = RETRY_FIRST_S
    retry_multiplier: float | None = None
    retry_max: float | None = None
    retry_jitter: float = RETRY_JITTER
    reject_on: tuple[type[Exception], ...] = ()
    breaker: bool = True
    handler_timeout: float = 0.0
    on_dead_letter: Literal["flow", "park"] = "flow"
    ack_interval: float = 0.1
    ack_count: int = 5_000
    drain_timeout: float = 30.0
    lease_timeout: float = 10.0
    lease_idle: float = 2.0
    records_max: int = 10_000
    memory_max: int = 512 * 2**20
    session_timeout: float = 10.0
    start: Literal["earliest", "latest"] = "earliest"
    name: str = field(default_factory=_name)

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_finite()
        self._check_counts()
        for key in ("ack_interval", "drain_timeout", "session_timeout", "retry_delay"):
            if getattr(self, key) <= 0:
                raise ValueError(f"{key} = {getattr(self, key)}: more than 0 seconds")
        if self.retry_delay < RETRY_DELAY_MIN:
            raise ValueError(f"retry_delay = {self.retry_delay}: {RETRY_DELAY_MIN} seconds or more")
        if self.lease_timeout < LEASE_TIMEOUT_MIN:
            raise ValueError(
                f"lease_timeout = {self.lease_timeout}: {LEASE_TIMEOUT_MIN} seconds or more, because a "
                "consumer renews its lease once a second"
            )
        if not LEASE_IDLE_MIN <= self.lease_idle <= self.lease_timeout:
            raise ValueError(
                f"lease_idle = {self.lease_idle}: from {LEASE_IDLE_MIN} seconds to lease_timeout = {self.lease_timeout}"
            )

        self._check_retries()
        check_rejected_errors(self.reject_on)

    def _check_counts(self) -> None:
        for key, least, most in (
            ("concurrency", 1, CONCURRENCY_MAX),
            ("prefetch", 1, PREFETCH_MAX),
            ("batch", 0, PREFETCH_MAX),
        ):
            if not least <= getattr(self, key) <= most:
                raise ValueError(f"{key} = {getattr(self, key)}: {least} to {most:,}")
        for key in ("max_attempts", "ack_count", "records_max"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ValueError(f"{key} = {value}: 1 or more")
        for key in ("retry_time", "handler_timeout"):
            value = getattr(self, key)
            if value is not None and value < 0:
                raise ValueError(f"{key} = {value}: 0 seconds or more")
        if self.memory_max < MEMORY_MIN:
            raise ValueError(f"memory_max = {self.memory_max}: {MEMORY_MIN:,} bytes or more")

    def _check_retries(self) -> None:
        if self.retry_multiplier is not None and not 1 <= self.retry_multiplier < math.inf:
            raise ValueError(
                f"retry_multiplier = {self.retry_multiplier}: a finite number, 1 or more, because delays do not shrink"
            )
        if not 0 <= self.retry_jitter <= 1:
            raise ValueError(f"retry_jitter = {self.retry_jitter}: a fraction from 0 to 1")
        self._fitting_policy()

    def _check_choices(self) -> None:
        if self.on_dead_letter not in {"flow", "park"}:
            raise ValueError(f"on_dead_letter = {self.on_dead_letter!r}: flow, or park")
        if self.start not in {"earliest", "latest"}:
            raise ValueError(f"start = {self.start!r}: earliest, or latest")

    def _check_finite(self) -> None:
        for key in _SECONDS:
            value = getattr(self, key)
            if value is not None and not math.isfinite(value):
                raise ValueError(
                    f"{key} = {value}: a finite number{'' if key == 'retry_multiplier' else ' of seconds'}"
                )

    @property
    def held_max(self) -> int:
        """Messages of its group that a handler holds."""
        return max(self.prefetch, self.batch)

    @property
    def policy(self) -> RetryPolicy:
        """When a message is given up."""
        return self._fitting_policy()

    def _fitting_policy(self) -> RetryPolicy:
        delays = DelayOptions(self.retry_delay, self.retry_multiplier, self.retry_max, self.retry_jitter)
        return fitting_policy(self.max_attempts, self.retry_time, delays)
