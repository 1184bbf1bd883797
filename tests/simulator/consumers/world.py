"""A world of consumers."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.progress import progress_record, record_parts
from ringfence_client.progress.progress_record import Progress
from ringfence_kafka.protocol import wire_names
from tests.simulator.consumers.group import KeepingGroup
from tests.simulator.consumers.handlers import Handling
from tests.simulator.consumers.process import Consumer
from tests.simulator.consumers.schedules import ConsumerSchedule
from tests.simulator.kafka.groups import Place
from tests.simulator.kafka.logs import Fate, Headers, Log, Part, Stored
from tests.simulator.names import ACCEPTED, ADDRESS, APP, COMPACTED, settings_of
from tests.simulator.sends.handlers import SendingHandling
from tests.simulator.sends.world import create_targets
from tests.simulator.world import World

LETTERS = wire_names.dead_letter_topic(ADDRESS)
PROGRESS = wire_names.progress_topic(APP)


class Written(NamedTuple):
    """A progress record, whatever the end of its transaction."""

    partition: int
    at: float
    made_at: float
    progress: Progress
    part: Part

    @property
    def committed(self) -> bool:
        return self.part.fate is Fate.COMMITTED

    @property
    def owner(self) -> str:
        return self.progress.holder.partition("/")[0]


class Accepted(NamedTuple):
    """A message, as the checker sees it."""

    group: bytes | None
    number: bytes
    task: str


class Input(NamedTuple):
    """A partition of the accepted topic, or of a former topic of that name."""

    topic_id: str
    until: float
    messages: dict[int, Accepted]
    eaten: set[int]


class ProgressLog(Log):
    """Log of the progress topic; it remembers every record ever written, even if compaction has removed it."""

    def __init__(self, topic: str, now: Callable[[], float]) -> None:
        super().__init__(topic, 0)
        self.written: list[Written] = []
        self._parts: dict[bytes, bytes | None] = {}
        self._now = now

    def append(
        self, records: Iterable[tuple[int, bytes | None, bytes | None, Headers]], part: Part | None = None
    ) -> int:
        there = list(records)
        for _, key, value, _ in there:
            if part is not None and key is not None and value is not None:
                if record_parts.is_key(key):
                    self._parts[key] = value  # parts come before the record that names them
                    continue
                self.written.append(self._written(key, value, part))
        return super().append(there, part)

    def _written(self, key: bytes, value: bytes, part: Part) -> Written:
        def find(number: int) -> bytes | None:
            return self._parts.get(record_parts.key_of(key, number))

        said = progress_record.decode(value, find)
        return Written(progress_record.decode_key(key)[2], self._now(), self.made_at, said, part)


class LettersLog(Log):
    """Log of one partition of the dead-letter topic."""

    def __init__(self, partition: int, now: Callable[[], float]) -> None:
        super().__init__(LETTERS, partition)
        self.times: dict[int, float] = {}
        self._now = now

    def append(
        self, records: Iterable[tuple[int, bytes | None, bytes | None, Headers]], part: Part | None = None
    ) -> int:
        base = super().append(records, part)
        self.times |= dict.fromkeys(range(base, self.end), self._now())
        return base


class ConsumerWorld(World):
    """Consumers of one accepted topic."""

    processes: Sequence[Consumer]
    plan: ConsumerSchedule

    def __init__(self, plan: ConsumerSchedule) -> None:
        super().__init__(plan)
        cluster, loops = self.cluster, self.loops
        self.handling = SendingHandling() if plan.sends else Handling()
        self.kept: list[list[Stored]] = [[] for _ in range(plan.partitions)]
        self.former: list[list[Input]] = []
        self.held_up: list[str] = []
        cluster.create(ACCEPTED, plan.partitions)
        if plan.sends:
            create_targets(cluster, plan.partitions)
        self.letters = [LettersLog(number, lambda: loops.now) for number in range(plan.partitions)]
        cluster.create(LETTERS, plan.partitions).logs[:] = self.letters
        self.progress = ProgressLog(PROGRESS, lambda: loops.now)
        self.progress.moved = cluster.create(PROGRESS, 1, **COMPACTED).logs[0].moved
        cluster.topics[PROGRESS].logs[0] = self.progress
        cluster.together = [(ACCEPTED,)]
        cluster.group = KeepingGroup(
            lambda: loops.now, loops.after, loops.dice, cluster.assigned_together, topic=ACCEPTED, partitions=lambda: plan.partitions
        )  # fmt: skip
        self.processes = [
            Consumer(
                name,
                settings_of(name, plan.capacity, plan.divert, envelopes=plan.sends),
                cluster,
                loops,
                loops.dice,
                options=_options(plan, name),
                handling=self.handling,
                state_cache=plan.state_cache,
            )
            for name in (f"p{number}" for number in range(plan.processes))
        ]

    def messages(self, partition: int) -> dict[int, Accepted]:
        records = [*self.kept[partition], *self.cluster.log(ACCEPTED, partition).committed()]
        return {
            record.offset: Accepted(
                record.key, dict(record.headers)["t"] or b"", (record.value or b"").decode().split()[1]
            )
            for record in records
        }

    def inputs(self, partition: int) -> list[Input]:
        topic_id = self.cluster.topics[ACCEPTED].topic_id
        now = Input(topic_id, math.inf, self.messages(partition), self.eaten[partition])
        return [*(item[partition] for item in self.former), now]

    def recreate(self) -> None:
        numbers = range(self.plan.partitions)
        deleted = [self.inputs(number)[-1]._replace(until=self.loops.now) for number in numbers]
        self.former.append(deleted)
        for number in numbers:
            self.kept[number], self.eaten[number] = [], set()
            self.cluster.group.committed.pop(
                Place(ACCEPTED, number), None
            )  # as Kafka does for deleted topics
        self.cluster.create(ACCEPTED, self.plan.partitions)

    def committed(self, partition: int) -> list[Written]:
        return [item for item in self.progress.written if item.partition == partition and item.committed]

    # -- whether it has settled --------------------------------------------------------------------------------

    def rests(self) -> bool:
        cluster = self.cluster
        if not self._united() or not cluster.transactions.at_rest:
            return False
        # A holder that was fenced calls lost(groups) when its last handler has ended.
        if self.plan.sends and any(process.busy for process in self.processes):
            return False
        for log in cluster.topics[ACCEPTED].logs:
            if not log.processed_up_to(cluster.committed(ACCEPTED, log.partition)):
                return False
        return all(len(self._holders(number)) == 1 for number in range(self.plan.partitions)) and (
            not self.former or all(map(self._known, range(self.plan.partitions)))
        )

    def _known(self, partition: int) -> bool:
        written = self.committed(partition)
        return bool(written) and written[-1].progress.topic_id == self.cluster.topics[ACCEPTED].topic_id

    def _holders(self, partition: int) -> list[Consumer]:
        return [
            process
            for process in self.processes
            if process.consumer is not None
            and (held := process.consumer.partitions.get(partition)) is not None
            and not held.draining
            and partition in (process.consumer.held_partitions.assigned or ())
        ]

    def unsettled(self) -> str:
        told = []
        for log in self.cluster.topics[ACCEPTED].logs:
            place = f"{ACCEPTED}/{log.partition}"
            told.append(
                f"{place} ends at {log.end}, stable {log.stable}, committed {self.cluster.committed(ACCEPTED, log.partition)}, holders "
                f"{[holder.name for holder in self._holders(log.partition)]}"
            )
        told += self._open()
        for process in self.processes:
            consumer = process.consumer
            said = "is away" if consumer is None else f"{consumer.reasons or 'waits for nothing'}"
            told.append(f"{process.name}: generation {process.generation}, {said}")
        return "; ".join(told)


def _options(plan: ConsumerSchedule, name: str) -> ConsumerOptions:
    return ConsumerOptions(
        concurrency=plan.concurrency, prefetch=plan.prefetch, records_max=plan.records_max,
        max_attempts=plan.max_attempts, lease_timeout=plan.lease_timeout, lease_idle=plan.lease_idle,
        drain_timeout=plan.drain_timeout, handler_timeout=plan.handler_timeout, name=name,
        batch=plan.batch,
    )  # fmt: skip
