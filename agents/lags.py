"""How far lanes are behind the ends of their inputs, whatever their state is."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from aiokafka.errors import KafkaError

from agents.lane import Lane, LaneState
from agents.opening import QUESTION_LIMIT_S
from ringfence_kafka.cluster import Cluster

Partition = tuple[str, int]
"""Topic and partition number."""


class Lags:
    """As the cluster said when it was asked last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lags: dict[Partition, int | None] = {}

    def of(self, place: Partition) -> int | None:
        """Input records of a lane that are there and not yet processed; None = the cluster does not tell."""
        return self._lags.get(place)

    async def measure(self, lanes: Mapping[Partition, Lane], halves: Iterable[Partition]) -> None:
        """Ask for the end of each input, and whether the cluster still fits the lane. ``halves`` have none."""
        places = [*lanes, *halves]
        lags = await asyncio.gather(*(self._look_at(each, lanes.get(each)) for each in places))
        self._lags = dict(zip(places, lags, strict=True))

    async def _look_at(self, place: Partition, lane: Lane | None) -> int | None:
        """One lane, which may be the only one whose topic does not answer; its lag."""
        lag = None
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(QUESTION_LIMIT_S):
                end = await self._cluster.high_watermark(*place)
                done = await self._done(place, lane)
                if done > end and (lane is None or lane.state is not LaneState.OPEN):
                    # It was processed up to where another topic of that name ended, and nothing of this one is.
                    done = await self._cluster.log_start(*place)
                lag = max(0, end - done)
                if lane is not None:
                    await lane.compare()
        return lag

    async def _done(self, place: Partition, lane: Lane | None) -> int:
        """Up to where a lane's input is processed; of one that was never open here, as the group knows it."""
        if lane is not None and lane.cursors:
            return lane.next
        committed, start = await asyncio.gather(
            self._cluster.committed(*place), self._cluster.log_start(*place)
        )
        return max(committed or 0, start)
