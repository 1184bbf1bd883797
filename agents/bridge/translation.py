"""Translates records from the source for the target. Key, value, timestamp and users' headers stay. Pure.

Ringfence's own headers are removed, except the hop trace (:mod:`ringfence_kafka.protocol.hop_trace`), which ends loops of bridges.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agents.batch.batch import Record
from agents.bridge.window import Place
from ringfence_kafka import clock
from ringfence_kafka.protocol import hop_trace, wire_names
from ringfence_kafka.protocol.hop_trace import entries, reached
from ringfence_kafka.protocol.hop_trace import members as members_of

Header = tuple[str, bytes | None]

_GOES: Final = frozenset(
    {
        wire_names.HEADER_SOURCE,
        wire_names.HEADER_KEY,
        wire_names.HEADER_HOP,
        wire_names.HEADER_CONFIRMED,
        wire_names.HEADER_USER_IDS,
        wire_names.HEADER_HOPS,
        wire_names.HEADER_BRIDGE_APP,
        wire_names.HEADER_REDRIVEN,
    }
)
_RESERVED: Final = wire_names.RESERVED_PREFIX
_RESERVED_LENGTH: Final = len(_RESERVED)
_GOES_OF_ACCEPTED: Final = _GOES | {
    wire_names.HEADER_PART,
    wire_names.HEADER_SEQUENCE,
    wire_names.HEADER_VERDICT,
}


TURNS_MAX: Final = 3
"""Limit of passes of a message through the same topic in a loop of bridges, even if returns are forwarded."""


class Passing:
    """Hop traces of a source topic's messages, and the returned messages of one cycle."""

    def __init__(self, topic_id: str, target_topics: Collection[bytes], *, forwards: bool) -> None:
        """Create the tracker. ``target_topics``: trace entries of a message at the target; ``forwards``: whether to forward returned messages."""
        self._own = hop_trace.topic(topic_id)
        self._target_topics = frozenset(target_topics)
        self._forwards = forwards
        self.header = (wire_names.HEADER_HOPS, self._own)
        """Header of a message without a trace."""
        self.returned: list[int] = []
        """Offsets of messages that came back."""
        self.example = b""
        """Hop trace of one of these messages."""

    def beyond(self, value: bytes, offset: int) -> bytes | None:
        """Return the new hop trace of a message; None = it is not forwarded."""
        found = hop_trace.entries(value)
        turns = found.count(self._own)
        if turns or not self._target_topics.isdisjoint(found):
            self.returned.append(offset)
            self.example = value
            if not self._forwards or turns >= TURNS_MAX:
                return None
        return hop_trace.with_topic(found, self._own)


At = tuple[Place, int]
"""A record, by the opening of its source partition and its offset. Facts about it do not apply after the topic is created again."""


@dataclass(slots=True)
class Refused:
    """Records that the target refused, with the reasons.

    A topic limits the difference between a timestamp and its broker's clock. One such refusal predicts later ones without a comparison of
    clocks: timestamps that are as far ahead or farther, or as old or older. Otherwise each record of a producer that sends microseconds
    instead of milliseconds would cost a search.
    """

    by_target: dict[At, str] = field(default_factory=dict)
    by_all: dict[At, str] = field(default_factory=dict)
    """Records that the quarantine topic refused too."""
    ahead_ms: float = math.inf
    """Smallest distance of a refused timestamp ahead of :func:`ringfence_kafka.clock.now`, in ms."""
    oldest_ms: float = -math.inf
    """Latest refused timestamp of those that are too old, in ms."""

    def learn_time(self, timestamp: int, asked_at: float, wall_ms: float) -> None:
        """Record that the target refused a timestamp, in ms. ``asked_at``: earliest time of the request, in s; ``wall_ms``: the time now."""
        if timestamp > wall_ms:
            self.ahead_ms = min(self.ahead_ms, timestamp - asked_at * 1000)
        else:
            self.oldest_ms = max(self.oldest_ms, timestamp)

    def times(self) -> tuple[float, float]:
        """Return the timestamps between which the target may take records now, in ms."""
        return self.oldest_ms, self.ahead_ms + clock.now() * 1000

    def clear(self) -> None:
        """Forget all refusals, because the target may have changed."""
        self.by_target.clear()
        self.by_all.clear()
        self.ahead_ms, self.oldest_ms = math.inf, -math.inf


class RefusedError(Exception):
    """Neither the target topic nor the quarantine topic takes a record."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.offset = offset


class Forwarded(NamedTuple):
    """Record that the translation changed."""

    offset: int
    """Offset at the source."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp: int
    """Timestamp at the source, in ms."""


class Traced(Forwarded):
    """Changed record whose hop trace includes this source."""

    __slots__ = ()


