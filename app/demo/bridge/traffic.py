"""Messages of a producer that fails over to another cluster, reproducible by a seed. Pure."""

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from ringfence_kafka.errors import ConfigurationError

GROUPS: Final = 500
RESEND_SHARE: Final = 0.10
NEAR: Final = 2_000
"""Maximum distance between a resend and its original, in messages."""
FAIL_OVER: Final = 0.7
"""Share of its messages that a producer sends to the origin before it fails over to the target."""
UNSURE: Final = 5_000
"""Last messages to the origin, sent to the target again because it is unknown which ones crossed."""
MESSAGES_MIN: Final = 20_000


class Message(NamedTuple):
    """Message. A resend has the bytes of its original."""

    id: bytes
    group: bytes
    value: bytes


def planned(count: int, seed: int) -> list[Message]:
    """Return all messages in send order; ``count`` is without those that are sent to the target again."""
    if count < MESSAGES_MIN:
        raise ConfigurationError(f"{count} messages are too few to strike among: use {MESSAGES_MIN} or more")
    rng = random.Random(seed)
    sent: list[Message] = []
    for number in range(count):
        if sent and rng.random() < RESEND_SHARE:
            sent.append(sent[-rng.randint(1, min(NEAR, len(sent)))])
            continue
        group = b"customer-%03d" % rng.randrange(GROUPS)
        sent.append(Message(b"id-%d" % number, group, b'{"number":%d,"note":"%s"}' % (number, b"." * 60)))
    return sent


def to_target(everything: Sequence[Message]) -> Sequence[Message]:
    """Return the messages after the producer fails over: first those of unknown fate."""
    return everything[int(FAIL_OVER * len(everything)) - UNSURE :]


def distinct(everything: Sequence[Message]) -> int:
    """Return the number of messages that must be accepted in the end."""
    return len({item.id for item in everything})
