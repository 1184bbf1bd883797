"""Messages of one producer. Pure: message n is the same in every incarnation of the producer, and in its twin."""

import base64
import json
import math
import zlib
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

GROUPS_FEW = 3
GROUPS_ZIPF = 500
HUGE_BYTES = 700_000
"""Size below every limit of the broker: larger messages are another fault."""
PARTS_MOST = 6
ABORT_SHARE = 0.3
MALFORMED_EVERY = 211
"""Each 211th envelope is malformed; it goes to quarantine."""
EXTREME_EVERY = 50
"""With extreme values, each 50th is huge; the others are empty, null or small."""


class Groups(StrEnum):
    """Distributions of messages over groups."""

    NONE = "none"
    FEW = "few"
    MANY = "many"
    ZIPF = "zipf"


class Message(NamedTuple):
    """A message of a plan. ``number`` names its content; a duplicate send has the number of its original."""

    number: int
    id: bytes | None
    group: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One producer's traffic, which continues until it is stopped."""

    topic: str
    name: str
    ids: str
    """Prefix of its IDs; producers that share it, and the seed, send the same IDs."""
    seed: int
    rate: int
    groups: Groups = Groups.ZIPF
    partitioner: str = "murmur2_random"
    """librdkafka's name for it; the default is what Java does."""
    resend_share: float = 0.2
    resend_reach: int = 1_000
    """Largest distance of duplicate sends from their originals, in messages of this producer."""
    id_space: int = 0
    without_id_every: int = 0
    extreme: bool = False
    own_values: bool = False
    """Whether its values differ from those of other producers of the same IDs."""
    transactional: bool = False
    parts_to: tuple[str, ...] = ()
    """Each message is an envelope, with parts for these addresses; none = plain messages."""

    def message(self, step: int) -> Message:
        number = step
        if step and self._draw("resend", step) < self.resend_share:
            # Most resends follow soon: the distance is spread evenly over its orders of magnitude.
            number = step - int(min(self.resend_reach, step) ** self._draw("reach", step))
        return self.numbered(number % self.id_space if self.id_space else number)

    def numbered(self, number: int) -> Message:
        nameless = self.without_id_every and number % self.without_id_every == 0
        if self.parts_to:
            return self._envelope(number, nameless=bool(nameless))
        return Message(
            number,
            None if nameless else f"{self.ids}-{number}".encode(),
            self._group(number),
            self._value(number),
        )

    def aborts(self, transaction: int) -> bool:
        return self._draw("abort", transaction) < ABORT_SHARE

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        return cls(**fields | {"groups": Groups(fields["groups"]), "parts_to": tuple(fields["parts_to"])})

    def _envelope(self, number: int, *, nameless: bool) -> Message:
        """Return a transaction; its ID is on the envelope, on its last part, or on both; nameless = nowhere."""
        parts = [
            self._part(number, index) for index in range(1 + int(self._draw("parts", number) * PARTS_MOST))
        ]
        where = number % 3
        if where and not nameless:
            name = {"name": "_AMQ_DUPL_ID", "value": f"{self.ids}-{number}-part"}
            parts[-1]["headers"] = [*parts[-1]["headers"], name]
        if number % MALFORMED_EVERY == 0:
            parts[-1]["odd"] = number
        known = None if nameless or where == 1 else f"{self.ids}-{number}".encode()
        value = json.dumps({"parts": parts}).encode()
        return Message(number, known, self._group(number), value, (("_RF_TX", b"json/1"),))

    def _part(self, number: int, each: int) -> dict[str, Any]:
        text, dice = f"{self.ids}/{number}/{each}", int(self._draw(f"part {each}", number) * 1_000)
        group = b"zipf-%d" % int(math.exp(self._draw(f"group {each}", number) * math.log(GROUPS_ZIPF)))
        value = (
            {"value": text}
            if dice % 5
            else {"value_base64": base64.b64encode(text.encode() + b"\xff\x00").decode()}
        )
        key = {} if dice % 7 == 0 else {"key": group.decode()}
        headers = [{"name": "number", "value": str(number)}]
        return {"address": self.parts_to[dice % len(self.parts_to)], "headers": headers, **key, **value}

    def _group(self, number: int) -> bytes | None:
        match self.groups:
            case Groups.NONE:
                return None
            case Groups.FEW:
                return b"few-%d" % (number % GROUPS_FEW)
            case Groups.MANY:
                return f"group-{self.ids}-{number}".encode()
            case Groups.ZIPF:
                # The inverse of Zipf's distribution function with exponent 1, near enough.
                return b"zipf-%d" % int(math.exp(self._draw("group", number) * math.log(GROUPS_ZIPF)))

    def _value(self, number: int) -> bytes | None:
        if not self.extreme:
            return b"%s/%d" % ((self.name if self.own_values else self.ids).encode(), number)
        if number % EXTREME_EVERY == 0:
            return (b"%d/" % number).ljust(HUGE_BYTES, b"x")
        return (None, b"", b"\x00", b"%d" % number)[number % 4]

    def _draw(self, what: str, number: int) -> float:
        """Return a number in [0, 1) that depends on the seed, the purpose and the number alone."""
        text = f"{self.seed}/{what}/{number}".encode()
        # CRC-32 is linear: similar texts give similar sums, which a multiplication mixes.
        return (zlib.crc32(text) * 0x9E3779B97F4A7C15 >> 20 & 0xFFFFFFFF) / 2**32
