"""Advice when many records are forwarded: records with the right key cost less."""

import logging
import math
import time
from collections.abc import Iterable
from typing import Final

from ringfence_kafka.config.settings import AddressSettings

log: Final = logging.getLogger("ringfence.lane")

SHARE: Final = 0.1
RECORDS_MIN: Final = 1_000
"""Number of records from which the share of forwarded ones is meaningful."""
AGAIN_AFTER_S: Final = 300.0


class ForwardingHint:
    """Watches the share of records that arrive outside their home lane."""

    def __init__(self, address: AddressSettings, *, chained: bool = False) -> None:
        """Create the hint. ``chained``: workers write the input topic, with the groups of another address as keys."""
        other = {"murmur2": "crc32", "crc32": "murmur2"}[address.partitioner]
        client = {"murmur2": "Java, aiokafka", "crc32": "librdkafka's default"}[other]
        self._remedy = (
            f'set partitioner = "{other}" for {address.name} if its producers use that one ({client}); '
            "records without a key, or with a key other than the group, are always forwarded"
        )
        if chained:
            self._remedy = f"{address.input_topic} is keyed by the groups of the address that writes it, and {address.name} has others, so this is by design"
        self._chained = chained
        self._topic = address.input_topic
        self._homes: set[int] = set()
        """Home lanes of the forwarded records that are counted now."""
        self._forwarded = 0
        self._seen = 0
        self._said_at = -math.inf
        self.share = 0.0
        """Share of forwarded records, among the last :data:`RECORDS_MIN` or more."""
        self.advice = ""
        """Remedy for the forwarding; empty if few records are forwarded."""

    def count(
        self,
        lane: str,
        forwarded: int,
        local: int,
        homes: Iterable[int] = (),
        place: tuple[int, int] = (0, 1),
    ) -> None:
        """Count the records of one batch. ``place``: number of the lane, and number of lanes of the address."""
        self._forwarded += forwarded
        self._homes.update(homes)
        self._seen += forwarded + local
        if self._seen < RECORDS_MIN:
            return
        self.share = self._forwarded / self._seen
        self.advice = (self._after_growth(*place) or self._remedy) if self.share > SHARE else ""
        if self.advice and time.monotonic() - self._said_at > AGAIN_AFTER_S:
            self._said_at = time.monotonic()
            log.warning(
                "lane %s: %.0f %% of the records are forwarded to their home: %s",
                lane, self.share * 100, self.advice,
            )  # fmt: skip
        self._forwarded = self._seen = 0
        self._homes.clear()

    def _after_growth(self, number: int, lanes: int) -> str:
        """Return advice if producers still use a former, smaller partition count; else an empty text.

        A topic grows to a multiple of its size, so a group moves to a partition that is congruent to its former one. A wrong
        partitioner scatters groups over all partitions.
        """
        if self._chained:
            return ""
        for former in range(lanes // 2, max(number, 1), -1):  # with one partition, producers do not choose
            if lanes % former == 0 and self._homes and all(home % former == number for home in self._homes):
                return (
                    f"producers still choose among {former} of the {lanes} partitions of {self._topic}. "
                    "They learn of the others within their metadata.max.age.ms (5 minutes by default); "
                    "restart those that do not. Do not change the partitioner"
                )
        return ""
