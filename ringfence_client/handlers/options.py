"""Options of a group-ordered consumer."""

import math
import os
import socket
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ringfence_client.handlers.message import Disposition
from ringfence_client.handlers.retries import (
    RETRY_FIRST_S,
    RETRY_JITTER,
    DelayOptions,
    RetryPolicy,
    fitting_policy,
)

LEASE_TIMEOUT_MIN: Final = 3.0
LEASE_IDLE_MIN: Final = 0.2
CONCURRENCY_MAX: Final = 10_000
"""Limit of handlers. Each costs memory even without a message, so a larger number is a typing error."""
PREFETCH_MAX: Final = 10_000
"""Limit of prefetched messages: the default number of records that a partition keeps."""
RETRY_DELAY_MIN: Final = 0.001
MEMORY_MIN: Final = 16 * 2**20
"""Smallest memory, in bytes. One fetch would fill less."""
_POSITIVE: Final = (math.ulp(0.0), math.inf, "more than 0 seconds")
_CHOICES: Final = {"on_dead_letter": ("flow", "park"), "start": ("earliest", "latest")}
_RANGES: Final[Mapping[str, tuple[float, float, str]]] = {
    "concurrency": (1, CONCURRENCY_MAX, f"1 to {CONCURRENCY_MAX:,}"),
    "prefetch": (1, PREFETCH_MAX, f"1 to {PREFETCH_MAX:,}"),
    "batch": (0, PREFETCH_MAX, f"0 to {PREFETCH_MAX:,}"),
    "max_attempts": (1, math.inf, "1 or more"),
    "ack_count": (1, math.inf, "1 or more"),
    "records_max": (1, math.inf, "1 or more"),
    "memory_max": (MEMORY_MIN, math.inf, f"{MEMORY_MIN:,} bytes or more"),
    "retry_time": (0, math.inf, "0 seconds or more"),
    "handler_timeout": (0, math.inf, "0 seconds or more"),
    "ack_interval": _POSITIVE,
    "drain_timeout": _POSITIVE,
    "session_timeout": _POSITIVE,
    "retry_delay": (RETRY_DELAY_MIN, math.inf, f"{RETRY_DELAY_MIN} seconds or more"),
    "lease_timeout": (
        LEASE_TIMEOUT_MIN,
        math.inf,
        f"{LEASE_TIMEOUT_MIN} seconds or more, because a consumer renews its lease once a second",
    ),
    "retry_multiplier": (1, sys.float_info.max, "a finite number, 1 or more, because delays do not shrink"),
    "retry_jitter": (0, 1, "a fraction from 0 to 1"),
}
"""Least and greatest values, and these in words."""
_SECONDS: Final = (
    "retry_time", "retry_delay", "retry_max", "handler_timeout", "ack_interval", "drain_timeout", "lease_timeout", "lease_idle", "session_timeout",
)  # fmt: skip


