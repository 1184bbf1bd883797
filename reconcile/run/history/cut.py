"""The cut: offset ranges of a run, from the end of its base to the committed offsets of the workers. Pure.

Outputs are read to their end. It is asked for after the commits, so that the outputs contain all covered messages.
Evidence on inputs beyond the cut is kept for the next run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringfence_kafka.config.chains import feeder
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names

Ranges = dict[str, dict[int, tuple[int, int]]]
"""Topic → partition → offsets from, to."""


class Span(NamedTuple):
    """The range of one partition in one run."""

    origin: int  # before this offset nothing was ever judged
    begin: int  # where the last run ended
    read_from: int  # begin, or the log's start where retention has passed it
    cut: int  # where this run ends: the committed offset of an input, the end of an output
    end: int  # where the log ended after the outputs' ends were known


class Lost(NamedTuple):
    """Evidence that is gone."""

    topic: str
    partition: int
    begin: int
    end: int  # the first offset behind it; begin where nobody knows how far it went
    why: str

    @property
    def text(self) -> str:
        """The lost offsets and the reason, for a person."""
        if self.begin == self.end:
            return f"from offset {self.begin} on: {self.why}"
        last = self.end - 1
        which = f"offset {last}" if self.begin == last else f"offsets {self.begin} to {last}"
        return f"{which}: {self.why}"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run read a topic."""

    topic_id: str
    origins: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic when the run begins, as the cluster reports it."""

    topic_id: str
    starts: tuple[int, ...]
    cuts: tuple[int | None, ...]
    """Committed offsets of an input, None = none; ends of what is read to its end."""
    ends: tuple[int, ...]


@dataclass(slots=True)
class TopicCut:
    """The ranges of a topic."""

    topic: str
    topic_id: str
    spans: list[Span] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    recreated: bool = False  # it is another topic of that name than the last run's, or its log went back
    key: str = ""  # name of its position in what runs keep: its own, or that of chained_key

    def __post_init__(self) -> None:
        self.key = self.key or self.topic

    @property
    def position(self) -> Position:
        """The position for the next run."""
        return Position(
            self.topic_id,
            tuple(span.origin for span in self.spans),
            tuple(span.cut for span in self.spans),
        )


class Recorded(NamedTuple):
    """Rules and limits that the last transaction of a lane recorded."""

    rules: Mapping[str, Any]
    """Key of the configuration → value; one of another address, for parts of transactions, begins with ``<address>: ``."""
    capacity: int  # of its ring
    max_age_ms: int  # 0 = no limit
    lanes: int = 0  # of its address; 0 = a lane for each partition
    min_age_ms: int = 0  # 0 = no promise in time
    size: int = 0  # id_cache_size, with such a promise
    broken: int = 0  # IDs that left their ring in spite of it


@dataclass(frozen=True, slots=True)
class AddressCut:
    """The ranges of an address."""

    input: TopicCut
    forward: TopicCut | None  # None = it never had more than one lane
    accepted: TopicCut
    quarantine: TopicCut
    duplicates: TopicCut | None
    forward_committed: tuple[int, ...]
    """Offsets up to which home lanes had consumed the forward topic; it is read to its end."""
    journal: Sequence[Lost] = ()  # what is gone of the journal, which all addresses share
    targets: Sequence[TopicCut] = ()
    """Accepted topics of other addresses, in which parts of its transactions are."""
    former: str = ""  # what it was called on the last run; empty = as now
    recorded: Mapping[int, Recorded] = field(default_factory=dict)
    """Lane → what its changelog says that it goes by; lanes without a transaction are absent."""

    def topics(self) -> dict[str, TopicCut]:
        """Return the topics by role."""
        roles = {
            "input": self.input,
            "forward": self.forward,
            "accepted": self.accepted,
            "quarantine": self.quarantine,
            "duplicates": self.duplicates,
        }
        return {role: topic for role, topic in roles.items() if topic is not None}

    @property
    def lost(self) -> list[Lost]:
        """All evidence that is gone."""
        return [lost for topic in self.topics().values() for lost in topic.lost] + list(self.journal)


def topic_roles(app_id: str, address: AddressSettings) -> dict[str, str]:
    """Return the topics that a run reads of an address, by role. With one lane nothing is forwarded: see :func:`former_forward`."""
    roles = {
        "input": address.input_topic,
        "forward": wire_names.forward_topic(app_id, address.name),
        "accepted": address.accepted_topic,
        "quarantine": address.quarantine_topic,
    }
    if not address.forwards:
        del roles["forward"]
    return roles | ({"duplicates": address.duplicates_topic} if address.diverts else {})


def former_forward(app_id: str, address: AddressSettings) -> str | None:
    """Return the forward topic that an address with one lane may have from earlier lanes; None = it has more."""
    return None if address.forwards else wire_names.forward_topic(app_id, address.name)


def chained_key(topic: str) -> str:
    """Name of the position of an input that is another address's accepted topic; no topic has such a name.

    The input is judged up to a committed offset, and the accepted topic is read to its end: a run keeps two
    positions of one topic.
    """
    return f"{topic}/input"


def positions_of(
    addresses: Sequence[AddressSettings],
    positions: Mapping[str, Position],
    rules: Mapping[str, Mapping[str, Any]],
) -> dict[str, Position]:
    """Return the positions of an earlier run, named for the present chains of addresses.

    An address may have become a link of a chain since, or may have left one. ``rules`` are those of the
    earlier run, by address.
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
    """Return the ranges of a topic. Without a last run it begins at 0, and a later log start is a gap.

    Args:
        topic: Its name.
        now: Its state.
        last: How far the base read it.
        seen: How far later runs read it that nobody acknowledged. They prove what was there.
    """
    replaced = [item for item in (last, *seen) if item is not None and item.topic_id != now.topic_id]
    if last in replaced:
        last = None
    same = [position for position in seen if position.topic_id == now.topic_id]
    spans, lost, recreated = [], _recreated(topic, replaced), bool(replaced)
    for number, (start, cut, end) in enumerate(zip(now.starts, now.cuts, now.ends, strict=True)):
        known = last is not None and number < len(last.ends)
        begin = last.ends[number] if last is not None and known else 0
        origin = last.origins[number] if last is not None and known else start
        reached = max((position.ends[number] for position in same if number < len(position.ends)), default=0)
        if begin > end:
            why = "the log ends before the judged offsets: it lost its last records"
            lost.append(Lost(topic, number, end, begin, why))
            recreated = True
            begin = end  # what stands below was judged, or is called lost
        elif reached > end:
            why = "the log ends before the offsets of an earlier run: it lost its last records"
            lost.append(Lost(topic, number, end, reached, why))
            recreated = True
        read_from = max(begin, start)
        if start > begin:
            lost.append(Lost(topic, number, begin, start, "retention deleted it before it was judged"))
        until = read_from if cut is None else max(read_from, min(cut, end))
        spans.append(Span(origin, begin, read_from, until, end))
    return TopicCut(topic, now.topic_id, spans, lost, recreated)


