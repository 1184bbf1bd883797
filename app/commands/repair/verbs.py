"""List, show, redrive and drop: the common part of ``ringfence quarantine`` and ``ringfence dlq``."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final

import click

from app.commands.confirmation import confirmed
from app.commands.repair import output
from app.commands.repair.output import NOTHING, Result, Row
from app.commands.repair.records import Place, RedriveOptions, Refused, Selection, Wanted
from app.commands.repair.redrive_log import RedrivePartition
from app.commands.repair.scan import Act, OpenTopic, opened, scan
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.escaping import printable
from ringfence_kafka.process.command_line import suggest
from ringfence_kafka.process.step_progress import reading, steps
from ringfence_kafka.readers.read_counts import observed
from ringfence_kafka.wording import counted

CHUNK_MAX: Final = 500
"""Maximum number of records in one transaction."""
CHUNKS_PER_S: Final = 5

Unblock = Callable[[Sequence[Refused]], Awaitable[list[tuple[Refused, str]]]]
"""Function for each chunk before it is settled. Returns records that cannot be dropped, with the reason."""


class RateLimit:
    """Rate limit of one command."""

    def __init__(self, rate: float | None) -> None:
        """Take the ``rate`` in records per second; None = no limit."""
        self._rate = rate
        self._due: float | None = None
        self.chunk = CHUNK_MAX if rate is None else max(1, min(CHUNK_MAX, int(rate / CHUNKS_PER_S)))

    async def wait(self, count: int) -> None:
        """Wait until ``count`` more records are due."""
        if self._rate is None:
            return
        now = asyncio.get_running_loop().time()
        due = now if self._due is None else max(now, self._due)
        self._due = due + count / self._rate
        await asyncio.sleep(due - now)


class Redriver(ABC):
    """Redrives records of one topic."""

    def __init__(self, options: RedriveOptions) -> None:
        self.options = options
        self.rate_limit = RateLimit(options.rate)
        self.result = Result()

    @abstractmethod
    async def redrive(self, partition: RedrivePartition, chunk: Sequence[Refused]) -> None:
        """Redrive these records and settle them, or skip them with a reason."""

    @abstractmethod
    async def try_out(self, partition: RedrivePartition, records: Sequence[Refused]) -> None:
        """Print what a redrive would do."""


class RepairTopic(ABC):
    """Quarantine or dead-letter topic, with the actions of the commands."""

    what: ClassVar[str]
    """Name of its records, in one or two words."""
    show_verb: Sequence[str]
    """Command that shows one of its records, without ``ringfence`` and the place."""

    def __init__(self, kafka: KafkaSettings, app_id: str, topic: str, replication_factor: int) -> None:
        """Take the ``replication_factor`` of the progress topic, if a command has to create it."""
        self.kafka = kafka
        self.app_id = app_id
        self.topic = topic
        self.replication_factor = replication_factor

    def open(self, *, writes: bool = False) -> AbstractAsyncContextManager[OpenTopic]:
        """Connect. ``writes``: records will be settled."""
        return opened(self.kafka, self.app_id, self.topic, writes=self.replication_factor if writes else None)

    def wanted(self, selection: Selection, *, settled_too: bool = False, limit: int | None = None) -> Wanted:
        """Return the records that a command works on."""
        return Wanted(selection, self.group_of, settled_too=settled_too, limit=limit)

    @abstractmethod
    def group_of(self, record: Any) -> bytes | None:
        """Return the group of a record."""

    @abstractmethod
    def outcome(self, *, dry_run: bool) -> str:
        """Return the outcome of redriven records, in words."""

    def require_redrivable(self) -> None:  # noqa: B027
        """Check, before reading, that records may be redriven."""

    @abstractmethod
    def redriver(self, topic: OpenTopic, options: RedriveOptions) -> AbstractAsyncContextManager[Redriver]:
        """Yield an object that redrives records."""

    async def waiting(self, rows: Sequence[Row]) -> Mapping[Place, bool | None]:
        """Return whether groups wait behind these records; None = unknown."""
        return {}

    @asynccontextmanager
    async def unblocker(self, topic: OpenTopic, *, dry_run: bool) -> AsyncIterator[Unblock]:
        """Yield a function that unblocks groups behind dropped records."""

        async def nothing_waits(_: Sequence[Refused]) -> list[tuple[Refused, str]]:
            return []

        yield nothing_waits


def list_records(topic: RepairTopic, selection: Selection, *, settled_too: bool, as_json: bool) -> int:
    """Print the open records, or with ``settled_too`` all records; return 0.

    Raises:
        BrokerUnavailableError: The cluster does not answer.
    """
    wanted = topic.wanted(selection, settled_too=settled_too)

    async def read() -> list[Row]:
        async with topic.open() as found:
            rows = await _rows(found, wanted)
            waits = await topic.waiting(rows)
            return [row._replace(waits=waits.get(row.refused.place, False)) for row in rows]

    rows = asyncio.run(read())
    output.show_rows(topic.topic, rows, wanted, topic.what, as_json=as_json)
    _note_foreign(wanted)
    if rows and not as_json:
        place = rows[0].refused.place
        suggest(*topic.show_verb, f"{place.partition}/{place.offset}")
    return 0


def show_record(topic: RepairTopic, at: tuple[int, int], *, as_json: bool) -> int:
    """Print one record completely; return 1 if it does not exist. Raises as :func:`list_records` does."""
    wanted = topic.wanted(Selection(at=[at]), settled_too=True)

    async def read() -> list[Row]:
        async with topic.open() as found:
            return await _rows(found, wanted, whole=True)

    rows = asyncio.run(read())
    if rows:
        output.show_one(rows[0], as_json=as_json)
    else:
        text = f"nothing  {topic.topic} has no record {at[0]}/{at[1]}: `list` shows what there is"
        click.echo(text, err=True)
    _note_foreign(wanted)
    return 0 if rows else NOTHING


def redrive(topic: RepairTopic, selection: Selection, options: RedriveOptions) -> int:
    """Redrive the selected open records.

    Returns:
        0 all are redriven, or would be; 1 there are none, or some are skipped.

    Raises:
        MissingTopicError: The target topic does not exist.
        RepairError: Another redrive has started, or a write failed.
        BrokerUnavailableError: The cluster does not answer.
    """
    topic.require_redrivable()
    wanted = topic.wanted(selection, limit=options.limit)
    result = asyncio.run(_redrive(topic, wanted, options))
    _note_foreign(wanted)
    return result.report(wanted, topic.what, topic.outcome(dry_run=options.dry_run))


async def _redrive(topic: RepairTopic, wanted: Wanted, options: RedriveOptions) -> Result:
    async with topic.open(writes=not options.dry_run) as found, topic.redriver(found, options) as redriver:

        async def act(partition: RedrivePartition, records: Sequence[Refused]) -> None:
            for chunk in _chunks(records, redriver.rate_limit.chunk):
                await redriver.redrive(partition, chunk)

        if options.dry_run:
            await _work(found, wanted, Act(redriver.try_out), "looking at records", redriver.result)
        else:
            await _work(found, wanted, Act(act, writes=True), "redriving records", redriver.result)
        return redriver.result


def drop(topic: RepairTopic, selection: Selection, *, dry_run: bool, yes: bool) -> int:
    """Settle the selected open records without handling them. Returns and raises as :func:`redrive` does."""
    wanted = topic.wanted(selection)
    result = asyncio.run(_drop(topic, wanted, dry_run=dry_run, yes=yes))
    _note_foreign(wanted)
    return result.report(wanted, topic.what, "would be dropped" if dry_run else "dropped")


async def _drop(topic: RepairTopic, wanted: Wanted, *, dry_run: bool, yes: bool) -> Result:
    async with topic.open(writes=not dry_run) as found, topic.unblocker(found, dry_run=dry_run) as unblock:
        rows = await _rows(found, wanted)
        if dry_run:
            for row in rows:
                output.say(f"would drop  {output.line(row.refused)}")
            return Result(len(rows))
        result = Result()
        if not rows:
            return result
        confirmed(f"Drop {len(rows)} {topic.what} of {topic.topic}? They will never be processed", yes=yes)
        # the operator has not confirmed records that came later
        confirmed_places = {row.refused.place for row in rows}

        async def act(partition: RedrivePartition, records: Sequence[Refused]) -> None:
            for chunk in _chunks([item for item in records if item.place in confirmed_places], CHUNK_MAX):
                left = await unblock(chunk)
                for refused, reason in left:
                    result.leave(refused, reason)
                kept = {refused.place for refused, _ in left}
                dropped = [refused for refused in chunk if refused.place not in kept]
                if dropped:
                    await partition.settle([refused.place.offset for refused in dropped])
                for refused in dropped:
                    output.say(f"dropped  {output.line(refused)}")
                result.add_done(len(dropped))

        await _work(found, wanted, Act(act, writes=True), f"dropping {topic.what}", result)
        return result


async def _rows(topic: OpenTopic, wanted: Wanted, *, whole: bool = False) -> list[Row]:
    """Read the wanted records, the oldest first. Values, which may be large, are kept only with ``whole``."""
    rows: list[Row] = []

    async def keep(partition: RedrivePartition, records: Sequence[Refused]) -> None:
        for refused in records:
            kept = refused if whole else replace(refused, value=None)
            rows.append(Row(kept, wanted.group_of(refused), partition.is_settled(refused.place.offset)))

    with reading(topic.log.topic):
        await scan(topic, wanted, Act(keep))
    return sorted(rows, key=lambda row: (row.refused.timestamp, row.refused.place))


async def _work(topic: OpenTopic, wanted: Wanted, act: Act, step: str, result: Result) -> None:
    done = "done" if act.writes else "would be done"
    with steps() as progress, observed(progress.add_records):
        progress.start_step(f"{step} of {topic.log.topic}")
        progress.count(
            lambda: (
                f"{counted(progress.records, 'record')} read, {result.done:,} {done}, {len(result.left):,} left"
            )
        )
        await scan(topic, wanted, act)


def _chunks(records: Sequence[Refused], size: int) -> Iterator[Sequence[Refused]]:
    for begin in range(0, len(records), size):
        yield records[begin : begin + size]


def _note_foreign(wanted: Wanted) -> None:
    if text := wanted.passed.foreign_note:
        click.echo(f"note: {printable(text)}", err=True)