class Translator:
    """Translator of one bridge."""

    def __init__(
        self,
        filter_header: str = "",
        filter_values: Sequence[str] = (),
        add_headers: Mapping[str, str] | None = None,
        *,
        this: str = "",
        member: str = "",
        max_hops: int = 0,
        members: Sequence[str] = (),
    ) -> None:
        """Set which messages are forwarded, and which headers are added.

        Messages pass if ``filter_header`` has one of ``filter_values``; empty = all pass. In a cluster connection, ``this`` forwards to ``member``,
        one of all ``members``; ``max_hops``: maximum number of members that a message passed before.
        """
        self._filter_header = filter_header
        self._filter_values = frozenset(value.encode() for value in filter_values)
        self._added: list[Header] = [(name, value.encode()) for name, value in (add_headers or {}).items()]
        self._replaced = frozenset(name for name, _ in self._added)
        self._this = this.encode()
        self._member = member.encode()
        self._max_hops = max_hops
        self._others = [name.encode() for name in members if max_hops > 1 and name != member]
        self._adds = bool(add_headers or this)

    @property
    def terms(self) -> dict[str, object]:
        """Settings of the filter and of added headers, for JSON."""
        return {
            "filter_header": self._filter_header,
            "filter_values": sorted(value.decode() for value in self._filter_values),
            "add_headers": {name: (value or b"").decode() for name, value in self._added},
            "max_hops": self._max_hops,
        }

    def translate_all(self, records: Sequence[Record], passing: Passing | None = None) -> list[Record]:
        """Return the translated records that go to the target; see :meth:`translate`."""
        translate = self.translate
        if self._filter_header or self._adds:
            return [each for record in records if (each := translate(record, passing)) is not None]
        found: list[Record] = []
        # A call for each message would cost as much as this loop. Most messages have no header of Ringfence, and most others only the
        # source, as the last one.
        for record in records:
            headers = record.headers
            for at, (name, _) in enumerate(headers, 1):  # noqa: B007 - read behind the loop
                if name[:_RESERVED_LENGTH] == _RESERVED:
                    break
            else:
                found.append(record)
                continue
            if name == wire_names.HEADER_SOURCE and at == len(headers):
                found.append(
                    Forwarded(record.offset, record.key, record.value, headers[:-1], record.timestamp)
                )
            else:
                changed = translate(record, passing)
                if changed is not None:
                    found.append(changed)
        return found

    def translate(self, record: Record, passing: Passing | None = None) -> Record | None:
        """Return the translated record, or the same object if nothing changes; None = not forwarded. ``passing``: detects returned messages."""
        headers = record.headers
        if self._filter_header and dict(headers).get(self._filter_header) not in self._filter_values:
            return None
        if self._adds or any(name[:_RESERVED_LENGTH] == _RESERVED for name, _ in headers):
            return self._changed(record, passing)
        return record

    def _changed(self, record: Record, passing: Passing | None) -> Record | None:
        """Return the record with changed headers; None = not forwarded."""
        key, kept = record.key, []
        ours: dict[str, bytes | None] = {}
        for header in record.headers:
            if header[0].startswith(wire_names.RESERVED_PREFIX):
                ours[header[0]] = header[1]
            elif header[0] not in self._replaced:
                kept.append(header)
        accepted = wire_names.HEADER_SOURCE in ours
        if ours:
            if accepted:
                key = ours.get(wire_names.HEADER_KEY, key)
            goes = _GOES_OF_ACCEPTED if accepted else _GOES
            kept += [item for item in ours.items() if item[0] not in goes]
        kept += self._added
        # Without one of these headers only a client can have written the hop trace.
        passed = ours.get(wire_names.HEADER_HOPS) if accepted or wire_names.HEADER_HOP in ours else None
        hops = self._beyond(passed, record.offset, passing)
        if hops is not None:
            kept.append((wire_names.HEADER_HOPS, hops))
        elif self._this or passed is not None:
            return None
        made = Forwarded if hops is None or passing is None else Traced
        return made(record.offset, key, record.value, kept, record.timestamp)

    def _beyond(self, passed: bytes | None, offset: int, passing: Passing | None) -> bytes | None:
        """Return the hop trace of a message at the target; None = it has none or is not forwarded."""
        if not self._this:
            return passed if passed is None or passing is None else passing.beyond(passed, offset)
        found = entries(passed)
        members = members_of(found)
        if self._member in members or len(members) >= self._max_hops:
            return None
        if reached(self._member) in found:  # in a full mesh the message would arrive once more on each route
            return None
        others = [other for other in self._others if other not in members and reached(other) not in found]
        return b",".join([*found, self._this, *map(reached, others)])
