"""What ``ringfence quarantine`` and ``ringfence dlq`` have in common: to open a topic, to list, show and drop."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import click
from aiokafka.errors import KafkaError

from app.commands.confirmation import confirmed
from app.commands.repair import output
from app.commands.repair.rate_limit import CHUNK_MAX
from app.commands.repair.redrive_log import RedriveLog, RedrivePartition
from app.commands.repair.refused_record import Place, Refused
from app.commands.repair.result import NOTHING, Result, none_open
from app.commands.repair.scan import Act, Wanted, scan
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError, named
from ringfence_kafka.process.step_progress import reading, steps
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogStalledError
from ringfence_kafka.readers.read_counts import observed
from ringfence_kafka.wording import counted


class Opened(NamedTuple):
    """A topic that is there."""

    topic: RedriveLog
    cluster: Cluster
    partitions: int


@asynccontextmanager
async def opened(
    kafka: KafkaSettings, app_id: str, name: str, *, writes: int | None = None
) -> AsyncIterator[Opened]:
    """A quarantine or dead-letter topic; no partitions = it does not exist.

    ``writes``: something will be settled, and the replication factor of the progress topic, if that is missing.

    Raises:
        BrokerUnavailableError: the cluster does not answer, or refuses.
    """
    async with Cluster(kafka, wire_names.repair_group(app_id)) as cluster:
        topic = RedriveLog(kafka, app_id, cluster, name)
        try:
            yield Opened(topic, cluster, await topic.open(writes))
        except (KafkaError, LogStalledError, TimeoutError) as error:
            raise BrokerUnavailableError(
                f"{name}: {named(error)}: look at the brokers and at this user's rights, and run it again"
            ) from error
        finally:
            await topic.close()


async def listed(found: Opened, wanted: Wanted, *, whole: bool = False) -> list[tuple[Refused, bool]]:
    """All that is meant, and whether each is settled; the oldest first. Values, which may be large, only with ``whole``."""
    rows: list[tuple[Refused, bool]] = []

    async def keep(partition: RedrivePartition, those: Sequence[Refused]) -> None:
        for refused in those:
            kept = refused if whole else replace(refused, value=None)
            rows.append((kept, partition.is_settled(refused.place.offset)))

    with reading(found.topic.topic):
        await scan(found.topic, found.partitions, wanted, Act(keep))
    return sorted(rows, key=lambda each: (each[0].timestamp, each[0].place))


def show_rows(
    topic: str,
    rows: Sequence[tuple[Refused, bool]],
    wanted: Wanted,
    what: str,
    *,
    as_json: bool,
    waits: Mapping[Place, bool | None] = MappingProxyType({}),
) -> int:
    """Print them; ``waits``: whether their groups wait behind them, None = that cannot be told. Returns 0: to have none is well."""
    told = [
        output.Row(refused, wanted.group_of(refused), done, waits.get(refused.place, False))
        for refused, done in rows
    ]
    if as_json:
        output.dump(
            [
                output.document(item.refused, item.group, settled=item.settled) | {"group_waits": item.waits}
                for item in told
            ]
        )
    elif not told:
        none = (
            f"{topic} has no record of them"
            if wanted.settled_too and wanted.selection.everything
            else none_open(what, wanted)
        )
        click.echo(f"nothing  {none}")
    else:
        output.print_rows(topic, told)
    return 0


def show_one(
    topic: str, at: tuple[int, int], rows: Sequence[tuple[Refused, bool]], group_of: Any, *, as_json: bool
) -> int:
    """Print all of one record; 1 = it is not there."""
    if not rows:
        click.echo(f"nothing  {topic} has no record {at[0]}/{at[1]}: `list` shows what there is", err=True)
        return NOTHING
    refused, done = rows[0]
    if as_json:
        output.dump(output.document(refused, group_of(refused), settled=done) | output.content(refused))
    else:
        output.print_one(refused, group_of(refused), settled=done)
    return 0


async def _none(_: Sequence[Refused]) -> list[tuple[Refused, str]]:
    return []


async def drop(
    found: Opened,
    wanted: Wanted,
    *,
    dry_run: bool,
    yes: bool,
    what: str,
    before: Callable[[Sequence[Refused]], Awaitable[list[tuple[Refused, str]]]] = _none,
) -> Result:
    """Settle what is meant without doing anything for it.

    ``before`` is called with each chunk first; what it returns cannot be dropped, with why.
    """
    result = Result()
    rows = await listed(found, wanted)
    if dry_run:
        for refused, _ in rows:
            output.say(f"would drop  {output.line(refused)}")
        return Result(len(rows))
    if not rows:
        return result
    confirmed(f"Drop {len(rows)} {what} of {found.topic.topic}? They will not be done", yes=yes)
    # What has come since is not what was asked about.
    meant = {refused.place[1:] for refused, _ in rows}

    async def act(partition: RedrivePartition, those: Sequence[Refused]) -> None:
        chosen = [refused for refused in those if refused.place[1:] in meant]
        for begin in range(0, len(chosen), CHUNK_MAX):
            chunk = chosen[begin : begin + CHUNK_MAX]
            left = await before(chunk)
            for refused, reason in left:
                result.leave(refused, reason)
            kept = {refused.place for refused, _ in left}
            if not (chunk := [refused for refused in chunk if refused.place not in kept]):
                continue
            await partition.settle([refused.place.offset for refused in chunk])
            for item in chunk:
                output.say(f"dropped  {output.line(item)}")
            result.done += len(chunk)

    await worked(found, wanted, Act(act, writes=True), f"dropping {what}", result)
    return result


async def worked(found: Opened, wanted: Wanted, act: Act, what: str, result: Result) -> None:
    """Do it with all that is meant, and report progress.

    Args:
        found: The topic.
        wanted: The records that are meant.
        act: Is done with them.
        what: The name of the step.
        result: Counts them.
    """
    with steps() as progress, observed(progress.add):
        progress.begin(f"{what} of {found.topic.topic}")
        progress.count(
            lambda: (
                f"{counted(progress.records, 'record')} read, {result.done:,} done, {len(result.left):,} left"
            )
        )
        await scan(found.topic, found.partitions, wanted, act)
