"""``ringfence groups purge`` and ``ringfence groups skip``."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import click
from aiokafka.errors import KafkaError

from app.asking import can_ask, confirmed
from app.verbs import groups, holders
from ringfence_client import dropping, group_names
from ringfence_client.lease import LostError
from ringfence_client.record import Progress
from ringfence_kafka import runs
from ringfence_kafka.cluster import NO_MEMBERS, Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, named
from ringfence_kafka.tenure import NotOwnerError

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
        name: Of the message group, as :func:`ringfence_client.group_names.parse` reads it.
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
    if not yes and can_ask():
        count = asyncio.run(_count(settings, found, group, order))
        if count:
            which = "the first message" if skip else f"{_messages(count)}, those that a handler has excepted,"
            rest = "send to the dead letters" if letters else "drop for good"
            confirmed(f"{name} at {address} for {group}: {rest} {which}?")
    try:
        places = asyncio.run(_drop(settings, found, group, order))
    except (NotOwnerError, LostError) as error:
        raise GroupError(
            f"a consumer of {group} came while nobody was to hold it: run this again; what was dropped stays so"
        ) from error
    except KafkaError as error:
        raise BrokerUnavailableError(
            f"{found.accepted_topic}: {named(error)}: look at the brokers and at this user's rights, then "
            "run this again; what was dropped stays so"
        ) from error
    for partition, (count, those) in places.items():
        to = " to the dead letters" if letters else ""
        which = f": {runs.shown(those)}" if those else ""
        click.echo(f"dropped  {found.accepted_topic}/{partition}  {_messages(count)} of {name}{to}{which}")
    if not any(count for count, _ in places.values()):
        click.echo(
            f"nothing to drop  {name} has no message that {group} could drop"
            + (
                ": a handler has its first one: `ringfence groups release` ends that"
                if (skip or letters) and places
                else ""
            )
        )
        return 1
    return 0


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


class _Order(NamedTuple):
    """What is to be dropped."""

    name: bytes
    skip: bool
    letters: bool


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
        await cluster.await_coordinator()
        released = []
        for number, known in enumerate(await _progresses(settings, address, cluster)):
            if known is None or known.released:
                continue
            now = await groups.standing(cluster, address.accepted_topic, number, known)
            if name.hex() not in await groups.unfinished(settings, address.accepted_topic, number, now):
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


async def _count(settings: Settings, address: AddressSettings, group: str, order: _Order) -> int:
    """How many messages of it there are."""
    async with Cluster(settings.kafka, group) as cluster:
        await cluster.await_coordinator()
        count = 0
        for number, known in enumerate(await _progresses(settings, address, cluster)):
            now = await groups.standing(cluster, address.accepted_topic, number, known)
            rows = await groups.unfinished(settings, address.accepted_topic, number, now)
            row = rows.get(order.name.hex())
            count += 0 if row is None else row.depth
        return count


async def _drop(
    settings: Settings, address: AddressSettings, group: str, order: _Order
) -> dict[int, tuple[int, Sequence[int]]]:
    """Of each partition that has any: how many were dropped, and which, as far as that is known."""
    name = order.name
    async with Cluster(settings.kafka, group) as cluster:
        await cluster.await_coordinator()
        dropped: dict[int, tuple[int, Sequence[int]]] = {}
        for number, known in enumerate(await _progresses(settings, address, cluster)):
            now = await groups.standing(cluster, address.accepted_topic, number, known)
            row = (await groups.unfinished(settings, address.accepted_topic, number, now)).get(name.hex())
            if row is None:
                continue
            refusal = "has no web server"
            if known is not None and known.web and not known.released:
                answer = await _told(settings, known.web, group, address, number, order, row)
                if isinstance(answer, dict) and answer.get("gone"):
                    click.echo(
                        f"gone     {address.accepted_topic}/{number}/{row.head_offset}  it was done or dropped meanwhile; no other one was"
                    )
                    continue
                if isinstance(answer, dict):
                    # A consumer has not fetched all that it purges.
                    whole = order.skip or order.letters
                    count = answer["dropped"] if whole else row.depth - answer["acquired"]
                    dropped[number] = count, answer.get("offsets", ())
                    continue
                refusal = answer
            if await cluster.group_state() not in NO_MEMBERS:
                raise GroupError(
                    f"{address.accepted_topic}/{number} is held by {known.holder if known else 'a consumer'}, which "
                    f"{refusal}: run this again in a moment, where its web server can be reached; or stop the group's "
                    "consumers first"
                )
            if order.letters:
                raise GroupError(
                    f"nobody holds {address.accepted_topic}/{number}, and dead letters are written by its holder: start a consumer of "
                    f"{group} and run this again, or leave --to-dlq out"
                )
            end = row.head_offset + 1 if order.skip else now.end
            again = [each for each in row.redriven if each < end]
            await dropping.drop_below(
                settings, address, cluster, number, name, end, now.topic_id, _say_waiting, again
            )
            dropped[number] = (1, [row.head_offset]) if order.skip else (row.depth, ())
        return dropped


async def _progresses(
    settings: Settings, address: AddressSettings, cluster: Cluster
) -> Sequence[Progress | None]:
    """Of each partition.

    Raises:
        GroupError: nobody knows this consumer group.
    """
    progresses = await groups.progresses(settings, address, cluster)
    if not await groups.is_known(address, cluster, progresses):
        raise GroupError(
            f"the consumer group {cluster.group_id} has never consumed {address.name}: is it called otherwise? `ringfence consumers "
            f"show {address.name}` names those that have. One that is new may begin further on: kafka-consumer-groups.sh "
            "--reset-offsets sets where"
        )
    return progresses


def _say_waiting(text: str) -> None:
    click.echo(f"{text}; waiting until its lease has run out", err=True)


async def _told(
    settings: Settings,
    web: str,
    group: str,
    address: AddressSettings,
    partition: int,
    order: _Order,
    row: groups.GroupRow,
) -> dict[str, Any] | str:
    """What the holder says. To the dead letters goes what it has fetched: it is told again until that is all that there was."""
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
) -> dict[str, Any] | str:
    body = {
        "letters": letters,
        "head": head,
        "consumer_group": consumer_group,
        "topic": address.accepted_topic,
        "partition": partition,
        "group": name.hex(),
    }
    return await holders.ask(settings.app, web, f"groups/{what}", body)
