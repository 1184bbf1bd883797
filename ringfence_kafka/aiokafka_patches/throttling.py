"""Quotas: brokers report the throttling of a client in their responses (KIP-219), and aiokafka ignores it."""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from aiokafka.conn import AIOKafkaConnection
from prometheus_client.core import CounterMetricFamily, Metric

log = logging.getLogger("ringfence.kafka")

REPEAT_AFTER_S: Final = 60.0
RECENT_S: Final = 60.0
"""Time span of the throttling that status shows, in seconds."""
_QUOTAS: Final = {"Fetch": "consumer_byte_rate", "Produce": "producer_byte_rate"}
"""Quota that most often limits an API; others are limited by ``request_percentage`` or ``controller_mutation_rate``."""
_handle_frame: Final = AIOKafkaConnection._handle_frame


class ThrottleLog:
    """Throttle times of one process."""

    def __init__(self) -> None:
        self.total_ms: Counter[str] = Counter()
        """Total throttle time since the start of the process, in ms, by API."""
        self._by_second: dict[int, Counter[str]] = {}
        """Throttle times of the last minute, in ms, by second and API."""
        self._told_ms: Counter[str] = Counter()
        self._told_at = float("-inf")

    def count(self, api: str, throttled_ms: int, client_id: str) -> None:
        """Count a throttled response to a request such as ``Fetch``; log at most one line a minute."""
        self.total_ms[api] += throttled_ms
        now = time.monotonic()
        self._by_second.setdefault(int(now), Counter())[api] += throttled_ms
        self._forget(now)
        if now - self._told_at < REPEAT_AFTER_S:
            return
        more = self.total_ms - self._told_ms
        self._told_at, self._told_ms = now, self.total_ms.copy()
        spent = ", ".join(f"{name} {ms / 1000:.1f} s" for name, ms in more.most_common())
        log.warning(
            "brokers throttle client.id %s (%s since the last such line): a quota delays messages, and "
            "none is lost. Raise %s of its user or client.id with kafka-configs, or accept a growing lag",
            client_id, spent, quotas(more),
        )  # fmt: skip

    def recent(self) -> dict[str, float]:
        """Return the throttle time of the last minute, in seconds, by API."""
        self._forget(time.monotonic())
        total: Counter[str] = sum(self._by_second.values(), Counter())
        return {api: ms / 1000 for api, ms in sorted(total.items())}

    def _forget(self, now: float) -> None:
        for number in [number for number in self._by_second if number < now - RECENT_S]:
            del self._by_second[number]


def quotas(apis: Iterable[str]) -> str:
    """Return the names of the quotas that limit these requests."""
    return " or ".join(dict.fromkeys(_QUOTAS.get(name, "request_percentage") for name in apis))


THROTTLED: Final = ThrottleLog()
"""The only log of this process, because quotas count all its clients together."""


def install() -> None:
    """Let each connection of aiokafka read the throttle time of every response."""
    AIOKafkaConnection._handle_frame = _handle_and_note


def _handle_and_note(connection: Any, frame: Any) -> None:
    _, _, future = connection._requests[0]
    _handle_frame(connection, frame)
    if future.done() and not future.cancelled() and future.exception() is None:
        response = future.result()
        if throttled_ms := getattr(response, "throttle_time_ms", 0):
            api = type(response).__name__.partition("Response")[0]
            THROTTLED.count(api, throttled_ms, connection._client_id)


def throttle_metric() -> Metric:
    """Return the metric of throttle times, by API."""
    family = CounterMetricFamily(
        "ringfence_throttled_seconds",
        "Time for which brokers made this process wait, because a quota is exceeded; by request.",
        labels=["api"],
    )
    for api, spent_ms in sorted(THROTTLED.total_ms.items()):
        family.add_metric([api], spent_ms / 1000)
    return family
