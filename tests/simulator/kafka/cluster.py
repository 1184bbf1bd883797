"""A Kafka cluster as far as lanes use one: topics, a transaction coordinator, a group coordinator. Its requests come through network.py."""

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from aiokafka.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError

from ringfence_kafka.admin.topics import TopicDescription
from tests.simulator.kafka.groups import Group, Place
from tests.simulator.kafka.logs import Fate, Fetched, Headers, Log
from tests.simulator.kafka.transactions import Coordinator
from tests.simulator.loop import Loops

MARKER_S: Final = 0.004
"""Seconds that markers take at most, unless they are held up."""

_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "max.message.bytes": "1048588",
    "delete.retention.ms": "86400000",
}


@dataclass
class Topic:
    """A topic of this name; a topic that is created again is another object."""

    name: str
    topic_id: str
    logs: list[Log]
    description: TopicDescription


@functools.lru_cache
def _description(name: str, partitions: int, config: tuple[tuple[str, str], ...]) -> TopicDescription:
    return TopicDescription(name, partitions, _CONFIG | dict(config))


class SimulatedCluster:
    """State of the cluster, and the effect of each request when it arrives."""

    def __init__(self, loops: Loops, dice: random.Random) -> None:
        self.loops = loops
        self.dice = dice
        self.topics: dict[str, Topic] = {}
        self.markers_late_until = 0.0
        self.markers_late_s = 0.0
        """Seconds that markers take at most until then."""
        self.transactions = Coordinator(loops.after, self._marker_delay, self._commit)
        self.group = Group(lambda: loops.now, loops.after, dice, self.assigned_together)
        self.together: list[tuple[str, ...]] = []
        """Topics whose partitions are assigned together, by number, or with ``lanes`` by remainder."""
        self.lanes = 0
        self.watchers: list[Callable[[Any, str], None]] = []
        self.implicit = False
        self.brokers = 1
        self.dropping: dict[Place, Callable[[], bool]] = {}
        """Partitions that lose one batch on its way to the lane; each function returns whether it is this batch."""
        self.refused: set[str] = set()
        self.went_back: list[str] = []
        self.moved: Callable[[str], None] = lambda _: None
        self._created = 0

    def __repr__(self) -> str:
        return "cluster"

    # -- topics ------------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int, **config: str) -> Topic:
        self._created += 1
        topic = Topic(
            name,
            f"topic-{self._created}",
            [Log(name, number) for number in range(partitions)],
            _description(name, partitions, tuple(config.items())),
        )
        for log in topic.logs:
            log.moved = partial(self._moved, name)
        self.topics[name] = topic
        return topic

    def grow(self, name: str, partitions: int) -> None:
        topic = self.topics[name]
        for number in range(len(topic.logs), partitions):
            log = Log(name, number)
            log.moved = partial(self._moved, name)
            topic.logs.append(log)
        topic.description = replace(topic.description, partitions=partitions)
        self.group.rebalance()

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            raise UnknownTopicOrPartitionError(name)
        return self.topics[name]

    def log(self, topic: str, partition: int) -> Log:
        return self.topic(topic).logs[partition]

    def describe(self, names: Sequence[str]) -> dict[str, TopicDescription]:
        return {name: self.topics[name].description for name in names if name in self.topics}

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self.topic(name).topic_id for name in names}

    def ends(self, topic: str, partition: int) -> tuple[int, int, int]:
        log = self.log(topic, partition)
        return log.start, log.stable, log.end

    def fetch(self, topic: str, partition: int, begin: int, end: int) -> Fetched:
        log = self.log(topic, partition)
        if not log.start <= begin <= log.end:
            raise OffsetOutOfRangeError({})
        return log.read(begin, end)

    def brings(self, topic: str, partition: int, begin: int) -> bool:
        """Whether a fetch from there on would return anything, errors included."""
        found = self.topics.get(topic)
        if found is None:
            return True
        log = found.logs[partition]
        return not log.start <= begin <= log.end or begin < log.stable

    def committed(self, topic: str, partition: int) -> int | None:
        return self.group.committed.get((topic, partition))

    # -- writers that are not lanes ----------------------------------------------------------------------------

    def produce(
        self, topic: str, partition: int, records: Sequence[tuple[int, bytes | None, bytes | None, Headers]]
    ) -> None:
        self.log(topic, partition).append(records)

    def produce_in_transaction(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[int, bytes | None, bytes | None, Headers]],
        seconds: float,
        *,
        commit: bool,
    ) -> None:
        log = self.log(topic, partition)
        part = log.begin(None)
        log.append(records, part)
        self.loops.after(seconds, log.mark, part, Fate.COMMITTED if commit else Fate.ABORTED)

    # -- by itself ---------------------------------------------------------------------------------------------

    def _moved(self, topic: str) -> None:
        self.moved(topic)

    def _marker_delay(self) -> float:
        late = self.markers_late_s if self.loops.now < self.markers_late_until else MARKER_S
        return late * self.dice.random()

    def _commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        for place, offset in offsets.items():
            if (known := self.group.committed.get(place, 0)) > offset:
                self.went_back.append(
                    f"BACK: the group's offset of {place[0]}/{place[1]}, from {known} to {offset}"
                )
            self.group.committed[place] = offset

    def assigned_together(self) -> list[tuple[Place, ...]]:
        return [
            (
                *(Place(topics[0], partition) for partition in range(number, count, lanes)),
                *(Place(topic, number) for topic in topics[1:]),
            )
            for topics in self.together
            for count in [len(self.topics[topics[0]].logs)]
            for lanes in [self.lanes or count]
            for number in range(lanes)
        ]
