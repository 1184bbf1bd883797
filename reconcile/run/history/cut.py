"""The cut: offset ranges of a run, from the end of its base to the committed offsets of the workers. Pure.

Outputs are read to their ends. The run asks for the ends after the committed offsets, so the outputs contain
all covered messages. Evidence on inputs beyond the cut is kept for the next run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringfence_kafka.config.chains import feeder
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names

Ranges = dict[str, dict[int, tuple[int, int]]]
"""Topic → partition → first offset, and offset behind the last."""


class Span(NamedTuple):
    """Range of one partition in one run."""

    origin: int  # no run judged records below this offset
    begin: int  # end of the last run
    read_from: int  # ``begin``, or the log start if retention deleted more
    cut: int  # end of this run: committed offset of an input, end of an output
    end: int  # end of the log, read after the ends of outputs


class Lost(NamedTuple):
    """Range of missing evidence."""

    topic: str
    partition: int
    begin: int
    end: int  # offset behind the last missing record; equals ``begin`` if unknown
    why: str

    @property
    def text(self) -> str:
        """Missing offsets and the reason, as text."""
        if self.begin == self.end:
            return f"from offset {self.begin} on: {self.why}"
        last = self.end - 1
        which = f"offset {last}" if self.begin == last else f"offsets {self.begin} to {last}"
        return f"{which}: {self.why}"


@dataclass(frozen=True, slots=True)
class Position:
    """End of a run in a topic, by partition."""

    topic_id: str
    origins: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicState:
    """State of a topic when the run begins, from the cluster."""

    topic_id: str
    starts: tuple[int, ...]
    cuts: tuple[int | None, ...]
    """Committed offsets of an input (None = none); the ends of other topics."""
    ends: tuple[int, ...]


@dataclass(slots=True)
class TopicCut:
    """Ranges of a topic in one run."""

    topic: str
    topic_id: str
    spans: list[Span] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    recreated: bool = False  # the last run read another topic of this name, or the log has become shorter
    key: str = ""  # name of its kept position: the topic, or its chained_key

    def __post_init__(self) -> None:
        self.key = self.key or self.topic

    @property
    def position(self) -> Position:
        """Position from which the next run continues."""
        return Position(
            self.topic_id,
            tuple(span.origin for span in self.spans),
            tuple(span.cut for span in self.spans),
        )


class Recorded(NamedTuple):
    """Rules and limits from the last transaction of a lane."""

    rules: Mapping[str, Any]
    """Configuration key → value. Keys of addresses that receive parts begin with ``<address>: ``."""
    capacity: int  # size of the lane's ring
    max_age_ms: int  # 0 = no limit
    lanes: int = 0  # the address's key; 0 = one lane for each partition
    min_age_ms: int = 0  # 0 = no promise in time
    size: int = 0  # id_cache_size if there is a promise in time, else 0
    broken: int = 0  # IDs that left their ring before the promised time
    next_offsets: Mapping[tuple[str, int], int] = {}
    """Input or forward topic and partition → first offset that the lane had not judged."""
    topic_ids: Mapping[str, str] = {}
    """Kafka's ID of each of these topics."""


@dataclass(frozen=True, slots=True)
class AddressCut:
    """Ranges of all topics of an address."""

    input: TopicCut
    forward: TopicCut | None  # None = the address never had more than one lane
    accepted: TopicCut
    quarantine: TopicCut
    duplicates: TopicCut | None
    forward_committed: tuple[int, ...]
    """Committed offsets of home lanes in the forward topic, whose cut is its end."""
    journal: Sequence[Lost] = ()  # missing ranges of the journal, which all addresses share
    targets: Sequence[TopicCut] = ()
    """Accepted topics of other addresses that receive parts of its transactions."""
    former: str = ""  # name in the last run; empty = unchanged
    recorded: Mapping[int, Recorded] = field(default_factory=dict)
    """Lane → rules that its changelog records; lanes without a transaction are absent."""

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
        """All missing evidence of the address, journal included."""
        return [lost for topic in self.topics().values() for lost in topic.lost] + list(self.journal)


