"""``ringfence groups purge`` and ``ringfence groups skip``."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import click
from aiokafka.errors import KafkaError

from app.verbs import groups
from ringfence_client import dropping
from ringfence_client.guard import session
from ringfence_client.lease import LostError
from ringfence_client.lease_acquisition import NotOursError
from ringfence_client.record import Progress
from ringfence_kafka.cluster import NO_MEMBERS, Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, named

ANSWER_LIMIT_S: Final = 30.0
"""For a holder to write it down."""


class GroupError(RingfenceError):
    """What was asked for cannot be done to a group now."""


class GroupNameError(RingfenceError):
    """A name that cannot be read as what it says it is."""


def parse_name(text: str) -> bytes:
    """A group's name as a person writes it: text, ``hex:…`` for other bytes, ``text:…`` for a text that begins so.

    Raises:
        GroupNameError: what follows ``hex:`` is not that.
    """
    if text.startswith("hex:"):
        try:
            return bytes.fromhex(text[4:])
        except ValueError as error:
            raise GroupNameError(
                f"{text!r} is no hex ({error}): fix it, or write text:{text} if the name itself begins so"
            ) from error
    return text.removeprefix("text:").encode()


def drop(settings: Settings, address: str, group: str, name: str, *, skip: bool) -> int:
    """Drop what nobody acquired of a group, or (``skip``) its first message alone, for one consumer group.

    Returns:
        0 dropped, 1 nothing to drop.

    Raises:
        GroupError: nobody knows this consumer group; or a consumer holds it, and its web server cannot be reached or refuses; or
            consumers came meanwhile.
        BrokerUnavailableError: the cluster does not answer, or refuses.
    """
    found = settings.configured(address)
    try:
        counts = asyncio.run(_drop(settings, found, group, parse_name(name), skip=skip))
    except (NotOursError, LostError) as error:
        raise GroupError(
            f"a consumer of {group} came while nobody was to hold it: run this again; what was dropped stays so"
        ) from error
    except KafkaError as error:
        raise BrokerUnavailableError(
            f"{found.accepted_topic}: {named(error)}: look at the brokers and at this user's rights, then "
            "run this again; what was dropped stays so"
        ) from error
    for partition, count in counts.items():
        click.echo(f"dropped  {found.accepted_topic}/{partition}  {count} messages of {name}")
    if not any(counts.values()):
        click.echo(
            f"nothing to drop  {name} has no message that {group} could drop"
            + (
                ": a handler has its first one: `ringfence groups release` ends that"
                if skip and counts
                else ""
            )
        )
        return 1
    return 0


def release(settings: Settings, address: str, group: str, name: str) -> int:
    """End the handler that runs the first message of a group, for one consumer group.

    Returns:
        0 ended, 1 none runs it.

    Raises:
        GroupError: nobody knows this consumer group; or the consumer that holds it cannot be reached, or refuses.
        BrokerUnavailableError: the cluster does not answer, or refuses.
    """
    found = settings.configured(address)
    places = asyncio.run(_release(settings, found, group, parse_name(name)))
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


async def _drop(
    settings: Settings, address: AddressSettings, group: str, name: bytes, *, skip: bool
) -> dict[int, int]:
    async with Cluster(settings.kafka, group) as cluster:
        await cluster.await_coordinator()
        dropped = {}
        for number, known in enumerate(await _progresses(settings, address, cluster)):
            now = await groups.standing(cluster, address.accepted_topic, number, known)
            row = (await groups.unfinished(settings, address.accepted_topic, number, now)).get(name.hex())
            if row is None:
                continue
            refusal = "has no web server"
            if known is not None and known.web and not known.released:
                answer = await _tell(
                    settings, known.web, group, address, number, name, "skip" if skip else "purge"
                )
                if isinstance(answer, dict):
                    # A consumer has not fetched all that it purges.
                    dropped[number] = answer["dropped"] if skip else row.depth - answer["acquired"]
                    continue
                refusal = answer
            if await cluster.group_state() not in NO_MEMBERS:
                raise GroupError(
                    f"{address.accepted_topic}/{number} is held by {known.holder if known else 'a consumer'}, which "
                    f"{refusal}: run this again in a moment, where its web server can be reached; or stop the group's "
                    "consumers first"
                )
            end = row.head_offset + 1 if skip else now.end
            await dropping.drop_below(
                settings, address, cluster, number, name, end, now.topic_id, _say_waiting
            )
            dropped[number] = 1 if skip else row.depth
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


async def _tell(
    settings: Settings,
    web: str,
    consumer_group: str,
    address: AddressSettings,
    partition: int,
    name: bytes,
    what: str,
) -> dict[str, int] | str:
    """Have the holder do it; returns what it says, or why it does not: another may listen where it did."""
    if not web:
        return "has no web server"
    body: dict[str, Any] = {
        "consumer_group": consumer_group,
        "topic": address.accepted_topic,
        "partition": partition,
        "group": name.hex(),
    }
    url = f"{web}/groups/{what}"
    try:
        async with session(settings.app, ANSWER_LIMIT_S) as asking, asking.post(url, json=body) as answer:
            said = dict(await answer.json())
            return said if answer.ok else f"refuses ({said.get('error', answer.status)})"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return f"does not answer at {web}"
