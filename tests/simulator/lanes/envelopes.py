"""Worlds of lanes in which some messages are transactions with parts for two addresses, and some came over a bridge."""

import dataclasses
import random
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from ringfence_client.handlers.envelope import DUPLICATE_ID_HEADER, Part, envelope
from ringfence_kafka.protocol import wire_names
from tests.simulator.lanes.schedules import GROUPS, IDS, schedule
from tests.simulator.names import OTHER
from tests.simulator.schedules import Happening, Kind, Message, Schedule, gap

Headers = list[tuple[str, bytes | None]]
SOURCE: Final = b"far/AAAAAAAAAAAAAAAAAAAAAA/0"
"""Source of the bridge: its name, the topic's ID and the partition."""
ENVELOPES_SHARE: Final = 0.5
BRIDGED_SHARE: Final = 0.6
SOURCE_MAX: Final = 9
BEYOND: Final = frozenset({Kind.RECREATED, Kind.REPLACED, Kind.EATEN})
"""Happenings that are left out: tokens tell recreated inputs, and parts have none; the checker of hops needs all inputs."""


class Piece(NamedTuple):
    """A part of a transaction."""

    id: bytes | None
    group: bytes | None
    elsewhere: bool


class Envelope(NamedTuple):
    """A transaction."""

    id: bytes | None
    group: bytes | None
    parts: tuple[Piece, ...]

    def __str__(self) -> str:
        parts = ", ".join(
            f"{Message(part.id, part.group)}{' elsewhere' * part.elsewhere}" for part in self.parts
        )
        return f"{Message(self.id, self.group)}[{parts}]"


class Bridged(NamedTuple):
    """A message or transaction that a bridge sends, perhaps again."""

    message: "Message | Envelope"
    offset: int
    confirmed: int
    ids_ignored: bool

    def __str__(self) -> str:
        return f"{self.message} from {self.offset}, {self.confirmed} confirmed{', IDs ignored' * self.ids_ignored}"


def envelope_schedule(seed: int) -> Schedule:
    plan, dice = schedule(seed), random.Random(f"envelopes {seed}")
    happenings = [
        dataclasses.replace(
            happening, messages=tuple(_perhaps(dice, message) for message in happening.messages)
        )
        for happening in plan.happenings
        if happening.kind not in BEYOND
    ]
    if dice.random() < BRIDGED_SHARE:
        brought = list(_bridge(dice, plan.partitions))
        places = sorted(dice.randint(0, len(happenings)) for _ in brought)
        for number, (place, item) in enumerate(zip(places, brought, strict=True)):
            happenings.insert(place + number, item)
    return dataclasses.replace(plan, happenings=tuple(happenings), envelopes=True)


def record(what: "Message | Envelope | Bridged", number: bytes) -> tuple[bytes | None, bytes, Headers]:
    """Return key, value and headers, except those of the test. ``number`` distinguishes values, but a bridge repeats its own."""
    if isinstance(what, Bridged):
        key, value, headers = record(what.message, b"from %d" % what.offset)
        hop = (wire_names.HEADER_HOP, b"%b/%d" % (SOURCE, what.offset))
        headers += [hop, (wire_names.HEADER_CONFIRMED, b"%d" % what.confirmed)]
        headers += [(wire_names.HEADER_USER_IDS, wire_names.USER_IDS_IGNORED)] if what.ids_ignored else []
        return key, value, headers
    if isinstance(what, Envelope):
        parts = [
            Part(
                b"%b of %b" % (number, part.group or b"none"), part.group, OTHER if part.elsewhere else None,
                [] if part.id is None else [(DUPLICATE_ID_HEADER, part.id)],
            )
            for part in what.parts
        ]  # fmt: skip
        value, made = envelope(parts, what.id)
        return what.group, value, list(made)
    return what.group, number, [] if what.id is None else [(DUPLICATE_ID_HEADER, what.id)]


def _perhaps(dice: random.Random, message: Message) -> "Message | Envelope":
    if dice.random() >= ENVELOPES_SHARE:
        return message
    parts = tuple(
        Piece(_one(dice, b"i", IDS, 0.8), _one(dice, b"g", GROUPS, 0.2), dice.random() < 0.5)
        for _ in range(dice.choice((1, 2, 2, 3)))
    )
    return Envelope(message.id, message.group, parts)


def _one(dice: random.Random, letter: bytes, count: int, none: float) -> bytes | None:
    return None if dice.random() < none else b"%b%d" % (letter, dice.randrange(count))


def _bridge(dice: random.Random, partitions: int) -> Iterable[Happening]:
    """Yield a bridge's messages in order, with restarts between the confirmed and the reached offset; each has one partition, always."""
    partition, ignored = dice.randrange(partitions), dice.random() < 0.5
    places = [dice.choice((partition, dice.randrange(partitions))) for _ in range(SOURCE_MAX)]
    source: Sequence[Message | Envelope] = [
        _perhaps(dice, Message(_one(dice, b"i", IDS, 0.3), _one(dice, b"g", GROUPS, 0.2)))
        for _ in range(SOURCE_MAX)
    ]
    reached = confirmed = 0
    for _ in range(dice.randint(2, 4)):
        begin = dice.randint(confirmed, reached)
        end = min(SOURCE_MAX, begin + dice.randint(1, 4))
        brought = tuple(
            Bridged(source[offset], offset, min(confirmed, offset), ignored) for offset in range(begin, end)
        )
        for place, together in groupby(brought, lambda item: places[item.offset]):
            yield Happening(*gap(dice), Kind.SEND, partition=place, messages=tuple(together))
        reached = max(reached, end)
        confirmed = dice.randint(confirmed, reached)
