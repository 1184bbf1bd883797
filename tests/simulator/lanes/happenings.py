"""Execution of the happenings in a world of lanes."""

import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any, Final

from agents.lane.lane import Lane, LaneState
from tests.harness.history import record_of
from tests.simulator.doubles.transport import FETCH_OFFSETS, SimulatedConsumer
from tests.simulator.happenings import Happenings
from tests.simulator.kafka.groups import Place
from tests.simulator.kafka.logs import Stored
from tests.simulator.kafka.network import Network
from tests.simulator.lanes import envelopes
from tests.simulator.lanes.world import BEGINNING, LaneWorld, newest_meta
from tests.simulator.names import ADDRESS, CHANGELOG, COMPACTED
from tests.simulator.process import Process
from tests.simulator.schedules import Happening, Kind, Message

STANDING: Final = frozenset({LaneState.CLOSED, LaneState.SUSPENDED})
AT_WORK: Final = frozenset({LaneState.OPEN, LaneState.SUSPENDED})
AGAIN: Final = 3


class LaneHappenings(Happenings):
    """Happenings of one world of lanes."""

    topic = ADDRESS
    first_request = "describe"
    settles_first = True
    _world: LaneWorld

    def __init__(self, world: LaneWorld) -> None:
        super().__init__(world)
        self._kinds |= {
            Kind.EATEN: lambda what, _: self._eat_unprocessed(what.partition),
            Kind.COMPACTION: self._compact,
            Kind.OFFSETS: self._expire_offsets,
            Kind.CHANGELOG: self._lose_changelog,
            Kind.RECREATED: self._recreate_at_once,
            Kind.REPLACED: self._replace,
            Kind.DROPPED: self._drop,
            Kind.TAIL: lambda what, _: self._lose_tail(what.partition),
            Kind.GROWN: lambda what, _: self._world.grow(max(what.count, self._world.partitions)),
        }

    def _compact(self, _: Happening, __: Process) -> None:
        for log in self._world.cluster.topics[CHANGELOG].logs:
            log.compact()

    def _expire_offsets(self, _: Happening, __: Process) -> None:
        self._world.cluster.group.committed.clear()
        self._world.expired = True

    def _lose_changelog(self, _: Happening, __: Process) -> None:
        self._world.cluster.create(CHANGELOG, self._world.lane_count, **COMPACTED)
        self._world.forgetful = True

    def _recreate_at_once(self, _: Happening, __: Process) -> None:
        self._recreate()

    def _recreate(self) -> bool:
        world = self._world
        places = [Place(ADDRESS, number) for number in range(world.partitions)]
        if world.recreated or any(
            world.cluster.group.committed.get(place, 0) < BEGINNING for place in places
        ):
            return False
        for place in places:
            self._keep(place.partition, world.cluster.log(*place).committed())
            del world.cluster.group.committed[place]  # as Kafka does for deleted topics
        world.recreated += 1
        world.old_ends = [log.end for log in world.cluster.topics[ADDRESS].logs]
        world.cluster.create(ADDRESS, world.partitions)
        return True

    def _replace(self, _: Happening, __: Process) -> None:
        world = self._world
        world.cluster.group.rebalance()

        def arrived(_network: Network, _request: str) -> None:
            lanes = [
                lane
                for process in world.processes
                if process.lanes is not None
                for lane in process.lanes.lanes
            ]
            if not world.cluster.group.rebalancing or any(lane.state not in STANDING for lane in lanes):
                return
            world.cluster.watchers.remove(arrived)
            if self._recreate():
                for number, end in enumerate(world.old_ends):
                    self.send(
                        Happening(0, 0, Kind.SEND, partition=number, messages=(Message(b"first", b"g0"),))
                    )
                    aborted = [(0, None, None, ())] * end
                    world.cluster.produce_in_transaction(ADDRESS, number, aborted, 0.0, commit=False)

        world.cluster.watchers.append(arrived)

    def _drop(self, what: Happening, _: Process) -> None:
        """Drop one of the next batches. Several are sent at once, so that others wait before it and come behind it."""
        message, left = Message(None, b"g0"), self._world.loops.dice.randrange(4)
        sent = Happening(0, 0, Kind.SEND, partition=what.partition, messages=(message,) * FETCH_OFFSETS * 3)

        def dropped() -> bool:
            nonlocal left
            left -= 1
            if left < 0:
                self.send(dataclasses.replace(sent, messages=(message,)))  # reveals the loss
            return left < 0

        self.send(sent)
        self._world.cluster.dropping[Place(ADDRESS, what.partition)] = dropped

    def _lose_tail(self, partition: int) -> None:
        world = self._world
        owned = [
            (lane, process.consumer)
            for process in world.processes
            if process.lanes is not None and process.consumer is not None
            for lane in process.lanes.lanes
            if lane.opening.number == world.lane_of(ADDRESS, partition)
        ]
        lanes = [lane for lane, _ in owned]
        transactions = world.cluster.transactions.known
        if any(self._has_fetched(*item, partition) for item in owned) or not all(
            transaction.at_rest for transaction in transactions.values()
        ):
            return
        known = [lane.next_by_partition.get(partition, 0) for lane in lanes] + [
            world.cluster.committed(ADDRESS, partition) or 0
        ]
        meta = newest_meta(world, world.lane_of(ADDRESS, partition))
        known.append(0 if meta is None else meta.next_of(ADDRESS, partition) or 0)
        world.cluster.log(ADDRESS, partition).lose_tail(max(known))

    @staticmethod
    def _has_fetched(lane: Lane, consumer: SimulatedConsumer, partition: int) -> bool:
        """Whether a lane may hold records that the log loses: it is open, or its opening has had them fetched."""
        doing = lane._doing
        fetched = doing is not None and consumer.rewound_by.get(Place(ADDRESS, partition)) is doing
        return lane.state in AT_WORK or lane._opened is not None or fetched

    def _opens(self, network: Network) -> bool:
        return any(
            lane.state is LaneState.OPENING or lane.state is LaneState.RETRYING
            for process in self._world.processes
            if process.network is network and process.lanes is not None
            for lane in process.lanes.lanes
        )

    def _eat_unprocessed(self, partition: int) -> None:
        """Delete unprocessed records, unless the lane never processed any: then it begins at the log's start, wherever that is."""
        done = self._world.cluster.committed(ADDRESS, partition)
        if done is not None and self._world.cluster.log(ADDRESS, partition).stable > done:
            self._eat(partition, done)

    def _keep(self, partition: int, records: Sequence[Stored]) -> None:
        self._world.kept += [record_of(ADDRESS, partition, item) for item in records]

    def _record(self, message: Any, partition: int) -> tuple[int, bytes | None, bytes, Any]:
        self._world.sent += 1
        token = b"%d" % self._world.sent
        if self._world.recreated:
            self._world.generations[token] = self._world.recreated
        key, value, headers = envelopes.record(message, token)
        return self.now_ms, key, value, (("t", token), *headers)

    def last(self, partition: int) -> Happening:
        world = self._world
        home = next(
            group
            for group in map(b"h%d".__mod__, range(99))
            if zlib.crc32(group) % world.partitions == partition
        )
        known = [message for happening in world.plan.happenings for message in happening.messages]
        again = world.loops.dice.sample(known, min(AGAIN, len(known)))
        messages = (Message(b"last", home), *again)
        return Happening(0, 0, Kind.SEND, partition=partition, messages=messages)
