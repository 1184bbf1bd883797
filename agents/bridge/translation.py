"""Translates records of the source for the target: key, value, timestamp and users' headers stay. Pure.

Ringfence's own headers go, except the hop trace (:mod:`ringfence_kafka.protocol.hop_trace`), which ends loops of bridges.
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
"""A message that was read from a topic this often goes no further, even if returns are forwarded: the bridges form a circle."""


class Passing:
    """Hop traces of a source topic's messages, and the returns in one load of them."""

    def __init__(self, topic_id: str, target_topics: Collection[bytes], *, forwards: bool) -> None:
        """``target_topics``: :func:`ringfence_kafka.protocol.hop_trace.topic` of a message at the target. ``forwards``: also messages that return."""
        self._own = hop_trace.topic(topic_id)
        self._target_topics = frozenset(target_topics)
        self._forwards = forwards
        self.header = (wire_names.HEADER_HOPS, self._own)
        """Hop trace of a message that comes from nowhere else."""
        self.returned: list[int] = []
        """Offsets of messages that came back, or would."""
        self.example = b""
        """Hop trace of one of these messages."""

    def beyond(self, value: bytes, offset: int) -> bytes | None:
        """Return the hop trace of a message that goes on; None = it does not."""
        found = hop_trace.entries(value)
        turns = found.count(self._own)
        if turns or not self._target_topics.isdisjoint(found):
            self.returned.append(offset)
            self.example = value
            if not self._forwards or turns >= TURNS_MAX:
                return None
        return hop_trace.with_topic(found, self._own)


At = tuple[Place, int]
"""A record: the opening of its source partition, and its offset. Facts about it do not hold for the next topic of that name."""


@dataclass(slots=True)
class Refused:
    """Records that the target has refused, and why.

    A topic bounds how far a timestamp may be from its broker's clock, and that clock moves on by itself. One refusal for that reason
    predicts later ones, whatever our clocks say: timestamps as far ahead or farther, and timestamps as old or older. Else a producer that
    mistakes microseconds for milliseconds would cost a search for each of its records.
    """

    by_target: dict[At, str] = field(default_factory=dict)
    by_all: dict[At, str] = field(default_factory=dict)
    """The quarantine topic does not take these either."""
    ahead_ms: float = math.inf
    """The least by which a timestamp that is too far ahead was before :func:`ringfence_kafka.clock.now`."""
    oldest_ms: float = -math.inf
    """The latest timestamp that is too old."""

    def learn_time(self, timestamp: int, asked_at: float, wall_ms: float) -> None:
        """Note that the target refused a record for its timestamp (ms). It was asked at ``asked_at`` (s) or later; ``wall_ms``: the time now."""
        if timestamp > wall_ms:
            self.ahead_ms = min(self.ahead_ms, timestamp - asked_at * 1000)
        else:
            self.oldest_ms = max(self.oldest_ms, timestamp)

    def times(self) -> tuple[float, float]:
        """Return the two timestamps between which the target may take a record now, in ms."""
        return self.oldest_ms, self.ahead_ms + clock.now() * 1000

    def clear(self) -> None:
        """Forget all refusals: the target may take all of it now."""
        self.by_target.clear()
        self.by_all.clear()
        self.ahead_ms, self.oldest_ms = math.inf, -math.inf


class RefusedError(Exception):
    """Nothing takes a record, not even the quarantine."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.offset = offset


class Forwarded(NamedTuple):
    """A record on its way that is another one than at the source."""

    offset: int
    """At the source."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp: int
    """In ms, as at the source."""


class Traced(Forwarded):
    """One that says where it has been, this source included."""

    __slots__ = ()


class Translator:
    """Translates the records of one bridge."""

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
        """Set which messages pass, and the headers that are added.

        Args:
            filter_header: Messages pass if this header has one of ``filter_values``; empty = all pass.
            filter_values: As UTF-8.
            add_headers: Put on each message.
            this: The member that forwards; empty = not for a cluster connection.
            member: The member that it is for.
            max_hops: Members that a message may have passed before.
            members: All that this one forwards to.
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
        """Return what it lets through and adds, as JSON gives it back."""
        return {
            "filter_header": self._filter_header,
            "filter_values": sorted(value.decode() for value in self._filter_values),
            "add_headers": {name: (value or b"").decode() for name, value in self._added},
            "max_hops": self._max_hops,
        }

    def translate_all(self, records: Sequence[Record], passing: Passing | None = None) -> list[Record]:
        """Those that go to the target, as :meth:`translate` has each."""
        translate = self.translate
        if self._filter_header or self._adds:
            return [each for record in records if (each := translate(record, passing)) is not None]
        found: list[Record] = []
        # A call for each message would cost as much as these looks: most have nothing of ours, and most of the others, at the end, their
        # source alone.
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
        """As it goes to the target: the same record where nothing changes; None = it does not. With ``passing`` not back to where it was."""
        headers = record.headers
        if self._filter_header and not self._lets_through(headers):
            return None
        if self._adds:
            return self._changed(record, passing)
        if not any(name[:_RESERVED_LENGTH] == _RESERVED for name, _ in headers):
            return record
        return self._changed(record, passing)

    def _changed(self, record: Record, passing: Passing | None) -> Record | None:
        """Return the record, changed header by header."""
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
        # Without one of these nobody but a client can have written it.
        passed = ours.get(wire_names.HEADER_HOPS) if accepted or wire_names.HEADER_HOP in ours else None
        hops = self._beyond(passed, record.offset, passing)
        if hops is not None:
            kept.append((wire_names.HEADER_HOPS, hops))
        elif self._this or passed is not None:
            return None
        made = Forwarded if hops is None or passing is None else Traced
        return made(record.offset, key, record.value, kept, record.timestamp)

    def _beyond(self, passed: bytes | None, offset: int, passing: Passing | None) -> bytes | None:
        """Return the hop trace of a message at the target; None = it has none, or the message goes no further."""
        if not self._this:
            return passed if passed is None or passing is None else passing.beyond(passed, offset)
        found = entries(passed)
        members = members_of(found)
        if self._member in members or len(members) >= self._max_hops:
            return None
        if reached(self._member) in found:  # where all know one another it would come once more by each way
            return None
        others = [other for other in self._others if other not in members and reached(other) not in found]
        return b",".join([*found, self._this, *map(reached, others)])

    def _lets_through(self, headers: Sequence[Header]) -> bool:
        found: bytes | None = None
        for name, value in headers:
            if name == self._filter_header:
                found = value
        return found is not None and found in self._filter_values
