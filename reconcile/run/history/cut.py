"""What a night covers: from where the last good one ended, up to what the workers had committed. Pure.

Inputs are judged up to the group's committed offsets; the outputs are read to their end, which is asked for later, so
that whatever the commits cover is in them. What outputs tell of inputs beyond the cut is kept for the next night.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringfence_kafka.config.addresses import feeder
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names


class Span(NamedTuple):
    """One partition of a topic, in one night."""

    origin: int
    """Before this offset nothing was ever judged."""
    begin: int
    """Where the last night ended."""
    read_from: int
    """``begin``, or the log's start where retention has passed it."""
    cut: int
    """Where this night ends: the committed offset of an input, the end of an output."""
    end: int
    """Where the log ended after the outputs' ends were known."""


class Lost(NamedTuple):
    """Evidence that is gone."""

    topic: str
    partition: int
    begin: int
    end: int
    """The first offset behind it; ``begin`` where nobody knows how far it went."""
    why: str

    @property
    def text(self) -> str:
        """As a person reads it: both offsets are gone."""
        if self.begin == self.end:
            return f"from offset {self.begin} on: {self.why}"
        last = self.end - 1
        which = f"offset {last}" if self.begin == last else f"offsets {self.begin} to {last}"
        return f"{which}: {self.why}"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a topic was read, as one night hands it to the next."""

    topic_id: str
    origins: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicState:
    """What the cluster says of a topic when the night begins."""

    topic_id: str
    starts: tuple[int, ...]
    cuts: tuple[int | None, ...]
    """Committed offsets of an input, None = none; ends of what is read to its end."""
    ends: tuple[int, ...]


@dataclass(slots=True)
class TopicCut:
    """What is read of a topic."""

    topic: str
    topic_id: str
    spans: list[Span] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    recreated: bool = False
    """It is another topic of that name than the last night's, or its log went back."""
    key: str = ""
    """Name of its position in what runs keep: its own, or that of :func:`chained_key`."""

    def __post_init__(self) -> None:
        """Its own name, unless another one is given."""
        self.key = self.key or self.topic

    @property
    def position(self) -> Position:
        """What the next night begins with."""
        return Position(
            self.topic_id,
            tuple(span.origin for span in self.spans),
            tuple(span.cut for span in self.spans),
        )


class Recorded(NamedTuple):
    """Rules and limits of a lane, as its last transaction recorded them."""

    rules: Mapping[str, Any]
    """Key of the configuration → value; one of another address, for parts of transactions, begins with ``<address>: ``."""
    capacity: int
    """Of its ring."""
    max_age_ms: int
    """0 = no limit."""


@dataclass(frozen=True, slots=True)
class AddressCut:
    """What a night covers of one address."""

    input: TopicCut
    forward: TopicCut
    accepted: TopicCut
    quarantine: TopicCut
    duplicates: TopicCut | None
    forward_committed: tuple[int, ...]
    """What home lanes had consumed of the forward topic; it is read to its end."""
    journal: Sequence[Lost] = ()
    """What is gone of the journal, which all addresses share."""
    targets: Sequence[TopicCut] = ()
    """Accepted topics of other addresses, in which parts of its transactions are."""
    former: str = ""
    """What it was called on the last night; empty = as now."""
    recorded: Mapping[int, Recorded] = field(default_factory=dict)
    """Lane → what its changelog says that it goes by; lanes without a transaction are absent."""

    def topics(self) -> dict[str, TopicCut]:
        """By role."""
        roles = {
            "input": self.input,
            "forward": self.forward,
            "accepted": self.accepted,
            "quarantine": self.quarantine,
        }
        return roles | ({"duplicates": self.duplicates} if self.duplicates else {})

    @property
    def lost(self) -> list[Lost]:
        """All evidence that is gone."""
        return [lost for topic in self.topics().values() for lost in topic.lost] + list(self.journal)


def topic_roles(app_id: str, address: AddressSettings) -> dict[str, str]:
    """The topics that the job reads of an address, by role."""
    roles = {
        "input": address.input_topic,
        "forward": wire_names.forward_topic(app_id, address.name),
        "accepted": address.accepted_topic,
        "quarantine": address.quarantine_topic,
    }
    return roles | ({"duplicates": address.duplicates_topic} if address.duplicates == "divert" else {})


def chained_key(topic: str) -> str:
    """Return the name of the position of an input that is another address's accepted topic.

    The input is judged up to a committed offset, and the accepted topic is read to its end: a run keeps two positions of one topic.
    No topic has such a name.
    """
    return f"{topic}/input"


