"""Execution of the happenings in a world of consumers."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.simulator.consumers.check import held_up
from tests.simulator.consumers.schedule_parts import Task
from tests.simulator.consumers.world import LETTERS, PROGRESS, ConsumerWorld
from tests.simulator.happenings import Happenings
from tests.simulator.kafka.logs import Stored
from tests.simulator.kafka.network import Network
from tests.simulator.names import ACCEPTED
from tests.simulator.process import Process
from tests.simulator.schedules import Happening, Kind
from tests.simulator.sends.world import STATE


class ConsumerHappenings(Happenings):
    """Happenings of one world of consumers."""

    topic = ACCEPTED
    first_request = "confirm"
    opening_requests = 15
    _world: ConsumerWorld

    def __init__(self, world: ConsumerWorld) -> None:
        super().__init__(world)
        self._asked: Counter[str] = Counter()
        self._kinds |= {
            Kind.EATEN: lambda what, _: self._eat_unread(what.partition),
            Kind.COMPACTION: self._compact,
            Kind.LETTERS: self._refuse_letters,
            Kind.TARGET: self._refuse_target,
            Kind.RECREATED: self._recreate,
            Kind.TAIL: lambda what, _: self._lose_tail(what.partition),
        }

    def _record(self, message: Any, partition: int) -> tuple[int, bytes | None, bytes, Any]:
        self._world.sent += 1
        group = message.group
        if group is not None and self._world.plan.sends:
            group = b"%s/%d" % (group, partition)  # each group has one home
        value = f"{message.seconds} {message.outcome}".encode()
        return self.now_ms, group, value, (("t", b"%d" % self._world.sent),)

    def last(self, partition: int) -> Happening:
        return Happening(0, 0, Kind.SEND, partition=partition, messages=(Task(b"last", 0.0, "ok"),) * 2)

    def _recreate(self, _: Happening, __: Process) -> None:
        if not self._world.former:
            self._world.recreate()

    def _lose_tail(self, partition: int) -> None:
        """Remove the tail of the log that nobody has begun, if nobody holds the partition: with a holder, nobody could know."""
        world, consumers = self._world, [process.consumer for process in self._world.processes]
        transactions = world.cluster.transactions.known.values()
        held = any(consumer is not None and partition in consumer.partitions for consumer in consumers)
        if held or not all(
            transaction.at_rest for transaction in transactions
        ):  # an open one may call messages finished
            return
        known = [world.cluster.committed(ACCEPTED, partition) or 0]
        for item in world.committed(partition)[-1:]:
            known += [
                item.progress.next,
                item.progress.delivered,
                *(end for _, end in item.progress.finished),
            ]
        world.cluster.log(ACCEPTED, partition).lose_tail(max(known))

    def _refuse_letters(self, what: Happening, _: Process) -> None:
        self._world.cluster.refused.add(LETTERS)
        self._away.add(what)
        self._world.loops.after(what.seconds, self._take_letters, what)

    def _take_letters(self, what: Happening) -> None:
        """Accept dead letters again. Until now, everything that does not wait for a dead letter must have continued."""
        self._away.discard(what)
        if LETTERS not in self._world.cluster.refused:
            return  # it has healed before
        self._world.cluster.refused.discard(LETTERS)
        if {happening.kind for happening in self._world.plan.happenings} == {Kind.SEND, Kind.LETTERS}:
            for partition in range(self._world.plan.partitions):
                self._world.held_up += held_up(self._world, partition)

    def _refuse_target(self, what: Happening, _: Process) -> None:
        refused = self._world.cluster.refused
        refused.add(what.request)
        self._world.loops.after(what.seconds, refused.discard, what.request)

    def _compact(self, _: Happening, __: Process) -> None:
        self._world.cluster.log(PROGRESS, 0).compact()
        if STATE in self._world.cluster.topics:
            for log in self._world.cluster.topics[STATE].logs:
                log.compact()

    def _eat_unread(self, partition: int) -> None:
        cluster = self._world.cluster
        done = cluster.committed(ACCEPTED, partition) or 0
        self._eat(partition, max(done, cluster.log(ACCEPTED, partition).start))

    def _keep(self, partition: int, records: Sequence[Stored]) -> None:
        self._world.kept[partition] += records

    def _opens(self, network: Network) -> bool:
        """Whether a partition that does not hold yet is about to be fenced: its process has asked once before."""
        for process in self._world.processes:
            if process.network is network and process.consumer is not None:
                held = process.consumer.held_partitions
                if any(number not in held.partitions for number in held.assigned or ()):
                    self._asked[process.name] += 1
                    return self._asked[process.name] > 1
        return False
