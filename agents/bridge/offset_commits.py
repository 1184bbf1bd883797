"""Commits a bridge's confirmed offsets, with counts and problems as metadata."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from aiokafka.errors import CommitFailedError, KafkaError

from agents.bridge.offsets import AT_REST, OffsetMetadata, encode
from agents.bridge.source import SourceConsumer
from agents.bridge.state import COMMIT, BridgeState
from agents.bridge.window import Place, Window
from ringfence_kafka.errors import said
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.process.failpoints import reach

EVERY_S: Final = 1.0
LIMIT_S: Final = 5.0
"""Limit of a commit, in seconds. aiokafka would retry for as long as the group's coordinator is unavailable."""


class Committer:
    """Committer of one bridge's offsets."""

    def __init__(self, state: BridgeState, window: Window, instance: str, web: str) -> None:
        """Create a committer. ``instance`` and ``web`` identify this process in the metadata."""
        self._state = state
        self._window = window
        self._instance = instance
        self._web = web
        self._offsets: dict[Place, int] = {}
        """Committed offset of each opening."""
        self._at = 0.0

    def committed_offset(self, number: int) -> int | None:
        """Return the offset that was committed since a partition was opened; None = no commit yet."""
        place = self._window.places.get(number)
        return None if place is None else self._offsets.get(place)

    def current_commit(self, number: int) -> Committed | None:
        """Return the offset and metadata that a commit of an open partition would have now; None = it is not open."""
        place = self._window.places.get(number)
        if place is None or number not in self._state.partitions:
            return None
        return self._commit_of(place)

    @property
    def due(self) -> bool:
        """Whether the last commit is at least :data:`EVERY_S` old."""
        return time.monotonic() - self._at >= EVERY_S

    async def commit(self, consumer: SourceConsumer, *, last: bool = False) -> None:
        """Commit changed partitions, or all for the ``last`` commit. Never raises errors of Kafka: the commit is retried."""
        offsets: dict[int, Committed] = {}
        places: list[Place] = []
        for number, place in self._window.places.items():
            shown = self._state.partitions.get(number)
            if shown is not None and (last or shown.dirty or self._offsets.get(place) != place.confirmed):
                offsets[number] = self._commit_of(place, last=last)
                places.append(place)
        self._at = time.monotonic()
        if not offsets:
            return
        await reach("before-commit", self._state.name)
        self._mark(offsets, dirty=False)
        try:
            async with asyncio.timeout(LIMIT_S):
                await consumer.commit(offsets)
        except CommitFailedError:
            self._mark(offsets, dirty=True)  # a rebalance is in progress
        except (KafkaError, OSError, TimeoutError) as error:
            self._mark(offsets, dirty=True)
            self._state.fail(COMMIT, f"source: offsets are not committed: {said(error)}")
        else:
            self._state.recover(COMMIT)
            stood = {
                place: at
                for place, at in self._offsets.items()
                if self._window.places.get(place.partition) is place
            }
            self._offsets = stood | {place: offsets[place.partition].offset for place in places}
            await reach("after-commit", self._state.name)

    async def stand(self, consumer: SourceConsumer, number: int, offset: int, note: OffsetMetadata) -> None:
        """Commit the reason for which a closed partition is paused; its other metadata does not change. Raises errors of Kafka."""
        noted = encode(replace(note, instance=self._instance, web=self._web))
        async with asyncio.timeout(LIMIT_S):
            await consumer.commit({number: Committed(offset, noted)})

    def _mark(self, numbers: Iterable[int], *, dirty: bool) -> None:
        for number in numbers:
            if number in self._state.partitions:
                self._state.partitions[number].dirty = dirty

    def _commit_of(self, place: Place, *, last: bool = False) -> Committed:
        sent = place.reached if place.reached > place.confirmed else 0
        still = AT_REST if last and not sent else ""
        note = replace(self._note(place.partition), still=still, sent=sent)
        return Committed(place.confirmed, encode(note))

    def _note(self, number: int) -> OffsetMetadata:
        shown = self._state.partitions[number]
        fault = self._state.stops.get(number) or self._state.fault
        counted = {
            name: getattr(shown.note, name) + shown.counts[name]
            for name in ("forwarded", "retried", "filtered", "returned", "quarantined")
        }
        return replace(
            shown.note,
            instance=self._instance,
            web=self._web,
            error="" if fault is None else fault.text,
            since_ms=0 if fault is None else fault.since_ms,
            **counted,
        )
