"""Plan of the demo's messages, which a seed reproduces. Pure.

A producer that is unsure whether a message arrived sends it again; it may do so at once or, after an outage of its
own, much later. The plan holds both kinds. It also holds resends that follow after the worker's kill, of originals from before it.
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
"""Its messages are transactions, with parts for the others."""
ADDRESSES: Final = (*PLAIN, TRANSFERS)
ONE_RING: Final = "payments"
"""It has one lane for all its partitions; the others have a lane for each."""
TURNS: Final = (*PLAIN * 4, TRANSFERS)
"""Addresses of the messages, in turn, over and over."""
GROUPS: Final = 1_000
ID_HEADER: Final = "_AMQ_DUPL_ID"
TRANSACTION_HEADER: Final = "_RF_TX"
RESEND_SHARE: Final = 0.10
FAR: Final = 5_000
"""A resend further back than this many messages of its address, or a quarter of them, is a late one; half of all are."""
FAR_SHARE: Final = 0.5
NO_ID_EVERY: Final = 500
"""Each 500th message of an address has no ID: it must always pass."""
NO_GROUP_EVERY: Final = 2
"""Each second of those has no group either."""
KILL_FIRST: Final = 0.3
KILL_LAST: Final = 0.7
"""The worker is killed when it has consumed between these shares of all messages."""
STRADDLING_SHARE: Final = 0.5
"""Share of the late resends in the last stretch whose original lies in the first."""
MESSAGES_MIN: Final = 20_000
"""With fewer, late resends would not be half of all resends."""

_NO_ORIGINAL: Final = -1


class Message(NamedTuple):
    """One message of the plan."""

    address: str
    group: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    position: int
    """Which message of its address it is."""
    original: int
    """Position of the message that it repeats; its own, when it repeats none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The traffic of one run."""

    messages: int
    """Over all addresses."""
    seed: int
    """Reproduces the plan and the point of the kill."""

    def __post_init__(self) -> None:
        if self.messages < MESSAGES_MIN:
            raise ConfigurationError(
                f"{self.messages} messages are too few for late resends: use {MESSAGES_MIN} or more"
            )

    @property
    def kill_at(self) -> int:
        """The worker is killed once it has consumed this many messages."""
        share = random.Random(f"{self.seed}/kill").uniform(KILL_FIRST, KILL_LAST)
        return int(share * self.messages)

    @property
    def hold_at(self) -> int:
        """Messages from here on are sent after the kill, so that it always hits a worker amid its work."""
        return int(KILL_LAST * self.messages)

    def messages_of(self, address: str) -> int:
        """How many go to this address."""
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
        """Yield the messages of one address, in the order in which they are sent."""
        count, far = self.messages_of(address), self.far(address)
        rng = random.Random(f"{self.seed}/{address}")
        groups = array("H", (rng.randrange(GROUPS) for _ in range(count)))
        originals = array("q", [_NO_ORIGINAL]) * count
        for position in range(count):
            original = _choose(rng, position, count, far, originals)
            originals[position] = position if original is None else _NO_ORIGINAL
            if original is None and position % NO_ID_EVERY == NO_ID_EVERY - 1:
                originals[position] = _NO_ORIGINAL  # nothing repeats a message that cannot be recognised
                grouped = position // NO_ID_EVERY % NO_GROUP_EVERY == 0
                yield _message(address, groups[position] if grouped else None, position, position, None)
                continue
            source = position if original is None else original
            # IDs are those of an address: both use the same ones, and neither may take the other's for a duplicate.
            yield _message(address, groups[source], position, source, b"id-%d" % source)


def _choose(rng: random.Random, position: int, count: int, far: int, originals: "array[int]") -> int | None:
    """Return the position of the original, if this message is to be a resend."""
    if position == 0 or rng.random() >= RESEND_SHARE:
        return None
    # Late resends begin only after so many messages, so that later on they must be more than half.
    late = position > far + 1 and rng.random() < FAR_SHARE * count / (count - far)
    for _ in range(100):  # most positions are originals; a few tries find one
        if not late:
            # Most near resends follow at once: the distance is spread evenly over its orders of magnitude.
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
    """Make a message. A resend has the bytes of its original; some shapes are easily spoiled."""
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
    """From one customer's account to another's, and now and then a note among the orders: all of it, or nothing.

    The ID is the transaction's; of some it is one of the last part, which is enough.
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