def _name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Options of a consumer. All defaults suit a first trial.

    Attributes:
        concurrency: Number of handlers that run at once, each for another group.
        prefetch: Messages of its group that a handler holds. More save little, and groups change hands later.
        batch: Limit of messages of one group in the list that the handler is called with; 0 = it is called with one message.
        max_attempts: Number of failed attempts before a message goes to the dead letters (None = 5).
        retry_time: Shortest time from the first failure to the dead letter, in seconds. None = 600 without ``max_attempts``, and 0 with it,
            because a given number of attempts is meant exactly.
        retry_delay: Seconds before the second attempt.
        retry_multiplier: Growth of each delay. None = derived from ``max_attempts`` and ``retry_time``, or 2.
        retry_max: Longest delay, in seconds. None = 60, or unlimited if the growth is derived. With ``retry_multiplier`` or ``retry_max``,
            and without ``max_attempts``, the number of attempts is derived from ``retry_time``.
        retry_jitter: Fraction, from 0 to 1, by which a delay varies at random.
        reject_on: Classes of exceptions that send a message to the dead letters at once.
        breaker: Whether to slow down, and dead-letter nothing, while nearly all attempts fail.
        on_dead_letter: ``flow``: the group continues behind a dead letter. ``park``: it waits until the dead letter is redriven, dropped or
            skipped.
        handler_timeout: Seconds after which a handler's run ends as a failed attempt; 0 = never. A thread cannot be ended: its group waits
            for it.
        ack_interval: Seconds between writes of the progress. After a crash, messages that finished since the last write are handled again.
        ack_count: Number of acknowledgements after which progress is written earlier.
        drain_timeout: Seconds that handlers have to end when the partition goes to another consumer.
        lease_timeout: Seconds after which a silent holder loses its lease.
        lease_idle: The same, if all delivered messages are acknowledged.
        records_max: Limit of records of a partition in memory.
        memory_max: Limit of messages in memory, of all partitions together, in bytes: values, keys, headers, overhead, and fetched messages
            that are not taken yet. The process needs some 100 MiB beside that.
        session_timeout: Seconds after which the group assigns a dead consumer's partitions to others.
        start: Start position of a new consumer group: the ``earliest`` message, or the next new one (``latest``). A group that has consumed
            before continues at its position.
        name: Name of this consumer for logs, pages and other consumers.
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
    policy: RetryPolicy = field(init=False, repr=False, compare=False)
    """Policy of retries and dead letters."""

    def __post_init__(self) -> None:
        for key, choices in _CHOICES.items():
            if getattr(self, key) not in choices:
                raise ValueError(f"{key} = {getattr(self, key)!r}: {', or '.join(choices)}")
        for key in _SECONDS:
            value = getattr(self, key)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{key} = {value}: a finite number of seconds")
        for key, (least, most, words) in _RANGES.items():
            value = getattr(self, key)
            if value is not None and not least <= value <= most:
                raise ValueError(f"{key} = {value}: {words}")
        if not LEASE_IDLE_MIN <= self.lease_idle <= self.lease_timeout:
            raise ValueError(
                f"lease_idle = {self.lease_idle}: from {LEASE_IDLE_MIN} seconds to lease_timeout = {self.lease_timeout}"
            )
        delays = DelayOptions(self.retry_delay, self.retry_multiplier, self.retry_max, self.retry_jitter)
        policy = fitting_policy(self.max_attempts, self.retry_time, delays)
        object.__setattr__(self, "policy", policy)
        check_rejected_errors(self.reject_on)

    @property
    def held_max(self) -> int:
        """Limit of messages of its group that a handler holds."""
        return max(self.prefetch, self.batch)


def check_rejected_errors(classes: Any) -> None:
    """Refuse classes of ``reject_on`` that say nothing about a message. The error names the class and the alternative."""
    if not isinstance(classes, tuple):
        raise ValueError(f"reject_on = {classes!r}: a tuple of exception classes, such as (ValueError,)")  # noqa: TRY004
    for item in classes:
        if (fault := _fault(item)) is not None:
            raise ValueError(f"reject_on = {getattr(item, '__name__', repr(item))}: {fault}")


def _fault(item: Any) -> str | None:
    if not (isinstance(item, type) and issubclass(item, BaseException)):
        return "this is no class of exceptions: name one, such as ValueError or your_module.YourError"
    if not issubclass(item, Exception):
        return "it ends tasks or processes and says nothing about a message: name a subclass of Exception"
    if item is Exception:
        return (
            "every failed attempt would make a dead letter, also in an outage: name the classes that only a bad message raises; for one "
            "attempt of each message choose max_attempts = 1"
        )
    if issubclass(item, Disposition):
        return "a handler raises it to decide otherwise than by failing: leave it out"
    if issubclass(item, StopIteration):
        return "Python makes it a RuntimeError on its way out of a handler: raise another class"
    return None
