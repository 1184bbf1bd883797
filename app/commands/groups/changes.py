"""``ringfence groups purge``, ``skip`` and ``release``: changes of one message group for one consumer group."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click
from aiokafka.errors import KafkaError

from app.commands.confirmation import can_ask, confirmed
from app.commands.groups import consumer_api, show
from app.commands.groups.lease_holders import say_waiting
from ringfence_client.handlers import group_names
from ringfence_client.progress.lease import LostError
from ringfence_client.progress.progress_record import Progress
from ringfence_client.web import offline_drop
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, named
from ringfence_kafka.ownership.partition_state import NotOwnerError
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import offset_ranges
from ringfence_kafka.wording import counted

FETCH_LIMIT_S: Final = 5.0
"""For a holder to fetch more of a group that goes to the dead letters."""
_AGAIN_S: Final = 0.2


Found = TypeVar("Found")


class GroupError(RingfenceError):
    """A change of a group is not possible now."""


def drop(
    settings: Settings,
    address: str,
    group: str,
    name: str,
    *,
    skip: bool,
    yes: bool = True,
    letters: bool = False,
) -> int:
    """Drop the messages of a group that nobody acquired, or (``skip``) its first message alone, for one consumer group.

    Args:
        settings: The configuration.
        address: The address of the group.
        group: The consumer group.
        name: The message group, as :func:`ringfence_client.handlers.group_names.parse` reads it.
        skip: The first message alone.
        yes: Do not ask.
        letters: Send them to the dead letters.

    Returns:
        0 dropped, 1 nothing to drop.

    Raises:
        GroupError: nobody knows this consumer group; a consumer holds it, and its web server cannot be reached or refuses; or
            consumers came meanwhile.
        BrokerUnavailableError: the cluster does not answer, or refuses.
    """
    found = settings.configured(address)
    order = _Order(group_names.parse(name), skip, letters)
    name, topic = group_names.shown(order.name), found.accepted_topic
    meant = None
    if not yes and can_ask():
        meant = _run(settings, found, group, lambda consumers: consumers.meant(order))
        if meant:
            rest = "send to the dead letters" if letters else "drop for good"
            confirmed(f"{name} at {address} for {group}: {rest} {_which(topic, meant, order)}?")
    try:
        places, gone = _run(settings, found, group, lambda consumers: consumers.drop(order, meant))
    except (NotOwnerError, LostError) as error:
        raise GroupError(
            f"a consumer of {group} came while nobody was to hold it: run this again; what was dropped stays so"
        ) from error
    except KafkaError as error:
        raise BrokerUnavailableError(
            f"{topic}: {named(error)}: look at the brokers and at this user's rights, then run this again; what was dropped stays so"
        ) from error
    dropped = {partition: place for partition, place in places.items() if place.messages}
    for partition, (count, offsets) in dropped.items():
        to = " to the dead letters" if letters else ""
        which = f": {offset_ranges.shown(offsets)}" if offsets else ""
        click.echo(f"dropped  {topic}/{partition}  {counted(count, 'message')} of {name}{to}{which}")
    if not dropped and not gone:
        held = ": a handler has its first one: `ringfence groups release` ends that"
        hint = held if order.whole and places else ""
        click.echo(f"nothing to drop  {name} has no message that {group} could drop{hint}")
    return 0 if dropped else 1


def release(settings: Settings, address: str, group: str, name: str) -> int:
    """End the handler that runs the first message of a group, for one consumer group.

    Returns:
        0 ended, 1 none runs it.

    Raises:
        GroupError: nobody knows this consumer group; or the consumer that holds it cannot be reached, or refuses.
        BrokerUnavailableError: the cluster does not answer, or refuses.
    """
    key = group_names.parse(name)
    places = _run(settings, settings.configured(address), group, lambda consumers: consumers.release(key))
    name = group_names.shown(key)
    for place in places:
        click.echo(
            f"released  {place}  a coroutine is cancelled and its message tried again in 10 s or more; a thread goes on, and {name} "
            "waits for it. `ringfence groups skip` drops the message in either case"
        )
    if not places:
        click.echo(f"nothing to release  no handler of {group} runs a message of {name}")
        return 1
    return 0


class _Order(NamedTuple):
    """The messages that are to be dropped."""

    name: bytes
    skip: bool
    letters: bool

    @property
    def whole(self) -> bool:
        """Whether the holder counts all that it drops; of a purge it has not fetched everything."""
        return self.skip or self.letters


class _Meant(NamedTuple):
    """The messages of one partition that the question named; later ones are not meant."""

    topic_id: str
    head: int
    end: int
    depth: int


class _Dropped(NamedTuple):
    """The dropped messages of one partition."""

    messages: int
    offsets: Sequence[int] = ()
    """As far as they are known."""


def _which(topic: str, meant: Mapping[int, _Meant], order: _Order) -> str:
    """The messages, for the question."""
    if order.skip:
        return f"the first message, {', '.join(f'{topic}/{number}/{item.head}' for number, item in meant.items())}"
    places = (f"{topic}/{number} from offset {item.head} to {item.end - 1}" for number, item in meant.items())
    count = counted(sum(item.depth for item in meant.values()), "message")
    return f"{count}, those that a handler has excepted, of {', '.join(places)}"


class _Consumers:
    """One consumer group at one address, and a connection to the cluster."""

    def __init__(self, settings: Settings, address: AddressSettings, cluster: Cluster) -> None:
        self._settings = settings
        self._address = address
        self._topic = address.accepted_topic
        self._cluster = cluster
        self._group = cluster.group_id

    async def progresses(self) -> list[tuple[int, Progress | None]]:
        """Return each partition with its progress record.

        Raises:
            GroupError: nobody knows this consumer group.
        """
        await self._cluster.groups.await_coordinator()
        found = await show.progresses(self._settings, self._address, self._cluster)
        if not await show.is_known(self._address, self._cluster, found):
            raise GroupError(
                f"the consumer group {self._group} has never consumed {self._address.name}: is it called otherwise? `ringfence consumers "
                f"show {self._address.name}` names those that have. One that is new may begin further on: kafka-consumer-groups.sh "
                "--reset-offsets sets where"
            )
        return list(enumerate(found))

    async def meant(self, order: _Order) -> dict[int, _Meant]:
        """Return what each partition has now."""
        meant = {}
        for number, known in await self.progresses():
            now, row = await self._unfinished(number, known, order)
            if row is not None:
                meant[number] = _Meant(now.topic_id, row.head_offset, now.end, row.depth)
        return meant

    async def release(self, name: bytes) -> list[str]:
        """End the handler of a group's first message. Return where one ran."""
        released = []
        for number, known in await self.progresses():
            if known is None or known.released:
                continue
            now = await show.standing(self._cluster, self._topic, number, known)
            if name.hex() not in await show.unfinished(self._settings, self._topic, number, now):
                continue
            answer = await self._ask(known.web, number, name, "release")
            if isinstance(answer, str):
                raise GroupError(
                    f"{self._topic}/{number} is held by {known.holder}, which {answer}: run this again where its web server can be reached, or "
                    "stop that consumer: what it ran comes again"
                )
            if answer["released"]:
                released.append(f"{self._topic}/{number}")
        return released

    async def drop(
        self, order: _Order, meant: Mapping[int, _Meant] | None
    ) -> tuple[dict[int, _Dropped], bool]:
        """Drop ``meant``, or whatever there is.

        Returns:
            What was dropped by partition, and whether a message was done meanwhile.
        """
        dropped: dict[int, _Dropped] = {}
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
        self, number: int, known: Progress | None, order: _Order, now: show.Standing, row: show.GroupRow
    ) -> _Dropped | None:
        """Have the holder drop messages, or drop them where nobody holds the partition. None = they were done meanwhile."""
        refusal = "has no web server"
        if known is not None and known.web and not known.released:
            answer = await self._ask_drop(known.web, number, order, row, now.end)
            if isinstance(answer, dict):
                if answer.get("gone"):
                    return None
                count = answer["dropped"] if order.whole else max(0, row.depth - answer["acquired"])
                return _Dropped(count, answer.get("offsets", ()))
            refusal = answer
        if await self._cluster.groups.state() not in NO_MEMBERS:
            raise GroupError(
                f"{self._topic}/{number} is held by {known.holder if known else 'a consumer'}, which {refusal}: run this again in a moment, "
                "where its web server can be reached; or stop the group's consumers first"
            )
        if order.letters:
            raise GroupError(
                f"nobody holds {self._topic}/{number}, and dead letters are written by its holder: start a consumer of {self._group} and run "
                "this again, or leave --to-dlq out"
            )
        end = row.head_offset + 1 if order.skip else now.end
        again = [offset for offset in row.redriven if offset < end]
        await offline_drop.drop_below(
            self._settings, self._address, self._cluster, number, order.name, end, now.topic_id, say_waiting, again
        )  # fmt: skip
        return _Dropped(1, [row.head_offset]) if order.skip else _Dropped(row.depth)

    async def _unfinished(
        self, number: int, known: Progress | None, order: _Order, asked: _Meant | None = None
    ) -> tuple[show.Standing, show.GroupRow | None]:
        """Return what a partition has of the group, up to the end that the question named."""
        now = await show.standing(self._cluster, self._topic, number, known)
        if asked is not None:
            now = now._replace(end=min(now.end, asked.end))
        rows = await show.unfinished(self._settings, self._topic, number, now)
        return now, rows.get(order.name.hex())

    async def _ask_drop(
        self, web: str, number: int, order: _Order, row: show.GroupRow, below: int
    ) -> dict[str, Any] | str:
        """Ask the holder to drop messages; a purge drops nothing from ``below`` on.

        A holder sends to the dead letters what it has fetched. So it is asked again until that is everything.
        """
        offsets: list[int] = []
        moved_at = time.monotonic()
        while True:
            verb = "skip" if order.skip else "purge"
            head = row.head_offset
            answer = await self._ask(
                web, number, order.name, verb, letters=order.letters, head=head, below=below
            )
            if isinstance(answer, str) or order.skip or not order.letters:
                return answer
            offsets += answer.get("offsets", ())
            if answer["dropped"]:
                moved_at = time.monotonic()
            # Whoever runs its first message has all of the group; the rest has just come, or is still to be fetched.
            stalled = time.monotonic() - moved_at > FETCH_LIMIT_S
            if len(offsets) >= row.depth or answer["acquired"] or stalled:
                return {**answer, "dropped": len(offsets), "offsets": offsets}
            await asyncio.sleep(_AGAIN_S)

    async def _ask(
        self,
        web: str,
        number: int,
        name: bytes,
        verb: str,
        *,
        letters: bool = False,
        head: int | None = None,
        below: int | None = None,
    ) -> dict[str, Any] | str:
        body = {
            "letters": letters,
            "head": head,
            "below": below,
            "consumer_group": self._group,
            "topic": self._topic,
            "partition": number,
            "group": name.hex(),
        }
        return await consumer_api.ask(self._settings.app, web, f"groups/{verb}", body)


def _run(
    settings: Settings, address: AddressSettings, group: str, work: Callable[[_Consumers], Awaitable[Found]]
) -> Found:
    async def connected() -> Found:
        async with Cluster(settings.kafka, group) as cluster:
            return await work(_Consumers(settings, address, cluster))

    with reading(address.accepted_topic):
        return asyncio.run(connected())


def _has_gone(order: _Order, asked: _Meant, now: show.Standing, row: show.GroupRow | None) -> bool:
    """Return whether the question's messages are done; of a skip, whether another message is the first now."""
    if now.topic_id != asked.topic_id:
        return True
    return order.skip and (row is None or row.head_offset != asked.head)


def _report_gone(place: str) -> bool:
    click.echo(
        f"gone     {place}  it is not the first one any more: it was done or dropped meanwhile; no other one was"
    )
    return True
