"""Changes the messages of a group for one consumer group at one address, with or without a lease holder."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from app.commands.groups import lease_holders, show
from app.commands.groups.lease_holders import LeaseHolders, say_waiting
from app.commands.groups.open_letters import read_letters
from app.commands.repair.records import Refused, Selection
from ringfence_client.progress.progress_record import Progress
from ringfence_client.web import offline_drop
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import RingfenceError

FETCH_LIMIT_S: Final = 5.0
"""Time for a lease holder to fetch more messages of a group that goes to the dead letters, in seconds."""
_AGAIN_S: Final = 0.2


class GroupError(RingfenceError):
    """A change of a group is not possible now."""


class Order(NamedTuple):
    """Messages to drop."""

    name: bytes
    skip: bool
    letters: bool

    @property
    def whole(self) -> bool:
        """Whether the holder knows the number of drops. A purge includes messages it has not fetched."""
        return self.skip or self.letters


class Meant(NamedTuple):
    """Messages of one partition that the operator confirmed; later ones are not included."""

    topic_id: str
    head: int
    end: int
    depth: int


class Dropped(NamedTuple):
    """Dropped messages of one partition."""

    messages: int
    offsets: Sequence[int] = ()
    """Offsets of the dropped messages, as far as known."""


class Released(NamedTuple):
    """Partitions where the first message of a group goes on."""

    ended: list[str]
    """Its handler was ended."""
    tried_again: list[str]
    """It was parked, and its dead letter is gone."""
    parked: list[str]
    """It stays parked, because its dead letter is open."""


class ConsumerGroup:
    """One consumer group at one address, with a connection to the cluster."""

    def __init__(self, settings: Settings, address: AddressSettings, cluster: Cluster) -> None:
        self._settings = settings
        self._address = address
        self._topic = address.accepted_topic
        self._cluster = cluster
        self._group = cluster.group_id
        self._letters: set[tuple[int, int]] | None = None
        """Partition and offset of each message with an open dead letter; None = not read yet."""

    async def progresses(self) -> list[tuple[int, Progress | None]]:
        """Return each partition with its progress record.

        Raises:
            GroupError: The consumer group is unknown.
        """
        await self._cluster.groups.await_coordinator()
        found = await show.progresses(self._settings, self._address, self._cluster)
        if not await show.is_known(self._address, self._cluster, found):
            raise GroupError(
                f"the consumer group {self._group} has never consumed {self._address.name}: check the name "
                f"(`ringfence consumers show {self._address.name}`). To start a new group at an offset, use "
                "kafka-consumer-groups.sh --reset-offsets"
            )
        return list(enumerate(found))

    async def meant(self, order: Order) -> dict[int, Meant]:
        """Return the unfinished messages of each partition now."""
        meant = {}
        for number, known in await self.progresses():
            now, row = await self._unfinished(number, known, order)
            if row is not None:
                meant[number] = Meant(now.topic_id, row.head_offset, now.end, row.depth)
        return meant

    async def release(self, name: bytes) -> Released:
        """End the handler of a group's first message, or try a parked one again whose dead letter is gone."""
        done = Released([], [], [])
        for number, known in await self.progresses():
            if known is None:
                continue
            now = await show.read_position(self._cluster, self._topic, number, known)
            row = (await show.unfinished(self._settings, self._topic, number, now)).get(name.hex())
            if row is None:
                continue
            place = f"{self._topic}/{number}"
            if row.head_offset in now.progress.blocked:
                done.parked.append(f"{place}/{row.head_offset}")
                if await self._lost_letters(number, now, row):
                    await self._try_again(number, known, row.head_offset)
                    done.tried_again.append(done.parked.pop())
            elif not known.released and await self._end_handler(number, known, name):
                done.ended.append(place)
        return done

    async def _end_handler(self, number: int, known: Progress, name: bytes) -> bool:
        answer = await self._ask(known.web, number, name, "release")
        if isinstance(answer, str):
            raise GroupError(
                f"{self._topic}/{number} is held by {known.holder}, which {answer}: run this again "
                "where its web server answers, or stop that consumer; its running messages are then "
                "handled again"
            )
        return bool(answer["released"])

    async def _try_again(self, number: int, known: Progress, offset: int) -> None:
        """Let the group of a parked message go on with this message."""
        redrives = {offset: known.redriven.get(offset, 0) + 1}
        async with LeaseHolders(self._settings, self._address) as holders:
            answer = await holders.redrive(self._group, number, redrives)
        if offset not in answer.done:
            raise GroupError(f"{self._topic}/{number}/{offset} stays parked: {answer.left}")

    async def _lost_letters(
        self, number: int, now: show.PartitionPosition, row: show.GroupRow
    ) -> Sequence[int]:
        """Return the offset of the group's first message if it is parked and its dead letter is gone."""
        if row.head_offset not in now.progress.blocked:
            return ()
        if self._letters is None:
            letters = set[tuple[int, int]]()

            def keep(letter: Refused) -> None:
                if letter.accepted is not None and letter.accepted.topic == self._topic:
                    letters.add((letter.accepted.partition, letter.accepted.offset))

            own = Selection(consumer_group=self._group)
            await read_letters(self._settings, self._address.name, own, keep)
            self._letters = letters
        return () if (number, row.head_offset) in self._letters else (row.head_offset,)

    async def drop(self, order: Order, meant: Mapping[int, Meant] | None) -> tuple[dict[int, Dropped], bool]:
        """Drop the messages ``meant``, or without them all messages; return what was dropped by partition.

        The second value says whether some message was finished meanwhile.
        """
        dropped: dict[int, Dropped] = {}
        gone = False
        for number, known in await self.progresses():
            if meant is not None and number not in meant:
                continue
            asked = None if meant is None else meant[number]
            now, row = await self._unfinished(number, known, order, asked)
            if asked is not None and _has_gone(order, asked, now, row):
                gone = _report_gone(f"{self._topic}/{number}/{asked.head}")
            elif row is not None:
                done = await self._drop_in_partition(number, known, order, now, row)
                if done is None:
                    gone = _report_gone(f"{self._topic}/{number}/{row.head_offset}")
                else:
                    dropped[number] = done
        return dropped, gone

    async def _drop_in_partition(
        self,
        number: int,
        known: Progress | None,
        order: Order,
        now: show.PartitionPosition,
        row: show.GroupRow,
    ) -> Dropped | None:
        """Drop messages through the holder, or directly if there is none. None = finished meanwhile."""
        refusal = "has no web server"
        if known is not None and known.web and not known.released:
            lost = await self._lost_letters(number, now, row) if order.letters else ()
            answer = await self._ask_drop(known.web, number, order, row, now.end, lost)
            if isinstance(answer, dict):
                if answer.get("gone"):
                    return None
                count = answer["dropped"] if order.whole else max(0, row.depth - answer["acquired"])
                return Dropped(count, answer.get("offsets", ()))
            refusal = answer
        if await self._cluster.groups.state() not in NO_MEMBERS:
            raise GroupError(
                f"{self._topic}/{number} is held by {known.holder if known else 'a consumer'}, which {refusal}: run this again in a moment, "
                "where its web server can be reached; or stop the group's consumers first"
            )
        if order.letters:
            raise GroupError(
                f"no consumer has {self._topic}/{number}, and only its consumer writes dead letters: start "
                f"a consumer of {self._group} and run this again, or leave --to-dlq out"
            )
        end = row.head_offset + 1 if order.skip else now.end
        await offline_drop.drop_below(
            self._settings, self._address, self._cluster, number, order.name, end, now.topic_id, say_waiting
        )  # fmt: skip
        return Dropped(1, [row.head_offset]) if order.skip else Dropped(row.depth)

    async def _unfinished(
        self, number: int, known: Progress | None, order: Order, asked: Meant | None = None
    ) -> tuple[show.PartitionPosition, show.GroupRow | None]:
        """Return the messages of the group in a partition, up to the end that the operator confirmed."""
        now = await show.read_position(self._cluster, self._topic, number, known)
        if asked is not None:
            now = now._replace(end=min(now.end, asked.end))
        rows = await show.unfinished(self._settings, self._topic, number, now)
        return now, rows.get(order.name.hex())

    async def _ask_drop(
        self, web: str, number: int, order: Order, row: show.GroupRow, below: int, lost: Sequence[int]
    ) -> dict[str, Any] | str:
        """Ask the holder to drop messages, for a purge only below the offset ``below``.

        A holder writes only fetched messages to the dead letters, so it is asked again until all are written.
        ``lost``: parked messages that get another dead letter.
        """
        offsets: list[int] = []
        moved_at = time.monotonic()
        verb = "skip" if order.skip else "purge"
        details = {"letters": order.letters, "head": row.head_offset, "below": below, "lost": list(lost)}
        while True:
            answer = await self._ask(web, number, order.name, verb, **details)
            if isinstance(answer, str) or order.skip or not order.letters:
                return answer
            offsets += answer.get("offsets", ())
            if answer["dropped"]:
                moved_at = time.monotonic()
            # The process that runs the group's first message has all fetched messages. Others have just
            # arrived, or are not fetched yet.
            stalled = time.monotonic() - moved_at > FETCH_LIMIT_S
            if len(offsets) >= row.depth or answer["acquired"] or stalled:
                return {**answer, "dropped": len(offsets), "offsets": offsets}
            await asyncio.sleep(_AGAIN_S)

    async def _ask(
        self, web: str, number: int, name: bytes, verb: str, **details: Any
    ) -> dict[str, Any] | str:
        order = {"consumer_group": self._group, "topic": self._topic, "partition": number, **details}
        order["group"] = name.hex()
        return await lease_holders.send_order(self._settings.app, web, f"groups/{verb}", order)


def _has_gone(order: Order, asked: Meant, now: show.PartitionPosition, row: show.GroupRow | None) -> bool:
    """Return whether the confirmed messages are finished; for a skip, whether another one is first now."""
    if now.topic_id != asked.topic_id:
        return True
    return order.skip and (row is None or row.head_offset != asked.head)


def _report_gone(place: str) -> bool:
    click.echo(
        f"gone     {place}  it was handled or dropped meanwhile, so another message is the first one; no other "
        "one was dropped"
    )
    return True