def topic_roles(app_id: str, address: AddressSettings) -> dict[str, str]:
    """Return an address's topics by role. With one lane nothing is forwarded: :func:`former_forward`."""
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
    """Return the forward topic that an address with one lane may have from former lanes, else None."""
    return None if address.forwards else wire_names.forward_topic(app_id, address.name)


def chained_key(topic: str) -> str:
    """Return the name of an input's position if another address writes the input; no topic has such a name.

    The input is judged up to a committed offset, and the accepted topic is read to its end, so a run keeps
    two positions of one topic.
    """
    return f"{topic}/input"


def positions_of(
    addresses: Sequence[AddressSettings],
    positions: Mapping[str, Position],
    rules: Mapping[str, Mapping[str, Any]],
) -> dict[str, Position]:
    """Return the positions of an earlier run, renamed for the present chains of addresses.

    An address may have joined or left a chain since. ``rules``: address → rules of the earlier run.
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
    """Return the ranges of a topic. Without a last position it begins at 0, and a later log start is a gap.

    Args:
        topic: Name of the topic.
        now: Present state.
        last: Position of the base; None = the base did not read it.
        seen: Positions of later runs that were not acknowledged. They prove which records existed.
    """
    replaced = [item for item in (last, *seen) if item is not None and item.topic_id != now.topic_id]
    if last in replaced:
        last = None
    same = [position for position in seen if position.topic_id == now.topic_id]
    spans, lost, recreated = [], _recreated(topic, replaced), bool(replaced)
    for number, (start, cut, end) in enumerate(zip(now.starts, now.cuts, now.ends, strict=True)):
        begin, origin = (
            (last.ends[number], last.origins[number]) if last and number < len(last.ends) else (0, start)
        )
        reached = max((position.ends[number] for position in same if number < len(position.ends)), default=0)
        if max(begin, reached) > end:
            gone, what = (begin, "judged offsets") if begin > end else (reached, "offsets of an earlier run")
            why = f"the log ends before the {what}: it lost its last records"
            lost.append(Lost(topic, number, end, gone, why))
            recreated = True
            begin = min(begin, end)  # everything below was judged, or is reported as lost
        read_from = max(begin, start)
        if start > begin:
            lost.append(Lost(topic, number, begin, start, "retention deleted it before it was judged"))
        until = read_from if cut is None else max(read_from, min(cut, end))
        spans.append(Span(origin, begin, read_from, until, end))
    return TopicCut(topic, now.topic_id, spans, lost, recreated)


def _recreated(topic: str, former: Sequence[Position]) -> list[Lost]:
    """Return lost evidence of deleted topics with this name."""
    ends: dict[int, int] = {}
    for position in former:
        for number, end in enumerate(position.ends):
            ends[number] = max(end, ends.get(number, 0))
    return [Lost(topic, number, end, end, "it was deleted and created again") for number, end in ends.items()]


def journal_lost(
    journal: str, now: Position, last: Position | None, seen: Sequence[Position] = ()
) -> list[Lost]:
    """Return lost events of the journal, which each run reads from its start; ``seen``: :func:`cut_topic`.

    ``now`` and ``last`` are its first and end offsets, in this run and in the last.
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
    """Return positions by topic, and by :func:`chained_key` for inputs that another address writes."""
    return {topic.key: topic.position for cut in cuts.values() for topic in cut.topics().values()}


def ranges(topics: Sequence[TopicCut]) -> Ranges:
    """Return the ranges to read by topic and partition, without empty ranges."""
    return _filled(
        (topic.topic, {number: (span.read_from, span.cut) for number, span in enumerate(topic.spans)})
        for topic in topics
    )


def backlog(topics: Sequence[TopicCut], ends: Mapping[tuple[str, int], int]) -> Ranges:
    """Return readable ranges of inputs beyond the cut. ``ends``: last stable offsets."""
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
