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
from app.commands.repair.records import FilterCounts, Place, RedriveOptions, Refused, Selection, Wanted
from app.commands.repair.redrive_log import RedriveLog, RedrivePartition
from app.commands.repair.scan import Act, opened, scan
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

    def __init__(self, log: RedriveLog, options: RedriveOptions) -> None:
        self.log = log
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
    """Quarantine or dead-letter topic, with the commands.

    A command returns 0 if it has done all, and 1 if there was nothing to do, or records are left.

    Raises:
        MissingTopicError: The target topic does not exist.
        RepairError: Another redrive has started, or a write failed.
        BrokerUnavailableError: The cluster does not answer.
    """

    what: ClassVar[str]
    """Name of its records, in one or two words."""
    show_verb: Sequence[str]
    """Command that shows one of its records, without ``ringfence`` and the place."""
    only_own = False
    """Whether records of other applications are left alone."""

    def __init__(self, kafka: KafkaSettings, app_id: str, topic: str, replication_factor: int) -> None:
        """Take the ``replication_factor`` of the progress topic, if a command has to create it."""
        self.kafka = kafka
        self.app_id = app_id
        self.topic = topic
        self.replication_factor = replication_factor

    @abstractmethod
    def group_of(self, record: Any) -> bytes | None:
        """Return the group of a record."""

    @abstractmethod
    def outcome(self, *, dry_run: bool) -> str:
        """Return the outcome of redriven records, in words."""

    def require_redrivable(self) -> None:  # noqa: B027
        """Check, before reading, that records may be redriven."""

    @abstractmethod
    def redriver(self, log: RedriveLog, options: RedriveOptions) -> AbstractAsyncContextManager[Redriver]:
        """Yield an object that redrives records."""

    async def waiting(self, rows: Sequence[Row]) -> Mapping[Place, bool | None]:
        """Return whether groups wait behind these records; None = unknown."""
        return {}

    @asynccontextmanager
    async def unblocker(self, log: RedriveLog, *, dry_run: bool) -> AsyncIterator[Unblock | None]:
        """Yield a function that unblocks groups behind dropped records; None = none waits."""
        yield None

    def _open(self, *, writes: bool = False) -> AbstractAsyncContextManager[RedriveLog]:
        return opened(self.kafka, self.app_id, self.topic, writes=self.replication_factor if writes else None)

    def _wanted(self, selection: Selection, *, settled_too: bool = False, limit: int | None = None) -> Wanted:
        return Wanted(selection, self.group_of, settled_too, limit, self.app_id if self.only_own else "")

    def list_records(self, selection: Selection, *, settled_too: bool, as_json: bool) -> int:
        """Print the open records, or with ``settled_too`` all records."""
        wanted = self._wanted(selection, settled_too=settled_too)

        async def read() -> list[Row]:
            async with self._open() as log:
                rows = await _rows(log, wanted)
                waits = await self.waiting(rows)
                return [row._replace(waits=waits.get(row.refused.place, False)) for row in rows]

        rows = asyncio.run(read())
        output.show_rows(self.topic, rows, wanted, self.what, as_json=as_json)
        _note_foreign(wanted)
        if rows and not as_json:
            place = rows[0].refused.place
            suggest(*self.show_verb, f"{place.partition}/{place.offset}")
        return 0

    def show_record(self, at: tuple[int, int], *, as_json: bool) -> int:
        """Print one record completely."""
        wanted = self._wanted(Selection(at=[at]), settled_too=True)

        async def read() -> list[Row]:
            async with self._open() as log:
                return await _rows(log, wanted, whole=True)

        rows = asyncio.run(read())
        if rows:
            output.show_one(rows[0], as_json=as_json)
        else:
            text = f"nothing  {self.topic} has no record {at[0]}/{at[1]}: `list` shows what there is"
            click.echo(text, err=True)
        _note_foreign(wanted)
        return 0 if rows else NOTHING

    def redrive(self, selection: Selection, options: RedriveOptions) -> int:
        """Redrive the selected open records."""
        self.require_redrivable()
        wanted = self._wanted(selection, limit=options.limit)
        result = asyncio.run(self._redrive(wanted, options))
        _note_foreign(wanted)
        return result.report(wanted, self.what, self.outcome(dry_run=options.dry_run))

    async def _redrive(self, wanted: Wanted, options: RedriveOptions) -> Result:
        async with self._open(writes=not options.dry_run) as log, self.redriver(log, options) as redriver:

            async def act(partition: RedrivePartition, records: Sequence[Refused]) -> None:
                for chunk in _chunks(records, redriver.rate_limit.chunk):
                    await redriver.redrive(partition, chunk)

            if options.dry_run:
                await _work(log, wanted, redriver.try_out, "looking at records", redriver.result)
            else:
                await _work(log, wanted, act, "redriving records", redriver.result, writes=True)
            return redriver.result

    def drop(self, selection: Selection, *, dry_run: bool, yes: bool) -> int:
        """Settle the selected open records without handling them. ``yes``: do not ask."""
        wanted = self._wanted(selection)
        result = asyncio.run(self._drop(wanted, dry_run=dry_run, yes=yes))
        _note_foreign(wanted)
        return result.report(wanted, self.what, "would be dropped" if dry_run else "dropped")

    async def _drop(self, wanted: Wanted, *, dry_run: bool, yes: bool) -> Result:
        async with self._open(writes=not dry_run) as log, self.unblocker(log, dry_run=dry_run) as unblock:
            rows = await _rows(log, wanted)
            if dry_run:
                for row in rows:
                    output.say(f"would drop  {output.line(row.refused)}")
                return Result(len(rows))
            result = Result()
            if not rows:
                return result
            question = f"Drop {len(rows)} {self.what} of {self.topic}? They will never be processed"
            confirmed(question, yes=yes)
            # the operator has not confirmed records that came later
            confirmed_places = {row.refused.place for row in rows}

            async def act(partition: RedrivePartition, records: Sequence[Refused]) -> None:
                for chunk in _chunks([item for item in records if item.place in confirmed_places], CHUNK_MAX):
                    left = await unblock(chunk) if unblock else []
                    for refused, reason in left:
                        result.leave(refused, reason)
                    kept = {refused.place for refused, _ in left}
                    dropped = [refused for refused in chunk if refused.place not in kept]
                    if dropped:
                        await partition.settle([refused.place.offset for refused in dropped])
                    for refused in dropped:
                        output.say(f"dropped  {output.line(refused)}")
                    result.done += len(dropped)

            again = replace(wanted, passed=FilterCounts())  # the first scan has counted
            await _work(log, again, act, f"dropping {self.what}", result, writes=True)
            return result