def positions_of(
    addresses: Sequence[AddressSettings],
    positions: Mapping[str, Position],
    rules: Mapping[str, Mapping[str, Any]],
) -> dict[str, Position]:
    """Return the positions that a run goes on from, named as the configuration has its chains now.

    An address may have become a link of a chain since, or may be one no more.

    Args:
        addresses: As they are configured now.
        positions: As an earlier run has kept them.
        rules: The rules of that run, by address.
    """
    found = dict(positions)
    written = {rule.get("accepted_topic") for rule in rules.values()}
    for address in addresses:
        topic, key = address.input_topic, chained_key(address.input_topic)
        if feeder(address, addresses) is None:
            if key in found:
                found[topic] = found.pop(key)
            continue
        was_input = rules.get(address.name, {}).get("input_topic") == topic
        if key not in found and topic in found and was_input and topic not in written:
            found[key] = found[topic]
    return found


def cut_topic(topic: str, now: TopicState, last: Position | None, seen: Sequence[Position] = ()) -> TopicCut:
    """Return from where to where a topic is read.

    Without a last run it begins at 0: a log that no longer does is a gap, whatever was in it.

    Args:
        topic: Its name.
        now: What the cluster says of it.
        last: How far the run read it that this one goes on from.
        seen: How far later runs read it, whose results do not count: nobody acknowledged them. They prove what was there.
    """
    made = TopicCut(topic, now.topic_id)
    before = [item for item in (last, *seen) if item is not None]
    if any(position.topic_id != now.topic_id for position in before):
        made.recreated = True
        made.lost = _recreated(topic, [position for position in before if position.topic_id != now.topic_id])
        last = last if last is not None and last.topic_id == now.topic_id else None
    same = [position for position in seen if position.topic_id == now.topic_id]
    for number, (start, cut, end) in enumerate(zip(now.starts, now.cuts, now.ends, strict=True)):
        reached = max((position.ends[number] for position in same if number < len(position.ends)), default=0)
        made.spans.append(_span(made, number, last, start, cut, end, reached))
    return made


def _recreated(topic: str, former: Sequence[Position]) -> list[Lost]:
    """Return what is gone of topics of this name that were deleted."""
    ends: dict[int, int] = {}
    for position in former:
        for number, end in enumerate(position.ends):
            ends[number] = max(end, ends.get(number, 0))
    return [Lost(topic, number, end, end, "it was deleted and created again") for number, end in ends.items()]


def _span(
    made: TopicCut, number: int, last: Position | None, start: int, cut: int | None, end: int, reached: int
) -> Span:
    """``reached``: where the log ended when a run saw it whose results do not count."""
    known = last is not None and number < len(last.ends)
    begin = last.ends[number] if last is not None and known else 0
    origin = last.origins[number] if last is not None and known else start
    if begin > end:
        made.lost.append(
            Lost(made.topic, number, end, begin, "the log ends before what was judged: it lost its tail")
        )
        made.recreated = True
        begin = end  # what stands below was judged, or is called lost
    elif reached > end:
        made.lost.append(
            Lost(
                made.topic,
                number,
                end,
                reached,
                "the log ends before what an earlier run has seen: it lost its tail",
            )
        )
        made.recreated = True
    read_from = max(begin, start)
    if start > begin:
        made.lost.append(Lost(made.topic, number, begin, start, "retention deleted it before it was judged"))
    until = read_from if cut is None else max(read_from, min(cut, end))
    return Span(origin, begin, read_from, until, end)


def journal_lost(
    journal: str, now: Position, last: Position | None, seen: Sequence[Position] = ()
) -> list[Lost]:
    """What has gone since the last night, or ever, of the journal: it is read whole each night.

    Args:
        journal: Its name.
        now: Its beginnings and ends.
        last: Those of the last run; None = it is not known to have been there.
        seen: As :func:`cut_topic` has them.
    """
    former = [item for item in (last, *seen) if item is not None and item.topic_id != now.topic_id]
    if former:
        return _recreated(journal, former)
    known = last.origins if last else ()
    begins = [*known, *[0] * (len(now.origins) - len(known))]
    return [
        Lost(journal, number, begin, start, "it was deleted, and is to be kept for ever")
        for number, (begin, start) in enumerate(zip(begins, now.origins, strict=True))
        if start > begin
    ]


def positions(cuts: Mapping[str, AddressCut]) -> dict[str, Position]:
    """By topic; of an input that another address writes by :func:`chained_key`."""
    return {topic.key: topic.position for cut in cuts.values() for topic in cut.topics().values()}


def ranges(topics: Sequence[TopicCut]) -> dict[str, dict[int, tuple[int, int]]]:
    """What there is to read, by topic and partition; partitions with nothing are left out."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic in topics:
        spans = {
            number: (span.read_from, span.cut)
            for number, span in enumerate(topic.spans)
            if span.read_from < span.cut
        }
        if spans:
            found[topic.topic] = spans
    return found


def backlog(
    topics: Sequence[TopicCut], ends: Mapping[tuple[str, int], int]
) -> dict[str, dict[int, tuple[int, int]]]:
    """What stands in the inputs beyond the cut and may be read; ``ends`` are their last stable offsets."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic in topics:
        spans = {
            number: (span.cut, ends[topic.topic, number])
            for number, span in enumerate(topic.spans)
            if span.cut < ends[topic.topic, number]
        }
        if spans:
            found[topic.topic] = spans
    return found
