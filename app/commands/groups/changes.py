"""``ringfence groups purge`` and ``ringfence groups skip``."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

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


class GroupError(RingfenceError):
    """What was asked for cannot be done to a group now."""


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
    """Drop what nobody acquired of a group, or (``skip``) its first message alone, for one consumer group.

    Args:
        settings: Where.
        address: Of the group.
        group: The consumer group.
        name: Of the message group, as :func:`ringfence_client.handlers.group_names.parse` reads it.
        skip: The first message alone.
        yes: Do not ask.
        letters: Send them to the dead letters.

    Returns:
        0 dropped, 1 nothing to drop.

    Raises:
        GroupError: nobody knows this consumer group; or a consumer holds it, and its web server cannot be reached or refuses; or
            consumers came meanwhile.
        BrokerUnavailableError: the cluster does not answer, or refuses.
    """
    found = settings.configured(address)
    order = _Order(group_names.parse(name), skip, letters)
    name = group_names.shown(order.name)
    meant = None
    if not yes and can_ask():
        with reading(found.accepted_topic):
            meant = asyncio.run(_meant(settings, found, group, order))
        if meant:
            rest = "send to the dead letters" if letters else "drop for good"
            confirmed(
                f"{name} at {address} for {group}: {rest} {_which(found.accepted_topic, meant, order)}?"
            )
    try:
        with reading(found.accepted_topic):
            places, gone = asyncio.run(_drop(settings, found, group, order, meant))
    except (NotOwnerError, LostError) as error:
        raise GroupError(
            f"a consumer of {group} came while nobody was to hold it: run this again; what was dropped stays so"
        ) from error
    except KafkaError as error:
        raise BrokerUnavailableError(
            f"{found.accepted_topic}: {named(error)}: look at the brokers and at this user's rights, then "
            "run this again; what was dropped stays so"
        ) from error
    for partition, (count, items) in ((number, place) for number, place in places.items() if place[0]):
        to = " to the dead letters" if letters else ""
        which = f": {offset_ranges.shown(items)}" if items else ""
        click.echo(
            f"dropped  {found.accepted_topic}/{partition}  {counted(count, 'message')} of {name}{to}{which}"
        )
    if any(count for count, _ in places.values()):
        return 0
    if not gone:
        click.echo(
            f"nothing to drop  {name} has no message that {group} could drop"
            + (
                ": a handler has its first one: `ringfence groups release` ends that"
                if (skip or letters) and places
                else ""
            )
        )
    return 1


class _Order(NamedTuple):
    """What is to be dropped."""

    name: bytes
    skip: bool
    letters: bool


class _Meant(NamedTuple):
    """What somebody was asked about, of one partition: what comes after that is not meant."""

    topic_id: str
    head: int
    end: int
    depth: int


def _which(topic: str, meant: Mapping[int, _Meant], order: _Order) -> str:
    """For the question."""
    if order.skip:
        return f"the first message, {', '.join(f'{topic}/{number}/{item.head}' for number, item in meant.items())}"
    places = (f"{topic}/{number} from offset {item.head} to {item.end - 1}" for number, item in meant.items())
    count = counted(sum(value.depth for value in meant.values()), "message")
    return f"{count}, those that a handler has excepted, of {', '.join(places)}"


def release(settings: Settings, address: str, group: str, name: str) -> int:
    """End the handler that runs the first message of a group, for one consumer group.

    Returns:
        0 ended, 1 none runs it.

    Raises:
        GroupError: nobody knows this consumer group; or the consumer that holds it cannot be reached, or refuses.
        BrokerUnavailableError: the cluster does not answer, or refuses.
    """
    found = settings.configured(address)
    key = group_names.parse(name)
    with reading(found.accepted_topic):
        places, name = asyncio.run(_release(settings, found, group, key)), group_names.shown(key)
    for place in places:
        click.echo(
            f"released  {place}  a coroutine is cancelled and its message tried again in 10 s or more; a thread goes on, and {name} "
            "waits for it. `ringfence groups skip` drops the message in either case"
        )
    if not places:
        click.echo(f"nothing to release  no handler of {group} runs a message of {name}")
        return 1
    return 0


async def _release(settings: Settings, address: AddressSettings, group: str, name: bytes) -> list[str]:
    async with Cluster(settings.kafka, group) as cluster:
        await cluster.groups.await_coordinator()
        released = []
        for number, known in enumerate(await _progresses(settings, address, cluster)):
            if known is None or known.released:
                continue
            now = await show.standing(cluster, address.accepted_topic, number, known)
            if name.hex() not in await show.unfinished(settings, address.accepted_topic, number, now):
                continue
            place = f"{address.accepted_topic}/{number}"
            answer = await _tell(settings, known.web, group, address, number, name, "release")
            if isinstance(answer, str):
                raise GroupError(
                    f"{place} is held by {known.holder}, which {answer}: run this again where its web server can be reached, or "
                    "stop that consumer: what it ran comes again"
                )
            if answer["released"]:
                released.append(place)
        return released


async def _meant(
    settings: Settings, address: AddressSettings, group: str, order: _Order
) -> dict[int, _Meant]:
    """Of each partition that has any: what is there now."""
    async with Cluster(settings.kafka, group) as cluster:
        await cluster.groups.await_coordinator()
        meant = {}
        for number, known in enumerate(await _progresses(settings, address, cluster)):
            now, row = await _there(settings, address, cluster, number, known, order)
            if row is not None:
                meant[number] = _Meant(now.topic_id, row.head_offset, now.end, row.depth)
        return meant


async def _drop(
    settings: Settings,
    address: AddressSettings,
    group: str,
    order: _Order,
    meant: Mapping[int, _Meant] | None,
) -> tuple[dict[int, tuple[int, Sequence[int]]], bool]:
    """Of each partition that has any: how many were dropped, and which, as far as that is known; and whether one was done meanwhile.

    ``meant``: nothing else; None = whatever there is now.
    """
    topic, gone = address.accepted_topic, False
    async with Cluster(settings.kafka, group) as cluster:
        await cluster.groups.await_coordinator()
        dropped: dict[int, tuple[int, Sequence[int]]] = {}
        for number, known in enumerate(await _progresses(settings, address, cluster)):
            if meant is not None and number not in meant:
                continue
            asked = None if meant is None else meant[number]
            now, row = await _there(settings, address, cluster, number, known, order, asked)
            if asked is not None and _has_gone(order, asked, now, row):
                gone = _say_gone(f"{topic}/{number}/{asked.head}")
                continue
            if row is None:
                continue
            refusal = "has no web server"
            if known is not None and known.web and not known.released:
                answer = await _told(settings, known.web, group, address, number, order, row, now.end)
                if isinstance(answer, dict) and answer.get("gone"):
                    gone = _say_gone(f"{topic}/{number}/{row.head_offset}")
                    continue
                if isinstance(answer, dict):
                    # A consumer has not fetched all that it purges.
                    whole = order.skip or order.letters
                    count = answer["dropped"] if whole else max(0, row.depth - answer["acquired"])
                    dropped[number] = count, answer.get("offsets", ())
                    continue
                refusal = answer
            if await cluster.groups.state() not in NO_MEMBERS:
                raise GroupError(
                    f"{topic}/{number} is held by {known.holder if known else 'a consumer'}, which {refusal}: run this again in a moment, "
                    "where its web server can be reached; or stop the group's consumers first"
                )
            if order.letters:
                raise GroupError(
                    f"nobody holds {topic}/{number}, and dead letters are written by its holder: start a consumer of {group} and run this "
                    "again, or leave --to-dlq out"
                )
            end = row.head_offset + 1 if order.skip else now.end
            again = [number for number in row.redriven if number < end]
            await offline_drop.drop_below(
                settings, address, cluster, number, order.name, end, now.topic_id, say_waiting, again
            )
            dropped[number] = (1, [row.head_offset]) if order.skip else (row.depth, ())
        return dropped, gone


async def _there(
    settings: Settings,
    address: AddressSettings,
    cluster: Cluster,
    partition: int,
    known: Progress | None,
    order: _Order,
    asked: _Meant | None = None,
) -> tuple[show.Standing, show.GroupRow | None]:
    """What a partition has of the group; no further than was asked about."""
    now = await show.standing(cluster, address.accepted_topic, partition, known)
    if asked is not None:
        now = now._replace(end=min(now.end, asked.end))
    rows = await show.unfinished(settings, address.accepted_topic, partition, now)
    return now, rows.get(order.name.hex())


def _has_gone(order: _Order, asked: _Meant, now: show.Standing, row: show.GroupRow | None) -> bool:
    """Whether what was asked about is not there any more: of a skip, whether another message is the first one now."""
    if now.topic_id != asked.topic_id:
        return True
    return order.skip and (row is None or row.head_offset != asked.head)


def _say_gone(place: str) -> bool:
    click.echo(
        f"gone     {place}  it is not the first one any more: it was done or dropped meanwhile; no other one was"
    )
    return True


async def _progresses(
    settings: Settings, address: AddressSettings, cluster: Cluster
) -> Sequence[Progress | None]:
    """Of each partition.

    Raises:
        GroupError: nobody knows this consumer group.
    """
    progresses = await show.progresses(settings, address, cluster)
    if not await show.is_known(address, cluster, progresses):
        raise GroupError(
            f"the consumer group {cluster.group_id} has never consumed {address.name}: is it called otherwise? `ringfence consumers "
            f"show {address.name}` names those that have. One that is new may begin further on: kafka-consumer-groups.sh "
            "--reset-offsets sets where"
        )
    return progresses


async def _told(
    settings: Settings,
    web: str,
    group: str,
    address: AddressSettings,
    partition: int,
    order: _Order,
    row: show.GroupRow,
    below: int,
) -> dict[str, Any] | str:
    """What the holder says; of a purge it drops nothing from ``below`` on. To the dead letters goes what it has fetched: it is told again until that is all that there was."""
    answer: dict[str, Any] | str = {}
    offsets: list[int] = []
    moved_at = time.monotonic()
    while True:
        answer = await _tell(
            settings,
            web,
            group,
            address,
            partition,
            order.name,
            "skip" if order.skip else "purge",
            letters=order.letters,
            head=row.head_offset,
            below=below,
        )
        if isinstance(answer, str) or order.skip or not order.letters:
            return answer
        offsets += answer.get("offsets", ())
        if answer["dropped"]:
            moved_at = time.monotonic()
        # Who runs its first message has all of the group; what is left now has just come, or is still to be fetched.
        if len(offsets) >= row.depth or answer["acquired"] or time.monotonic() - moved_at > FETCH_LIMIT_S:
            return {**answer, "dropped": len(offsets), "offsets": offsets}
        await asyncio.sleep(_AGAIN_S)


async def _tell(
    settings: Settings,
    web: str,
    consumer_group: str,
    address: AddressSettings,
    partition: int,
    name: bytes,
    what: str,
    *,
    letters: bool = False,
    head: int | None = None,
    below: int | None = None,
) -> dict[str, Any] | str:
    body = {
        "letters": letters,
        "head": head,
        "below": below,
        "consumer_group": consumer_group,
        "topic": address.accepted_topic,
        "partition": partition,
        "group": name.hex(),
    }
    return await consumer_api.ask(settings.app, web, f"groups/{what}", body)