async def _rows(log: RedriveLog, wanted: Wanted, *, whole: bool = False) -> list[Row]:
    """Read the wanted records, the oldest first. Values, which may be large, are kept only with ``whole``."""
    rows: list[Row] = []

    async def keep(partition: RedrivePartition, records: Sequence[Refused]) -> None:
        for refused in records:
            kept = refused if whole else replace(refused, value=None)
            rows.append(Row(kept, wanted.group_of(refused), partition.is_settled(refused.place.offset)))

    with reading(log.topic):
        await scan(log, wanted, keep)
    return sorted(rows, key=lambda row: (row.refused.timestamp, row.refused.place))


async def _work(
    log: RedriveLog, wanted: Wanted, act: Act, step: str, result: Result, *, writes: bool = False
) -> None:
    done = "done" if writes else "would be done"
    with steps() as progress, observed(progress.add_records):
        progress.start_step(f"{step} of {log.topic}")
        progress.count(
            lambda: (
                f"{counted(progress.records, 'record')} read, {result.done:,} {done}, {len(result.left):,} left"
            )
        )
        await scan(log, wanted, act, writes=writes)


def _chunks(records: Sequence[Refused], size: int) -> Iterator[Sequence[Refused]]:
    for begin in range(0, len(records), size):
        yield records[begin : begin + size]


def _note_foreign(wanted: Wanted) -> None:
    if text := wanted.passed.foreign_note:
        click.echo(f"note: {printable(text)}", err=True)
