"""Says when much is forwarded, and what to do about it: properly keyed traffic costs less."""

import logging
import math
import time
from typing import Final

from ringfence_kafka.config.settings import AddressSettings

log: Final = logging.getLogger("ringfence.lane")

SHARE: Final = 0.1
RECORDS_MIN: Final = 1_000
"""Before so many records a share says nothing."""
AGAIN_AFTER_S: Final = 300.0


class ForwardingHint:
    """Watches the share of records that are not at home where they arrive."""

    def __init__(self, address: AddressSettings) -> None:
        other = {"murmur2": "crc32", "crc32": "murmur2"}[address.partitioner]
        client = {"murmur2": "Java, aiokafka", "crc32": "librdkafka's default"}[other]
        self._remedy = (
            f'set partitioner = "{other}" for {address.name} if its producers use that one ({client}); '
            "records without a key, or with a key other than the group, are always forwarded"
        )
        self._forwarded = 0
        self._seen = 0
        self._said_at = -math.inf

    def note(self, lane: str, forwarded: int, local: int) -> None:
        """Count the records of one batch."""
        self._forwarded += forwarded
        self._seen += forwarded + local
        if self._seen < RECORDS_MIN:
            return
        share = self._forwarded / self._seen
        if share > SHARE and time.monotonic() - self._said_at > AGAIN_AFTER_S:
            self._said_at = time.monotonic()
            log.warning(
                "lane %s: %.0f %% of the records are forwarded to their home: %s",
                lane,
                share * 100,
                self._remedy,
            )
        self._forwarded = self._seen = 0
