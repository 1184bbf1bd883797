"""The messages of a trial, and the results that they must have."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

GROUPS: Final = 40
DISTINCT: Final = 3_000
_AGAIN: Final = 5


class Message(NamedTuple):
    """A message, by the number that makes its ID."""

    number: int

    @property
    def group(self) -> str:
        return f"group-{self.number % GROUPS}"

    @property
    def line(self) -> str:
        return json.dumps({"id": f"id-{self.number}", "group": self.group, "value": f"value-{self.number}"})


def first() -> list[Message]:
    new = range(DISTINCT)
    return [Message(item) for item in (*new, *new[::_AGAIN])]


def second() -> list[Message]:
    new = range(DISTINCT, 2 * DISTINCT)
    return [Message(item) for item in (*new, *new[::_AGAIN], *range(DISTINCT)[::_AGAIN])]


def lines(messages: Sequence[Message]) -> str:
    return "".join(f"{message.line}\n" for message in messages)


def resends(messages: Sequence[Message], before: Sequence[Message] = ()) -> int:
    """Return how many messages repeat an ID of the same sequence, or of one before it."""
    known = {item.number for item in before}
    return len(messages) - len({message.number for message in messages} - known)


def by_group(messages: Sequence[Message]) -> Counter[str]:
    return Counter(Message(number).group for number in {message.number for message in messages})
