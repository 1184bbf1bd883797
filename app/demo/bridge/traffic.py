"""Messages of a producer that fails over to another cluster, reproducible by a seed. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Plan:
    """Traffic of one run. ``messages`` does not count those that are sent to the target again."""

    messages: int
    seed: int

    def __post_init__(self) -> None:
        if self.messages < MESSAGES_MIN:
            raise ConfigurationError(
                f"{self.messages} messages are too few to strike among: use {MESSAGES_MIN} or more"
            )

    def all(self) -> list[Message]:
        """Return all messages in send order."""
        rng = random.Random(self.seed)
        sent: list[Message] = []
        for number in range(self.messages):
            if sent and rng.random() < RESEND_SHARE:
                sent.append(sent[-rng.randint(1, min(NEAR, len(sent)))])
                continue
            group = b"customer-%03d" % rng.randrange(GROUPS)
            sent.append(Message(b"id-%d" % number, group, b'{"number":%d,"note":"%s"}' % (number, b"." * 60)))
        return sent


def to_origin(everything: Sequence[Message]) -> Sequence[Message]:
    """Return the messages before the producer fails over."""
    return everything[: int(FAIL_OVER * len(everything))]


def to_target(everything: Sequence[Message]) -> Sequence[Message]:
    """Return the messages after it fails over: first those of unknown fate."""
    return everything[len(to_origin(everything)) - UNSURE :]


def distinct(everything: Sequence[Message]) -> int:
    """Return the number of messages that must be accepted in the end."""
    return len({item.id for item in everything})
