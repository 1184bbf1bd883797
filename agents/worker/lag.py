"""Lag of lanes and growth of their inputs, in any state of the lanes."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from aiokafka.errors import KafkaError

from agents.lane.assignment import LaneKey, Partition
from agents.lane.errors import QUESTION_LIMIT_S
from agents.lane.lane import Lane, LaneState
from ringfence_kafka.admin.cluster import Cluster

T = TypeVar("T")

Number = TypeVar("Number", int, float)

ENDS_LIMIT_S: Final = 5.0
"""Limit of one query for all partitions, in seconds. A partition without an answer has no lag until the next query."""


RATE_OVER_S: Final = 60.0


class Growth:
    """End offsets of a partition in the last minute.

    Kafka can also find an offset by timestamp. For that a broker decompresses a whole batch, whose size a producer chooses.
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()

    def record(self, now_s: float, end: int) -> None:
        """Record the end offset at a time, in seconds."""
        if self._ends and end < self._ends[-1][1]:
            self._ends.clear()  # the topic was created again
        self._ends.append((now_s, end))
        while len(self._ends) > 2 and self._ends[1][0] <= now_s - RATE_OVER_S:
            self._ends.popleft()

    @property
    def per_second(self) -> float | None:
        """Growth in offsets per second; None = not known yet."""
        if len(self._ends) < 2:
            return None
        (began, first), (ended, last) = self._ends[0], self._ends[-1]
        return (last - first) / (ended - began) if ended > began else None


class _Seen(NamedTuple):
    """Answers of the cluster by partition. Partitions without an answer are absent."""

    ends: Mapping[Partition, int]
    starts: Mapping[Partition, int]
    committed: Mapping[Partition, int | None]


class LaneLags:
    """Lags of lanes at the last query."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._inputs: dict[LaneKey, Sequence[Partition]] = {}
        self._lags: dict[LaneKey, int | None] = {}
        self._growth: dict[Partition, Growth] = {}

    def lag(self, key: LaneKey) -> int | None:
        """Return the number of input records of a lane that are not processed; None if the cluster does not answer."""
        return self._lags.get(key)

    def rate(self, key: LaneKey) -> float | None:
        """Return the number of messages per second that arrived in the last minute; None = not known yet."""
        return self._sum([self._growth[place].per_second for place in self._inputs.get(key, ())])

    async def measure(
        self, lanes: Mapping[LaneKey, Lane], inputs: Mapping[LaneKey, Sequence[Partition]]
    ) -> None:
        """Query the end of each input, and compare idle lanes with the cluster. ``inputs`` includes half-assigned lanes, which are not opened.

        One query of each kind covers all lanes. A query for each lane would cost a worker with a thousand idle lanes a tenth of a core.
        """
        lanes = dict(lanes)  # both can change during the query
        inputs = dict(inputs)
        places = [place for some in inputs.values() for place in some]
        waiting = [
            place
            for key, some in inputs.items()
            if key not in lanes or lanes[key].state is not LaneState.OPEN
            for place in some
        ]
        idle = [lane for lane in lanes.values() if lane.idle]
        read = [(cursor.topic, cursor.partition) for lane in idle for cursor in lane.cursors.values()]
        seen = _Seen(
            *await asyncio.gather(
                _answer_or_nothing(self._cluster.offsets.known_ends({*places, *read}, ENDS_LIMIT_S)),
                _answer_or_nothing(self._cluster.offsets.known_starts(waiting, ENDS_LIMIT_S)),
                _answer_or_nothing(self._cluster.groups.known_commits({*waiting, *read})),
            )
        )
        self._inputs = inputs
        self._lags = {
            key: self._sum([_lag(place, lanes.get(key), seen) for place in some])
            for key, some in inputs.items()
        }
        now = asyncio.get_running_loop().time()
        self._growth = {place: self._growth.get(place, Growth()) for place in places}
        for end in seen.ends.keys() & self._growth.keys():
            self._growth[end].record(now, seen.ends[end])
        doubtful = [lane for lane in idle if not lane.fits(seen.ends, seen.committed)]
        await asyncio.gather(*map(_compare, doubtful))

    @staticmethod
    def _sum(numbers: Sequence[Number | None]) -> Number | None:
        """Return the sum over the partitions of a lane; None if one is unknown or there is none."""
        known = [number for number in numbers if number is not None]
        return sum(known[1:], start=known[0]) if known and len(known) == len(numbers) else None


async def _answer_or_nothing(question: Awaitable[Mapping[Partition, T]]) -> Mapping[Partition, T]:
    """Return the answer, or an empty mapping without one: missing committed offsets do not change the lag of open lanes."""
    try:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return await question
    except (KafkaError, OSError, TimeoutError):
        return {}


async def _compare(lane: Lane) -> None:
    with contextlib.suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(QUESTION_LIMIT_S):
            await lane.compare()


def _lag(place: Partition, lane: Lane | None, seen: _Seen) -> int | None:
    """Return the lag of a partition, from the group's offset if the partition was never open here; None = not known."""
    end, start = seen.ends.get(place), seen.starts.get(place)
    if end is None:
        return None
    if lane is not None and place in lane.cursors:
        done = lane.cursors[place].next
    elif start is None or place not in seen.committed:
        return None
    else:
        done = max(seen.committed[place] or 0, start)
    if done > end and (lane is None or lane.state is not LaneState.OPEN):
        # The position is from an earlier topic of that name, and nothing of the present topic is processed.
        if start is None:
            return None
        done = start
    return max(0, end - done)
