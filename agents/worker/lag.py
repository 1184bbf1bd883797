"""Lag of lanes behind their inputs, and the growth of inputs, whatever the state of the lanes is."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from aiokafka.errors import KafkaError

from agents.lane.assignment import LaneKey, Partition
from agents.lane.errors import QUESTION_LIMIT_S
from agents.lane.lane import Lane, LaneState
from ringfence_kafka.admin.cluster import Cluster

T = TypeVar("T")

Number = TypeVar("Number", int, float)

ENDS_LIMIT_S: Final = 5.0
"""Limit for all partitions together: a partition without an answer in time has no lag until the next time."""


RATE_OVER_S: Final = 60.0


class Growth:
    """The ends of a partition in the last minute.

    Kafka finds an offset by its timestamp too. But for that a broker decompresses a whole batch, whose size a producer chooses.
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, end: int) -> None:
        """Note the end offset at a time."""
        if self._ends and end < self._ends[-1][1]:
            self._ends.clear()  # another topic of that name
        self._ends.append((now_s, end))
        while len(self._ends) > 2 and self._ends[1][0] <= now_s - RATE_OVER_S:
            self._ends.popleft()

    @property
    def per_second(self) -> float | None:
        """Offsets a second; None = not known yet."""
        if len(self._ends) < 2:
            return None
        (began, first), (ended, last) = self._ends[0], self._ends[-1]
        return (last - first) / (ended - began) if ended > began else None


class _Seen(NamedTuple):
    """Answers of the cluster, by partition; a partition without an answer is left out."""

    ends: Mapping[Partition, int]
    starts: Mapping[Partition, int]
    committed: Mapping[Partition, int | None]


class LaneLags:
    """As the cluster said when it was asked last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._inputs: dict[LaneKey, Sequence[Partition]] = {}
        self._lags: dict[LaneKey, int | None] = {}
        self._growth: dict[Partition, Growth] = {}

    def of(self, key: LaneKey) -> int | None:
        """Return how many input records of a lane are not yet processed; None = the cluster does not tell."""
        return self._lags.get(key)

    def rate(self, key: LaneKey) -> float | None:
        """Return how many messages a second came in during the last minute; None = it is not known yet."""
        return self._sum([self._growth[place].per_second for place in self._inputs.get(key, ())])

    async def measure(
        self, lanes: Mapping[LaneKey, Lane], inputs: Mapping[LaneKey, Sequence[Partition]]
    ) -> None:
        """Ask for the end of each input, and whether the cluster still fits the lanes.

        All lanes by one question of each kind. A question a lane would cost a worker of a thousand idle lanes a tenth of a core.

        Args:
            lanes: Lanes of this worker.
            inputs: Partitions of the input topic by lane, also of lanes that are not opened because this worker has only half of them.
        """
        lanes = dict(lanes)  # they may change while the cluster is asked
        inputs = dict(inputs)
        places = [place for some in inputs.values() for place in some]
        waiting = [
            place
            for key, some in inputs.items()
            if key not in lanes or lanes[key].state is not LaneState.OPEN
            for place in some
        ]
        idle = [lane for lane in lanes.values() if lane.idle]
        seen = await self._ask(places, waiting, idle)
        self._inputs = inputs
        self._lags = {
            key: self._sum([_lag(place, lanes.get(key), seen) for place in some])
            for key, some in inputs.items()
        }
        now = asyncio.get_running_loop().time()
        self._growth = {place: self._growth.get(place, Growth()) for place in places}
        for end in seen.ends.keys() & self._growth.keys():
            self._growth[end].note(now, seen.ends[end])
        doubtful = [lane for lane in idle if not lane.fits(seen.ends, seen.committed)]
        await asyncio.gather(*map(_compare, doubtful))

    @staticmethod
    def _sum(numbers: Sequence[Number | None]) -> Number | None:
        """Return the sum over the partitions of a lane; None = one is not known, or there is none."""
        known = [number for number in numbers if number is not None]
        return sum(known[1:], start=known[0]) if known and len(known) == len(numbers) else None

    async def _ask(
        self, places: Collection[Partition], waiting: Collection[Partition], idle: Iterable[Lane]
    ) -> _Seen:
        read = [(cursor.topic, cursor.partition) for lane in idle for cursor in lane.cursors.values()]
        ends, starts, committed = await asyncio.gather(
            _told(self._cluster.offsets.known_ends({*places, *read}, ENDS_LIMIT_S)),
            _told(self._cluster.offsets.known_starts(waiting, ENDS_LIMIT_S)),
            _told(self._cluster.groups.known_commits({*waiting, *read})),
        )
        return _Seen(ends, starts, committed)


async def _told(question: Awaitable[Mapping[Partition, T]]) -> Mapping[Partition, T]:
    """Return the answer, or nothing without one: missing offsets of the group do not change the lag of open lanes."""
    try:
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return await question
    except (KafkaError, OSError, TimeoutError):
        return {}


async def _compare(lane: Lane) -> None:
    """One lane, asked for by itself."""
    with contextlib.suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(QUESTION_LIMIT_S):
            await lane.compare()


def _lag(place: Partition, lane: Lane | None, seen: _Seen) -> int | None:
    """Return the lag of a partition, by the group's offset if it was never open here; None = not known."""
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
        # It was processed up to where another topic of that name ended, and nothing of this one is.
        if start is None:
            return None
        done = start
    return max(0, end - done)
