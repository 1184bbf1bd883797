"""``ringfence consumers forget``: deletes the progress, the offsets and the states of a consumer group."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import NamedTuple

import click
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from app.commands.confirmation import confirmed
from app.commands.consumers import leases
from app.commands.groups.lease_holders import LeaseHolders
from app.commands.groups.open_letters import read_letters
from app.commands.repair.records import Refused, Selection
from app.commands.send.sender import DELIVERY_LIMIT_S, producer_options
from ringfence_client.handlers import group_names
from ringfence_client.progress import progress_record, progress_topic
from ringfence_client.progress.progress_record import ProgressFormatError
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, ConfigurationError, RingfenceError
from ringfence_kafka.escaping import printable
from ringfence_kafka.process.step_progress import reading
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted, first_of

NOTHING_KEPT = 1
PARKED_SHOWN_MAX = 5


class GroupInUseError(RingfenceError):
    """The consumer group has members."""


class RedrivesPendingError(RingfenceError):
    """Redriven messages of the consumer group are not handled yet."""


class KeptProgress(NamedTuple):
    """Progress records of one consumer group."""

    places: list[tuple[int, bytes]]
    """Partition and key of each record and each part."""
    redriven: dict[tuple[str, int], int]
    """Topic and partition → number of waiting redriven messages."""


def forget(settings: Settings, group: str, *, yes: bool, discard_redriven: bool = False) -> int:
    """Delete progress, offsets and states of a consumer group; return 0, or 1 if nothing was kept for it.

    Raises:
        ConfigurationError: It is a group of Ringfence itself.
        GroupInUseError: It has members.
        RedrivesPendingError: Redriven messages wait, and ``discard_redriven`` is false. Their dead letters
            are settled, so only the progress records name them.
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """
    if owner := wire_names.group_owner(settings.app.id, group):
        raise ConfigurationError(f"consumer group {group!r} belongs to {owner}: name a group of consumers")
    with reading(wire_names.progress_topic(settings.app.id)):
        kept, redriven = asyncio.run(_kept(settings, group))
    if redriven and not discard_redriven:
        where = ", ".join(
            f"{count:,} in {topic}/{number}" for (topic, number), count in sorted(redriven.items())
        )
        raise RedrivesPendingError(
            f"consumer group {group} has redriven messages that it has not handled ({where}), and their dead letters are settled: nothing was "
            "done. Start a consumer of the group to handle them, or run this again with --discard-redriven"
        )
    admin = AdminClient(confluent_options(settings.kafka))
    states = _state_topics(admin, settings, group)
    if not kept and not states:
        click.echo(
            f"nothing is kept of consumer group {group} with app.id = {settings.app.id}: check both names (ringfence consumers show). Offsets of "
            "a group with this name stay, because another program may use them"
        )
        return NOTHING_KEPT
    with reading("what is unfinished"):
        unfinished = asyncio.run(_unfinished(settings, group))
    of_states = f", the states that its handlers keep ({', '.join(states)})" if states else ""
    confirmed(
        f"Forget consumer group {group}: its progress in {len(kept)} records{of_states}, and its offsets? It has {unfinished}. The dead letters "
        "stay. A later consumer of that name has token 1, and addresses drop what it sends again for the same messages",
        yes=yes,
    )
    _delete_topics(admin, states)
    _write_tombstones(settings, kept)
    offsets = _delete_group(admin, group)
    click.echo(
        f"forgot consumer group {group}: {len(kept)} progress records{' and its offsets' if offsets else ''}{of_states}; it had {unfinished}"
        + (f"; {sum(redriven.values()):,} redriven messages were discarded" if redriven else "")
    )
    return 0


async def _kept(settings: Settings, group: str) -> KeptProgress:
    """Read the progress records of the group.

    Raises:
        GroupInUseError: The group has members.
    """
    topic = wire_names.progress_topic(settings.app.id)
    async with Cluster(settings.kafka, group) as cluster:
        if (state := await cluster.groups.state()) not in NO_MEMBERS:
            raise GroupInUseError(
                f"consumer group {group} has members ({state}): stop its consumers first; a consumer that was killed counts until its session "
                "ends"
            )
        count = (await cluster.topics.partition_counts([topic])).get(topic, 0)
        found = [
            await progress_topic.read_latest(settings.kafka, cluster, topic, number)
            for number in range(count)
        ]
    kept = KeptProgress([], {})
    for number, records in enumerate(found):
        for key in sorted(records):
            if _group_of(key) != group:
                continue
            kept.places.append((number, key))
            with contextlib.suppress(ProgressFormatError):  # a part, or an unreadable record
                consumed, partition = progress_record.decode_key(key)[1:]
                if waiting := len(progress_topic.decode(records, key).again):
                    kept.redriven[consumed, partition] = waiting
    return kept


def _group_of(key: bytes) -> str | None:
    with contextlib.suppress(ValueError, IndexError, TypeError):
        return str(json.loads(key)[0])
    return None


def _write_tombstones(settings: Settings, kept: Sequence[tuple[int, bytes]]) -> None:
    refused: list[str] = []

    def answered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            refused.append(error.str())

    producer = Producer(producer_options(settings.kafka, "murmur2"))
    for partition, key in kept:
        topic = wire_names.progress_topic(settings.app.id)
        producer.produce(topic, None, key, partition, on_delivery=answered)
    left = producer.flush(DELIVERY_LIMIT_S)
    if refused or left:
        raise BrokerUnavailableError(
            f"{left + len(refused)} of {len(kept)} progress records were not deleted ({', '.join(dict.fromkeys(refused)) or 'no answer'}): "
            "look at the brokers and at this user's rights, then run it again"
        )


def _state_topics(admin: AdminClient, settings: Settings, group: str) -> list[str]:
    """Return the existing state topics of the group: a new group with its name would use old totals."""
    names = {
        wire_names.state_topic(settings.app.id, group, address.accepted_topic)
        for address in settings.addresses
    }
    there = admin.list_topics(timeout=DELIVERY_LIMIT_S).topics
    return sorted(names & there.keys())


def _delete_topics(admin: AdminClient, topics: Sequence[str]) -> None:
    """Delete the topics first, so that a denied access leaves everything unchanged."""
    if not topics:
        return
    for topic, deletion in admin.delete_topics([*topics]).items():
        try:
            deletion.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise BrokerUnavailableError(
                    f"the states in {topic} were not deleted ({error.args[0].str()}): allow this user Delete on it, then run it again"
                ) from error


def _delete_group(admin: AdminClient, group: str) -> bool:
    (deletion,) = admin.delete_consumer_groups([group]).values()
    try:
        deletion.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return False
        raise BrokerUnavailableError(
            f"the offsets of {group} were not deleted ({error.args[0].str()}): allow Delete on that group, then run it again"
        ) from error
    return True


async def _unfinished(settings: Settings, group: str) -> str:
    """Describe the unfinished messages of a group. Topics that cannot be read are listed instead."""
    lag, letters, unread = 0, 0, []
    parked: set[bytes | None] = set()
    consumed: set[str | None] = set()
    try:
        for row in (await leases.read_leases(settings, group=group, partial=True)).rows:
            lag += row.lag or 0
            consumed.add(row.address)
    except (AiokafkaError, RingfenceError, OSError, TimeoutError):
        unread.append(wire_names.progress_topic(settings.app.id))
    for address in (address for address in settings.addresses if address.name in consumed):
        try:
            keys, waiting = await _letters(settings, address, group)
        except (AiokafkaError, RingfenceError, OSError, TimeoutError):
            unread.append(wire_names.dead_letter_topic(address.name))
        else:
            letters += len(keys)
            parked |= waiting
    names = sorted(printable("(none)" if name is None else group_names.shown(name)) for name in parked)
    shown = f" ({first_of(names, PARKED_SHOWN_MAX)})" if names else ""
    text = f"a lag of {lag:,} offsets, {counted(letters, 'open dead letter')}, {counted(len(names), 'parked group')}{shown}"
    return f"{text}; {', '.join(unread)} cannot be read, so there may be more" if unread else text


async def _letters(
    settings: Settings, address: AddressSettings, group: str
) -> tuple[list[bytes | None], set[bytes | None]]:
    """Return the groups of open dead letters at one address, and those of them that wait."""
    keys: list[bytes | None] = []
    parked: set[bytes | None] = set()
    async with LeaseHolders(settings, address) as holders:
        blocked = await holders.blocked(group)

    def keep(letter: Refused) -> None:
        keys.append(letter.key)
        if letter.accepted is not None and letter.accepted[1:] in blocked:
            parked.add(letter.key)

    await read_letters(settings, address.name, Selection(consumer_group=group), keep)
    return keys, parked
