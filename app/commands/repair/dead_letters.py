"""Dead letters: their messages, which still stand in the accepted topic, are done once more by whoever holds the partition."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from app.commands.groups.lease_holders import LeaseHolders
from app.commands.repair.rate_limit import RateLimit
from app.commands.repair.redrive_log import RedrivePartition, RepairError
from app.commands.repair.refused_record import Place, Refused
from app.commands.repair.result import Result
from ringfence_client.web.group_lookup import APART_MAX
from ringfence_client.window.window import Window
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, KafkaSettings
from ringfence_kafka.protocol import offset_ranges, wire_names
from ringfence_kafka.readers import log_reader


class LetterRedrive:
    """Has the messages of dead letters done once more."""

    def __init__(
        self,
        address: AddressSettings,
        kafka: KafkaSettings,
        cluster: Cluster,
        holders: LeaseHolders,
        pace: RateLimit,
        say: Callable[[str], None],
        *,
        most: int,
        force: bool,
    ) -> None:
        self._address = address
        self._kafka = kafka
        self._cluster = cluster
        self._holders = holders
        self._pace = pace
        self._say = say
        self._most = most
        self._force = force
        self.result = Result()

    async def act(self, partition: RedrivePartition, found: Sequence[Refused]) -> None:
        """All of these, and write that they are settled."""
        for begin in range(0, len(found), self._pace.chunk):
            sound = await self._sound(found[begin : begin + self._pace.chunk])
            if not sound:
                continue
            await self._pace.wait(len(sound))
            done = []
            for (group, number), value in _by_holder(sound):
                letters: dict[int, int] = {}
                for letter in value:  # one message may have several dead letters
                    offset = letter.place_accepted.offset
                    letters[offset] = max(letters.get(offset, 0), letter.redriven + 1)
                told = await self._holders.tell(group, number, letters, "redrive", _redriving(letters))
                settled = [letter for letter in value if letter.place_accepted.offset in told.done]
                self._leave((letter for letter in value if letter not in settled), told.left)
                done += [letter.refused.place.offset for letter in settled]
            if done:
                await partition.settle(sorted(done))
                self.result.done += len(done)
                self._say(f"redriven  {partition}  {len(done)} up to offset {max(done)}")

    async def try_out(self, _: RedrivePartition, found: Sequence[Refused]) -> None:
        """Say what would become of these."""
        for item in await self._sound(found):
            self.result.done += 1
            refused = item.refused
            self._say(
                f"would redrive  {refused.place}  {item.place_accepted} for {refused.consumer_group}  {refused.reason}"
            )

    def _leave(self, letters: Any, reason: str) -> None:
        for letter in letters:
            self.result.leave(letter.refused, reason)

    async def _sound(self, found: Sequence[Refused]) -> list["_Redrivable"]:
        """Those that may be redriven; the others are left, with why."""
        due = []
        for refused in found:
            reason = self._refusal(refused)
            if reason or refused.accepted is None:
                self.result.leave(refused, reason)
            else:
                due.append(_Redrivable(refused, refused.accepted))
        standing = await self._standing({item.place_accepted for item in due})
        sound = []
        for item in due:
            reason = _difference(item.refused, standing.get(item.place_accepted))
            if not reason and await self._holders.is_unknown(
                item.refused.consumer_group, item.place_accepted.partition
            ):
                reason = (
                    f"{item.refused.consumer_group} has no progress there: it was forgotten, or it never consumed; start a consumer of it, then "
                    "redrive; or drop the dead letter"
                )
            if reason:
                self._leave([item], reason)
            else:
                sound.append(item)
        return sound

    def _refusal(self, letter: Refused) -> str:
        if letter.accepted is None or not letter.consumer_group:
            return "it does not say where its message stands: no consumer of Ringfence wrote it; publish it again"
        if letter.accepted.topic != self._address.accepted_topic:
            return f"its message stands in {letter.accepted.topic}, which is not the accepted topic of {self._address.name} any more"
        if letter.redriven >= self._most and not self._force:
            return f"redriven {letter.redriven} times already: fix what the reason says, then --force"
        return ""

    async def _standing(self, places: Collection[Place]) -> dict[Place, Any]:
        """The messages at these places, as far as they are there."""
        found: dict[Place, Any] = {}
        counts = await self._cluster.topics.partition_counts([self._address.accepted_topic])
        for (topic, number), items in groupby(sorted(places), lambda each: each[:2]):
            if number >= counts.get(topic, 0):
                continue
            start = await self._cluster.offsets.log_start(topic, number)
            end = await self._cluster.offsets.stable_end(topic, number)
            wanted = {item.offset for item in items if start <= item.offset < end}

            async def consume(
                records: Sequence[Any], topic: str = topic, number: int = number, wanted: set[int] = wanted
            ) -> None:
                found.update(
                    (Place(topic, number, record.offset), record)
                    for record in records
                    if record.offset in wanted
                )

            for first, last in offset_ranges.near(sorted(wanted), APART_MAX):
                await log_reader.read(self._kafka, topic, number, first, last + 1, consume)
        return found


class _Redrivable(NamedTuple):
    """A dead letter that says where its message is."""

    refused: Refused
    place_accepted: Place

    @property
    def redriven(self) -> int:
        return self.refused.redriven


def _by_holder(letters: Sequence[_Redrivable]) -> list[tuple[tuple[str, int], list[_Redrivable]]]:
    def key(each: _Redrivable) -> tuple[str, int]:
        return each.refused.consumer_group, each.place_accepted.partition

    return [(item, list(items)) for item, items in groupby(sorted(letters, key=key), key)]


def _redriving(letters: Mapping[int, int]) -> Callable[[Window], None]:
    def change(window: Window) -> None:
        for offset, number in sorted(letters.items()):
            window.redrive(offset, number)

    return change


def _difference(letter: Refused, message: Any | None) -> str:
    """Why what stands at its place is not its message; empty = it is."""
    if message is None:
        return "its message is gone from the accepted topic: publish it anew, or drop it"
    headers = dict(message.headers)
    source = (headers.get(wire_names.HEADER_SOURCE) or b"").decode(errors="backslashreplace")
    bare = letter.digest is not None and not letter.source
    same_value = letter.value == message.value or (
        letter.digest is not None and letter.digest.of(message.value)
    )
    if same_value and (bare or (letter.source == source and letter.key == message.key)):
        return ""
    return "another message stands at its place: the accepted topic was deleted and created again; publish it anew, or drop it"


async def drop_blocked(
    holders_: LeaseHolders, letters: Sequence[Refused], say: Callable[[str], None]
) -> list[tuple[Refused, str]]:
    """Have groups go on that wait behind these. Returns those of which that could not be done, with why."""
    left: list[tuple[Refused, str]] = []
    waiting = []
    for letter in letters:
        place = letter.accepted
        if place is None or not letter.consumer_group:
            continue
        if place[1:] in await holders_.blocked(letter.consumer_group):
            waiting.append(_Redrivable(letter, place))
    for (group, number), item in _by_holder(waiting):
        change = _unblocking([(item.refused.key, item.place_accepted.offset) for item in item])
        asked = {item.place_accepted.offset: item.redriven + 1 for item in item}
        told = await holders_.tell(group, number, asked, "drop", change)
        left += ((item.refused, told.left) for item in item if item.place_accepted.offset not in told.done)
        for offset in told.done:
            say(f"unblocked  {number}/{offset} of {group}: its group goes on without it")
    return left


def _unblocking(letters: Sequence[tuple[bytes | None, int]]) -> Callable[[Window], None]:
    def change(window: Window) -> None:
        if any(group is None for group, _ in letters):
            raise RepairError(
                "a message without a group can be dropped only by the consumer that holds it: start one, and run this again"
            )
        for _, offset in letters:
            window.drop_unfetched(offset)

    return change
