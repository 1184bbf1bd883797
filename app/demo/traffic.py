"""Messages of the demo, reproducible by a seed. Pure.

A producer that does not know whether a message arrived sends it again, either at once or, after its own
outage, much later. The plan has both kinds of resends, and also resends after the worker's kill whose
originals came before it.
"""

import json
import random
from array import array
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final, NamedTuple

from ringfence_kafka.errors import ConfigurationError

PLAIN: Final = ("orders", "payments")
TRANSFERS: Final = "transfers"
"""Address whose messages are transactions, with parts for the other addresses."""
ADDRESSES: Final = (*PLAIN, TRANSFERS)
ONE_RING: Final = "payments"
"""Address with one lane for all its partitions; the others have a lane for each partition."""
TURNS: Final = (*PLAIN * 4, TRANSFERS)
"""Addresses of the messages, in repeated turns."""
GROUPS: Final = 1_000
ID_HEADER: Final = "_AMQ_DUPL_ID"
TRANSACTION_HEADER: Final = "_RF_TX"
RESEND_SHARE: Final = 0.10
FAR: Final = 5_000
"""Distance of a late resend in messages of its address, or a quarter of these if less; half are late."""
FAR_SHARE: Final = 0.5
NO_ID_EVERY: Final = 500
"""Each 500th message of an address has no ID, and must always pass."""
NO_GROUP_EVERY: Final = 2
"""Each second message without an ID has no group either."""
KILL_FIRST: Final = 0.3
KILL_LAST: Final = 0.7
"""Bounds of the share of consumed messages at which the worker is killed."""
STRADDLING_SHARE: Final = 0.5
"""Share of late resends in the last part whose original lies in the first part."""
MESSAGES_MIN: Final = 10_000
"""Minimum number of messages: with fewer, less than half of the resends would be late."""

_NO_ORIGINAL: Final = -1


class Message(NamedTuple):
    """Message of the plan."""

    address: str
    group: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    position: int
    """Rank of the message in its address."""
    original: int
    """Position of the repeated message; its own position if it is an original."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Traffic of one run."""

    messages: int
    """Number of messages over all addresses."""
    seed: int
    """Seed of the plan and the time of the kill."""

    def __post_init__(self) -> None:
        if self.messages < MESSAGES_MIN:
            raise ConfigurationError(
                f"{self.messages} messages are too few for late resends: use {MESSAGES_MIN} or more"
            )

    @property
    def kill_at(self) -> int:
        """Number of consumed messages after which the worker is killed."""
        share = random.Random(f"{self.seed}/kill").uniform(KILL_FIRST, KILL_LAST)
        return int(share * self.messages)

    @property
    def hold_at(self) -> int:
        """First message that is sent only after the kill, so that the kill always hits a busy worker."""
        return int(KILL_LAST * self.messages)

    def messages_of(self, address: str) -> int:
        """Return the number of messages for an address."""
        rounds, rest = divmod(self.messages, len(TURNS))
        return rounds * TURNS.count(address) + TURNS[:rest].count(address)

    def far(self, address: str) -> int:
        """Return the distance from which a resend of the address counts as late."""
        return min(FAR, self.messages_of(address) // 4)

    def __iter__(self) -> Iterator[Message]:
        streams = {address: self.stream(address) for address in ADDRESSES}
        for address in islice(cycle(TURNS), self.messages):
            yield next(streams[address])

    def stream(self, address: str) -> Iterator[Message]:
        """Yield the messages of one address in send order."""
        count, far = self.messages_of(address), self.far(address)
        rng = random.Random(f"{self.seed}/{address}")
        groups = array("H", (rng.randrange(GROUPS) for _ in range(count)))
        originals = array("q", [_NO_ORIGINAL]) * count
        for position in range(count):
            original = _choose(rng, position, count, far, originals)
            originals[position] = position if original is None else _NO_ORIGINAL
            if original is None and position % NO_ID_EVERY == NO_ID_EVERY - 1:
                originals[position] = _NO_ORIGINAL  # without an ID a repetition is not recognized
                grouped = position // NO_ID_EVERY % NO_GROUP_EVERY == 0
                yield _message(address, groups[position] if grouped else None, position, position, None)
                continue
            source = position if original is None else original
            # IDs belong to an address: addresses use the same ones, and must not confuse them
            yield _message(address, groups[source], position, source, b"id-%d" % source)


def _choose(rng: random.Random, position: int, count: int, far: int, originals: "array[int]") -> int | None:
    """Return the position of the original if this message is to be a resend, else None."""
    if position == 0 or rng.random() >= RESEND_SHARE:
        return None
    # Late resends can only start after this many messages, so their later share must exceed one half.
    late = position > far + 1 and rng.random() < FAR_SHARE * count / (count - far)
    for _ in range(100):  # most positions are originals, so few tries suffice
        if not late:
            # most near resends follow at once: the distance is spread evenly over orders of magnitude
            candidate = position - int(min(far, position) ** rng.random())
        elif position >= KILL_LAST * count and rng.random() < STRADDLING_SHARE:
            candidate = rng.randrange(min(int(KILL_FIRST * count), position - far - 1))
        else:
            candidate = rng.randrange(position - far - 1)
        if originals[candidate] != _NO_ORIGINAL:
            return candidate
    return None


def _message(
    address: str, group: int | None, position: int, source: int, duplicate_id: bytes | None
) -> Message:
    """Create a message. A resend has its original's bytes; null values and repeated headers occur."""
    if address == TRANSFERS:
        return _transfer(group, position, source, duplicate_id)
    value: bytes | None = b'{"number":%d,"amount":%d,"note":"%s"}' % (source, source * 7 % 10_007, b"." * 40)
    headers: list[tuple[str, str | bytes | None]] = [("content-type", b"application/json")]
    if source % 97 == 0:
        value = None
    if source % 89 == 0:
        headers += [("hop", b"first"), ("hop", b"second"), ("nothing", None)]
    if duplicate_id is not None:
        headers.append((ID_HEADER, duplicate_id))
    key = None if group is None else b"customer-%04d" % group
    return Message(address, key, value, headers, position, source)


def _transfer(group: int | None, position: int, source: int, duplicate_id: bytes | None) -> Message:
    """Create a transfer between two accounts, sometimes with a note in the orders, as one transaction.

    The transaction has the ID. In some transactions only the last part has one, which suffices.
    """
    amount = source * 7 % 10_007
    key = None if group is None else b"customer-%04d" % group
    other = f"customer-{(source * 31 + (group or 0)) % GROUPS:04d}"
    payer = None if group is None else f"customer-{group:04d}"
    parts: list[dict[str, object]] = [
        {"address": "payments", "key": payer, "value": json.dumps({"number": source, "amount": -amount})},
        {"address": "payments", "key": other, "value": json.dumps({"number": source, "amount": amount})},
    ]
    if source % 3 == 0:
        parts.append({"address": "orders", "key": other, "value_base64": b64encode(b"%d" % source).decode()})
    headers: list[tuple[str, str | bytes | None]] = [(TRANSACTION_HEADER, b"json/1")]
    if duplicate_id is not None and source % 7 == 0:
        parts[-1]["headers"] = [{"name": ID_HEADER, "value": f"transfer-{source}"}]
    elif duplicate_id is not None:
        headers.append((ID_HEADER, duplicate_id))
    return Message(TRANSFERS, key, json.dumps({"parts": parts}).encode(), headers, position, source)
