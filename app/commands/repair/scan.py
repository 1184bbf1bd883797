"""Reads a quarantine or dead-letter topic, and hands out what is meant of it."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.commands.repair.redrive_log import RedriveLog, RedrivePartition
from app.commands.repair.refused_record import Refused, read
from app.commands.repair.selection import FilterCounts, Selection
from ringfence_kafka.readers import log_reader


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a verb is about."""

    selection: Selection
    group_of: Callable[[Any], bytes | None]
    """The group of a record, as its address has it."""
    settled_too: bool = False
    limit: int | None = None
    """So many records, and no more."""
    app_id: str = ""
    """Of what bridges of one name have refused, this application's; empty = all."""
    passed: FilterCounts = field(default_factory=FilterCounts)
    """What else was open where it was looked."""

    def takes(self, refused: Refused, record: Any, now_ms: float, *, is_open: bool) -> bool:
        """Whether this one is meant; an open one that is not is counted."""
        if self.app_id and refused.app_id not in {"", self.app_id}:
            self.passed.foreign[refused.app_id] += 1
            return False
        if self.selection.takes(refused, self.group_of(record), now_ms):
            return True
        if is_open:
            self.passed.add(refused)
        return False


class Act(NamedTuple):
    """What is done with what was found of one partition."""

    do: Callable[[RedrivePartition, Sequence[Refused]], Awaitable[None]]
    writes: bool = False
    """The partition is taken before it is looked at."""


async def scan(topic: RedriveLog, partitions: int, wanted: Wanted, act: Act) -> None:
    """Read each partition up to its end as it is now, and do it with what is meant, in order, as it is read.

    Records that come meanwhile are left: what is redriven and refused again does not go round.
    """
    wanted.passed.clear()
    now_ms = time.time() * 1000
    left = wanted.limit
    at = {number for number, _ in wanted.selection.at}
    ends = await topic.cluster.offsets.stable_ends([(topic.topic, index) for index in range(partitions)])
    for number in range(partitions):
        if (at and number not in at) or left == 0:
            continue
        partition = topic.partition(number)
        try:
            if act.writes:
                await partition.take()
            await partition.look()
            left = await _one(topic, partition, ends[topic.topic, number], wanted, act, now_ms, left)
        finally:
            await partition.close()


class _EnoughError(Exception):
    """Ends a reading."""


async def _one(
    topic: RedriveLog,
    partition: RedrivePartition,
    end: int,
    wanted: Wanted,
    act: Act,
    now_ms: float,
    left: int | None,
) -> int | None:
    """Returns how many more records are wanted."""
    begin = partition.begin

    async def consume(records: Sequence[Any]) -> None:
        nonlocal left
        found = []
        for record in records:
            if record.offset >= end or left == 0:
                break
            is_open = partition.seen(record.offset) if record.offset >= begin else False
            if not is_open and not wanted.settled_too:
                continue
            refused = read(topic.topic, record)
            if wanted.takes(refused, record, now_ms, is_open=is_open):
                found.append(refused)
                left = None if left is None else left - 1
        if found:
            await act.do(partition, found)
        if left == 0:
            raise _EnoughError

    start = begin
    if wanted.settled_too:
        start = await topic.cluster.offsets.log_start(topic.topic, partition.number)
    if wanted.selection.at and not act.writes:  # who settles something has to know what lies before it
        offsets = [offset for number, offset in wanted.selection.at if number == partition.number]
        start, end = max(start, min(offsets)), min(end, max(offsets) + 1)
    with contextlib.suppress(_EnoughError):
        await log_reader.read(topic.kafka, topic.topic, partition.number, start, end, consume)
    return left
