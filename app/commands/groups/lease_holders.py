"""Lease holders of an accepted topic's partitions, for repairs of dead letters of their consumer groups."""

from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self

import aiohttp
import click

from app.commands.groups import show
from ringfence_client.progress.lease import LostError
from ringfence_client.progress.progress_record import Progress
from ringfence_client.web import offline_drop
from ringfence_client.window.window import Window
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.config.settings import AddressSettings, AppSettings, Settings
from ringfence_kafka.errors import RepairError
from ringfence_kafka.http import probe_errors
from ringfence_kafka.http.auth import session
from ringfence_kafka.http.probe_errors import ProbeError
from ringfence_kafka.ownership.partition_state import NotOwnerError

ANSWER_LIMIT_S: Final = 30.0
"""Time for a lease holder to write the change, in seconds."""


class ConsumerAnswer(NamedTuple):
    """Answer of a lease holder, or the outcome without one."""

    done: Collection[int]
    """Offsets that are changed, now or before."""
    left: str = ""
    """Reason why the other offsets are not changed."""


def say_waiting(text: str) -> None:
    """Print whose lease must expire first."""
    click.echo(f"{text}; waiting until its lease expires", err=True)


class LeaseHolders:
    """Lease holders of the partitions of one accepted topic. A context manager that disconnects."""

    def __init__(self, settings: Settings, address: AddressSettings) -> None:
        self._settings = settings
        self._address = address
        self._clusters: dict[str, Cluster] = {}
        self._progresses: dict[str, Sequence[Progress | None]] = {}
        self._topic_id = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for cluster in self._clusters.values():
            await cluster.stop()

    async def progresses(self, group: str) -> Sequence[Progress | None]:
        """Return the progress records by partition, as first read."""
        if group not in self._clusters:
            cluster = Cluster(self._settings.kafka, group)
            await cluster.start()
            self._clusters[group] = cluster
            await cluster.groups.await_coordinator()
            self._progresses[group] = await show.progresses(self._settings, self._address, cluster)
            self._topic_id = (await cluster.topics.identity(self._address.accepted_topic)).topic_id
        return self._progresses[group]

    async def blocked(self, group: str) -> set[tuple[int, int]]:
        """Return partitions and offsets behind which message groups wait, by the last progress records."""
        found = await self.progresses(group)
        return {
            (number, offset)
            for number, item in enumerate(found)
            if item is not None and item.topic_id == self._topic_id
            for offset in item.blocked
        }

    async def is_unknown(self, group: str, partition: int) -> bool:
        """Return whether a group without members has neither a progress record nor an offset in a partition.

        A redrive would create a progress record at the start of the log, which overrides ``--start`` of a new
        consumer.
        """
        if (await self.progresses(group))[partition] is not None:
            return False
        cluster = self._clusters[group]
        return (
            await cluster.groups.state() in NO_MEMBERS
            and await cluster.groups.committed_offset(self._address.accepted_topic, partition) is None
        )

    async def redrive(self, group: str, partition: int, redrives: Mapping[int, int]) -> ConsumerAnswer:
        """Have messages of a partition handled again. ``redrives``: offset → number of the redrive. Raises as :meth:`change` does."""

        def change(window: Window) -> None:
            for offset, number in sorted(redrives.items()):
                window.redrive(offset, number)

        return await self.change(group, partition, redrives, "redrive", change)

    async def change(
        self,
        group: str,
        partition: int,
        letters: Mapping[int, int],
        verb: str,
        change: Callable[[Window], Any],
    ) -> ConsumerAnswer:
        """Have the holder of a partition ``redrive`` or ``drop`` (``verb``) messages.

        If no consumer holds it, this process takes the lease for a moment and applies ``change``.
        ``letters``: offset → number of the redrive.

        Raises:
            RepairError: A consumer started meanwhile.
        """
        known = (await self.progresses(group))[partition]
        cluster, topic = self._clusters[group], self._address.accepted_topic
        web = "" if known is None or known.released else known.web
        order: dict[str, Any] = {"consumer_group": group, "topic": topic, "partition": partition}
        order |= {"topic_id": self._topic_id, "letters": sorted(letters.items())}
        answer = await send_order(self._settings.app, web, f"letters/{verb}", order)
        if isinstance(answer, dict):
            return _parsed(answer, letters)
        if await cluster.groups.state() not in NO_MEMBERS:
            # the holder may have changed, so the next call must ask the new one
            self._progresses[group] = await show.progresses(self._settings, self._address, cluster)
            return ConsumerAnswer(
                (),
                f"{group} holds {topic}/{partition}, and its consumer {answer}: run this again in a moment, where "
                "its web server can be reached; or stop the group's consumers first",
            )
        try:
            await offline_drop.change(
                self._settings, self._address, cluster, partition, change, self._topic_id, say_waiting
            )
        except (NotOwnerError, LostError) as error:
            raise RepairError(
                f"a consumer of {group} took {topic}/{partition} meanwhile: run this again; finished changes stay"
            ) from error
        return ConsumerAnswer(letters.keys())


def _parsed(answer: Mapping[str, Any], letters: Mapping[int, int]) -> ConsumerAnswer:
    if answer.get("full"):
        # repeating the call does not change messages that wait already
        return ConsumerAnswer(
            (), "too many redriven messages wait there already: run this again later, or with --rate"
        )
    busy = set(answer.get("busy", ()))
    why = "its consumer is about to write it: run this again" if busy else ""
    return ConsumerAnswer(letters.keys() - busy, why)


async def send_order(app: AppSettings, web: str, path: str, body: dict[str, Any]) -> dict[str, Any] | str:
    """Return the holder's answer, or why there is none. Its address may belong to another program."""
    if not web:
        return "has no web server"
    try:
        async with session(app, ANSWER_LIMIT_S) as asking, asking.post(f"{web}/{path}", json=body) as answer:
            if answer.status == HTTPStatus.UNAUTHORIZED:
                return _silent(web, probe_errors.token(app))
            said = dict(await answer.json())
            return said if answer.ok else f"refuses ({said.get('error', answer.status)})"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        return _silent(web, probe_errors.fault(app, error))


def _silent(web: str, why: ProbeError | None) -> str:
    return f"does not answer at {web}" if why is None else f"cannot be asked at {web} ({why})"
