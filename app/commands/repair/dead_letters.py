"""Dead letters: the lease holder of the partition handles their messages again, from the accepted topic."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import click
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from app.commands.groups.lease_holders import LeaseHolders
from app.commands.repair import output
from app.commands.repair.output import Row
from app.commands.repair.records import Place, RedriveOptions, Refused
from app.commands.repair.redrive_log import RedriveLog, RedrivePartition
from app.commands.repair.scan import records_at
from app.commands.repair.verbs import Redriver, RepairTopic, Unblock
from ringfence_client.window.window import End, Window
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import missing
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError, RepairError, TopicError
from ringfence_kafka.protocol import wire_names


class DeadLetterTopic(RepairTopic):
    """Dead letters of an address."""

    what = "dead letters"

    def __init__(self, settings: Settings, name: str) -> None:
        """Raise ConfigurationError if the address is not configured."""
        self.show_verb = ["dlq", "show", name]
        self._settings = settings
        self._address = address = settings.configured(name)
        topic = wire_names.dead_letter_topic(name)
        super().__init__(settings.kafka, settings.app.id, topic, address.replication_factor)

    def group_of(self, record: Any) -> bytes | None:
        """Return the group of a record, which is the key of accepted records."""
        key: bytes | None = record.key
        return key

    def outcome(self, *, dry_run: bool) -> str:
        """Return the outcome of redriven records, in words."""
        return "would be done again" if dry_run else "to be done again"

    @asynccontextmanager
    async def redriver(self, log: RedriveLog, options: RedriveOptions) -> AsyncIterator[Redriver]:
        """Yield an object that redrives messages."""
        if log.partitions:
            await require_accepted(log.cluster, self._address)
        async with LeaseHolders(self._settings, self._address) as holders:
            yield LetterRedrive(log, options, self._address, holders)

    @asynccontextmanager
    async def unblocker(self, log: RedriveLog, *, dry_run: bool) -> AsyncIterator[Unblock]:
        """Yield a function that unblocks groups behind dropped dead letters."""
        if log.partitions and not dry_run:
            await require_accepted(log.cluster, self._address)
        async with LeaseHolders(self._settings, self._address) as holders:
            yield partial(_unblock, holders)

    async def waiting(self, rows: Sequence[Row]) -> Mapping[Place, bool | None]:
        """Return whether groups wait behind open dead letters; None = unknown.

        If a message has several dead letters, its group waits behind the last one.
        """
        last: dict[tuple[str, Place], Place] = {}
        unknown: dict[Place, bool | None] = {}
        denied: set[str] = set()
        try:
            async with LeaseHolders(self._settings, self._address) as holders:
                for row in rows:
                    accepted, group = row.refused.accepted, row.refused.consumer_group
                    if row.settled or accepted is None or not group:
                        continue
                    if accepted.topic != self._address.accepted_topic:
                        continue
                    try:
                        if group not in denied and accepted[1:] in await holders.blocked(group):
                            last[group, accepted] = row.refused.place
                    except (GroupAuthorizationFailedError, TopicAuthorizationFailedError) as error:
                        denied.add(group)
                        _note_denied(group, error)
                    if group in denied:
                        unknown[row.refused.place] = None
        except TopicError:
            return {}  # the accepted topic does not exist any more
        return unknown | dict.fromkeys(last.values(), True)


def _note_denied(group: str, error: Exception) -> None:
    of_group = isinstance(error, GroupAuthorizationFailedError)
    lacking = f"the consumer group {group}" if of_group else f"the topic {error.args[0]}"
    click.echo(
        f"note: it is unknown whether groups wait behind dead letters of {group}: this user may not see "
        f"{lacking}: allow Describe on it",
        err=True,
    )


async def require_accepted(cluster: Cluster, address: AddressSettings) -> None:
    """Check that the accepted topic exists.

    Raises:
        MissingTopicError: It does not exist.
    """
    if address.accepted_topic not in await cluster.topics.partition_counts([address.accepted_topic]):
        raise MissingTopicError(missing("accepted topic", address.name, address.accepted_topic))


class LetterRedrive(Redriver):
    """Redrives the messages of dead letters."""

    def __init__(
        self, log: RedriveLog, options: RedriveOptions, address: AddressSettings, holders: LeaseHolders
    ) -> None:
        super().__init__(log, options)
        self._address = address
        self._holders = holders

    async def redrive(self, partition: RedrivePartition, chunk: Sequence[Refused]) -> None:
        """Redrive a chunk, and record that it is settled."""
        sound = await self._sound(chunk)
        if not sound:
            return
        await self.rate_limit.wait(len(sound))
        done = []
        for (group, number), letters in _by_holder(sound):
            redrives: dict[int, int] = {}
            for letter in letters:  # one message may have several dead letters
                offset = letter.accepted.offset
                redrives[offset] = max(redrives.get(offset, 0), letter.refused.redriven + 1)
            answer = await self._holders.redrive(group, number, redrives)
            for letter in letters:
                if letter.accepted.offset in answer.done:
                    done.append(letter.refused.place.offset)
                else:
                    self.result.leave(letter.refused, answer.left)
        if done:
            await partition.settle(sorted(done))
            self.result.done += len(done)
            output.say(f"redriven  {partition}  {len(done)} up to offset {max(done)}")

    async def try_out(self, _: RedrivePartition, records: Sequence[Refused]) -> None:
        """Print what would happen to these dead letters."""
        for refused, accepted in await self._sound(records):
            self.result.done += 1
            output.say(
                f"would redrive  {refused.place}  {accepted} for {refused.consumer_group}  {refused.reason}"
            )

    async def _sound(self, records: Sequence[Refused]) -> list["_Letter"]:
        """Return the dead letters that may be redriven; skip the others with a reason."""
        topic = self._address.accepted_topic
        places = {place for letter in records if (place := letter.accepted) and place.topic == topic}
        messages = await records_at(self.log.cluster, self.log.kafka, places)
        sound = []
        for letter in records:
            reason = await self._refusal(letter, messages)
            if reason or letter.accepted is None:
                self.result.leave(letter, reason)
            else:
                sound.append(_Letter(letter, letter.accepted))
        return sound

    async def _refusal(self, letter: Refused, messages: Mapping[Place, Any]) -> str:
        accepted, group = letter.accepted, letter.consumer_group
        if accepted is None or not group:
            return "it does not name the place of its message, as no consumer of Ringfence wrote it; publish it again"
        if accepted.topic != self._address.accepted_topic:
            return (
                f"its message is in {accepted.topic}, which is no longer the accepted topic of "
                f"{self._address.name}"
            )
        if reason := self.options.too_often(letter) or _difference(letter, messages.get(accepted)):
            return reason
        if await self._holders.is_unknown(group, accepted.partition):
            return (
                f"{group} has no progress there: it was forgotten, or it never consumed; start a consumer of it, then redrive; or drop the "
                "dead letter"
            )
        return ""


class _Letter(NamedTuple):
    """Dead letter whose message is known."""

    refused: Refused
    accepted: Place


def _by_holder(letters: Iterable[_Letter]) -> list[tuple[tuple[str, int], list[_Letter]]]:
    def key(letter: _Letter) -> tuple[str, int]:
        return letter.refused.consumer_group, letter.accepted.partition

    return [(holder, list(items)) for holder, items in groupby(sorted(letters, key=key), key)]


def _difference(letter: Refused, message: Any | None) -> str:
    """Return why the record at the letter's place is not its message; empty = it is."""
    if message is None:
        return "its message is gone from the accepted topic: publish it again, or drop it"
    source = (dict(message.headers).get(wire_names.HEADER_SOURCE) or b"").decode(errors="backslashreplace")
    bare = letter.digest is not None and not letter.source
    same_value = letter.value == message.value or (
        letter.digest is not None and letter.digest.matches(message.value)
    )
    if same_value and (bare or (letter.source == source and letter.key == message.key)):
        return ""
    return (
        "another message is at its offset: the accepted topic was deleted and created again; publish "
        "it again, or drop it"
    )


async def _unblock(holders: LeaseHolders, letters: Sequence[Refused]) -> list[tuple[Refused, str]]:
    """Unblock groups behind these dead letters; return the failures with their reasons."""
    left: list[tuple[Refused, str]] = []
    waiting = [
        _Letter(letter, letter.accepted)
        for letter in letters
        if letter.accepted is not None
        and letter.consumer_group
        and letter.accepted[1:] in await holders.blocked(letter.consumer_group)
    ]
    for (group, number), items in _by_holder(waiting):
        redrives = {item.accepted.offset: item.refused.redriven + 1 for item in items}
        answer = await holders.change(group, number, redrives, "drop", partial(_finish, items))
        left += ((item.refused, answer.left) for item in items if item.accepted.offset not in answer.done)
        for offset in answer.done:
            output.say(f"unblocked  {number}/{offset} of {group}: its group continues without it")
    return left


def _finish(letters: Sequence[_Letter], window: Window) -> None:
    if any(letter.refused.key is None for letter in letters):
        raise RepairError(
            "a message without a group can be dropped only by the consumer that holds it: start one, and run this again"
        )
    for letter in letters:
        window.finish(letter.accepted.offset, End.GONE)
