"""``ringfence groups purge``, ``skip`` and ``release``: change one message group for one consumer group."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import click
from aiokafka.errors import KafkaError

from app.commands.confirmation import can_ask, confirmed
from app.commands.groups.consumer_group import ConsumerGroup, GroupError, Meant, Order
from ringfence_client.handlers import group_names
from ringfence_client.progress.lease import LostError
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, named
from ringfence_kafka.ownership.partition_state import NotOwnerError
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import offset_ranges
from ringfence_kafka.wording import counted

Found = TypeVar("Found")


def drop(
    settings: Settings, address: str, group: str, name: str, *, skip: bool, yes: bool, letters: bool
) -> int:
    """Drop the messages of a message group that no handler runs, or with ``skip`` only its first message.

    ``letters``: write them to the dead letters. Returns 0 dropped, 1 nothing to drop.

    Raises:
        GroupError: The consumer group is unknown; its consumer does not answer or refuses; or consumers
            started meanwhile.
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """
    found = settings.configured(address)
    order = Order(group_names.parse(name), skip, letters)
    name, topic = group_names.in_sentence(order.name), found.accepted_topic
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
            f"a consumer of {group} started meanwhile: run this again; dropped messages stay dropped"
        ) from error
    except KafkaError as error:
        raise BrokerUnavailableError(
            f"{topic}: {named(error)}: look at the brokers and at this user's rights, then run this again; "
            "dropped messages stay dropped"
        ) from error
    dropped = {partition: place for partition, place in places.items() if place.messages}
    for partition, (count, offsets) in dropped.items():
        to = " to the dead letters" if letters else ""
        which = f": {offset_ranges.shown(offsets)}" if offsets else ""
        click.echo(f"dropped  {topic}/{partition}  {counted(count, 'message')} of {name}{to}{which}")
    if not dropped and not gone:
        held = ": a handler runs its first message: `ringfence groups release` ends that"
        hint = held if order.whole and places else ""
        click.echo(f"nothing to drop  {name} has no message that {group} could drop{hint}")
    return 0 if dropped else 1


def release(settings: Settings, address: str, group: str, name: str) -> int:
    """End the handler that runs the first message of a group, or try a parked message again whose dead letter is gone.

    Returns 0 done, 1 nothing to release. Raises as :func:`drop` does.
    """
    key = group_names.parse(name)
    done = _run(settings, settings.configured(address), group, lambda consumers: consumers.release(key))
    name = group_names.in_sentence(key)
    for place in done.ended:
        click.echo(
            f"released  {place}  a coroutine is cancelled and its message tried again in 10 s or more; a "
            f"thread continues, and {name} waits for it. `ringfence groups skip` drops the message in "
            "either case"
        )
    for place in done.tried_again:
        click.echo(f"released  {place}  it was parked, and its dead letter is gone: it is tried again")
    if done.ended or done.tried_again:
        return 0
    reason = f"no handler of {group} runs a message of {name}"
    if done.parked:
        reason = (
            f"{', '.join(done.parked)} of {name} is parked, and its dead letter is open: `ringfence dlq redrive {shlex.quote(address)} --consumer-group "
            f"{shlex.quote(group)}` tries it again"
        )
    click.echo(f"nothing to release  {reason}")
    return 1


def _which(topic: str, meant: Mapping[int, Meant], order: Order) -> str:
    if order.skip:
        return f"the first message, {', '.join(f'{topic}/{number}/{item.head}' for number, item in meant.items())}"
    places = (f"{topic}/{number} from offset {item.head} to {item.end - 1}" for number, item in meant.items())
    count = counted(sum(item.depth for item in meant.values()), "message")
    return f"{count}, except those that a handler runs, of {', '.join(places)}"


def _run(
    settings: Settings,
    address: AddressSettings,
    group: str,
    work: Callable[[ConsumerGroup], Awaitable[Found]],
) -> Found:
    async def connected() -> Found:
        async with Cluster(settings.kafka, group) as cluster:
            return await work(ConsumerGroup(settings, address, cluster))

    with reading(address.accepted_topic):
        return asyncio.run(connected())