def _recreated(topic: str, former: Sequence[Position]) -> list[Lost]:
    """Lost evidence of deleted topics with this name."""
    ends: dict[int, int] = {}
    for position in former:
        for number, end in enumerate(position.ends):
            ends[number] = max(end, ends.get(number, 0))
    return [Lost(topic, number, end, end, "it was deleted and created again") for number, end in ends.items()]


def journal_lost(
    journal: str, now: Position, last: Position | None, seen: Sequence[Position] = ()
) -> list[Lost]:
    """Lost events of the journal, which each run reads whole.

    ``now`` and ``last`` are its first and end offsets, now and in the last run; ``seen``: see
    :func:`cut_topic`.
    """
    former = [item for item in (last, *seen) if item is not None and item.topic_id != now.topic_id]
    if former:
        return _recreated(journal, former)
    known = last.origins if last else ()
    begins = [*known, *[0] * (len(now.origins) - len(known))]
    return [
        Lost(journal, number, begin, start, "it was deleted, and must be kept forever")
        for number, (begin, start) in enumerate(zip(begins, now.origins, strict=True))
        if start > begin
    ]


def positions(cuts: Mapping[str, AddressCut]) -> dict[str, Position]:
    """Positions by topic, and by :func:`chained_key` for inputs that another address writes."""
    return {topic.key: topic.position for cut in cuts.values() for topic in cut.topics().values()}


def ranges(topics: Sequence[TopicCut]) -> Ranges:
    """Return the ranges to read, by topic and partition, without empty ones."""
    return _filled(
        (topic.topic, {number: (span.read_from, span.cut) for number, span in enumerate(topic.spans)})
        for topic in topics
    )


def backlog(topics: Sequence[TopicCut], ends: Mapping[tuple[str, int], int]) -> Ranges:
    """Readable ranges of the inputs beyond the cut; ``ends`` are their last stable offsets."""
    return _filled(
        (topic.topic, {n: (span.cut, ends[topic.topic, n]) for n, span in enumerate(topic.spans)})
        for topic in topics
    )


def _filled(ranges: Iterable[tuple[str, Mapping[int, tuple[int, int]]]]) -> Ranges:
    found: Ranges = {}
    for topic, spans in ranges:
        if filled := {number: span for number, span in spans.items() if span[0] < span[1]}:
            found[topic] = filled
    return found
