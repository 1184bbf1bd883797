"""Evidence about a partition of the accepted topic: its messages, what handlers did, and every record of it that was ever committed."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from tests.simulator.consumers.handlers import HANDLED, Run
from tests.simulator.consumers.world import ConsumerWorld, Input, Written
from tests.simulator.names import ACCEPTED

Finished = Callable[[int], bool]


class Letter(NamedTuple):
    """A dead letter."""

    transaction: int
    """Number of the transaction that wrote it; all dead letters of a message have one transactional ID."""
    at: float


def letters_of(world: ConsumerWorld) -> dict[bytes, list[Letter]]:
    found: dict[bytes, list[Letter]] = defaultdict(list)
    for log in world.letters:
        for item in log.committed():
            if item.part is not None:
                letter = Letter(item.part.number, log.times[item.offset])
                found[dict(item.headers)["t"] or b""].append(letter)
    return found


class Evidence:
    """Evidence about one partition of one topic of the name. Until a replacement is noticed, its messages may be handled as the old topic's."""

    def __init__(
        self, world: ConsumerWorld, partition: int, of: Input, letters: dict[bytes, list[Letter]]
    ) -> None:
        self.world = world
        self.partition = partition
        self.name = f"{ACCEPTED}/{partition}"
        self.of = of
        self.messages = of.messages
        written = world.committed(partition)
        self.written = [
            item for item in written if item.progress.topic_id == of.topic_id and item.made_at < of.until
        ]
        self.finished = [finished(item) for item in self.written]
        own = {item.progress.token for item in self.written}
        others = {item.progress.token for item in written} - own
        numbers = {message.number for message in of.messages.values()}
        runs = [run for run in world.handling.runs if run.partition == partition and run.number in numbers]
        self.runs = [run for run in runs if run.token not in others and run.begin < of.until]
        self.first: dict[int, Written] = {}
        self.last: dict[int, int] = {}
        for number, record in enumerate(self.written):
            self.first.setdefault(record.progress.token, record)
            self.last[record.progress.token] = number
        self.stale = [run for run in runs if run.token in others and run.token > max(own, default=0)]
        """Runs of its messages under leases of another topic that came after it."""
        self.early = [run for run in runs if run.token in others and run.token < max(own, default=0)]
        """Runs of its messages before anybody knew of it, under leases of the topic that it has replaced."""
        begun_at = self.written[0].at if self.written and world.former else 0.0
        deleted = {item.offset for item in world.kept[partition]} if of.until == math.inf else set()
        ended = {run.offset for run in self.early if run.outcome == HANDLED}
        self.trimmed = {
            offset for offset in deleted if offset in ended or letters.get(of.messages[offset].number)
        }
        """Messages that were finished before the topic was noticed, and then deleted by retention: they cannot be repeated."""
        self.letters = {
            number: [item for item in known if begun_at <= item.at] for number, known in letters.items()
        }
        self.by_token: dict[int, list[Run]] = defaultdict(list)
        for run in self.runs:
            self.by_token[run.token].append(run)

    def gone(self, offset: int) -> bool:
        return offset in self.of.eaten and any(
            gap.names(ACCEPTED, self.partition, offset)
            for process in self.world.processes
            for gap in process.gaps
        )


def finished(written: Written) -> Finished:
    following, runs = written.progress.next, written.progress.finished
    if not runs:
        return lambda offset: offset < following
    return lambda offset: offset < following or any(begin <= offset < end for begin, end in runs)


def nothing(_: int) -> bool:
    return False
