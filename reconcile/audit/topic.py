"""The audited topic, and the part of it that is read. Nothing is joined, created or written."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from reconcile.cluster.admin import Admin
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.wording import counted

_NEAR_MAX: Final = 3
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd])")


class Extent(NamedTuple):
    """Offsets of one partition."""

    start: int  # first offset that still exists
    stable: int  # last stable offset, the end for readers of committed data
    end: int  # end of the log


@dataclass(frozen=True, slots=True)
class Part:
    """Offsets to read."""

    asked: str  # in words: the whole topic, the last 24h, the last 1,000 records
    spans: Mapping[int, tuple[int, int]]
    """Partition → first offset, and offset behind the last. Markers and compaction leave empty offsets."""
    whole: bool  # whether it is the whole topic

    @property
    def offsets(self) -> int:
        """Upper bound of the records."""
        return sum(end - begin for begin, end in self.spans.values())

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return the ranges of partitions with something to read."""
        return {number: span for number, span in self.spans.items() if span[0] < span[1]}


def seconds_of(text: str) -> int:
    """Return the seconds of a duration such as 90s, 30m, 24h or 7d. Raises ValueError if it is none."""
    match = _DURATION.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(f"{text!r} is not a duration: write for example 30m, 24h or 7d")
    return int(match[1]) * _UNITS[match[2]]


def whole(extents: Mapping[int, Extent]) -> Part:
    """Return the whole topic."""
    return Part(
        "the whole topic", {number: (extent.start, extent.stable) for number, extent in extents.items()}, True
    )


def since(extents: Mapping[int, Extent], begins: Mapping[int, int | None], asked: str) -> Part:
    """Return the part that begins at these offsets; None = the partition has no record so late."""
    spans = {}
    for number, extent in extents.items():
        begin = begins[number]
        spans[number] = (
            extent.stable if begin is None else min(max(begin, extent.start), extent.stable),
            extent.stable,
        )
    return _part(f"the last {asked}", spans, extents)


def last(extents: Mapping[int, Extent], count: int) -> Part:
    """Return the last ``count`` offsets, divided among the partitions in proportion to their sizes."""
    sizes = {number: extent.stable - extent.start for number, extent in extents.items()}
    total = sum(sizes.values())
    wanted = min(count, total)
    shares = {number: divmod(wanted * size, total) if total else (0, 0) for number, size in sizes.items()}
    missing = wanted - sum(share for share, _ in shares.values())
    largest_rest = sorted(shares, key=lambda number: (-shares[number][1], number))[:missing]
    spans = {
        number: (extent.stable - shares[number][0] - (number in largest_rest), extent.stable)
        for number, extent in extents.items()
    }
    return _part(f"the last {count:,} records", spans, extents)


def _part(asked: str, spans: Mapping[int, tuple[int, int]], extents: Mapping[int, Extent]) -> Part:
    return Part(asked, spans, all(spans[number][0] == extent.start for number, extent in extents.items()))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Topic and part to read."""

    topic: str
    since: str = ""  # duration such as 24h; empty = from the start
    last: int | None = None  # number of records; None = all


@dataclass(frozen=True, slots=True)
class Topic:
    """Offsets of a topic, and the part to read."""

    name: str
    extents: Mapping[int, Extent]
    part: Part
    cleanup_policy: str | None  # None = unknown, or denied to this user

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.extents)

    @property
    def compacted(self) -> bool:
        """Whether compaction keeps only the last record of each key."""
        return self.cleanup_policy is not None and "compact" in self.cleanup_policy


def surveyed(cluster: Admin, wanted: Wanted, now: int) -> Topic:
    """Ask the cluster for the topic. ``now``: current time in ms since the epoch.

    Raises:
        MissingTopicError: The topic does not exist, or this user may not read it.
        BrokerUnavailableError: No broker answers.
    """
    name = wanted.topic
    cluster.connect()
    facts = cluster.describe([name]).get(name) if name else None  # the client refuses an empty name
    if facts is None:
        raise MissingTopicError(_not_there(name, cluster.names()))
    if not facts.readable:
        raise MissingTopicError(
            f"{name}: this user may see it, but not read it: grant Read on the topic (kafka-acls.sh --add "
            f"--allow-principal User:… --operation Read --topic {name}); an audit needs nothing else"
        )
    places = [(name, number) for number in range(facts.partitions)]
    starts, stable = cluster.log_starts(places), cluster.stable_ends(places, dict.fromkeys(places, 0))
    ends = cluster.high_watermarks(places)
    extents = {
        place[1]: Extent(starts[place], max(starts[place], stable[place]), ends[place]) for place in places
    }
    begin = now - seconds_of(wanted.since) * 1000 if wanted.since else 0
    if begin > 0:  # brokers refuse negative times, or give them special meanings
        begins = {place[1]: offset for place, offset in cluster.offsets_at(places, begin).items()}
        part = since(extents, begins, wanted.since)
    else:
        part = last(extents, wanted.last) if wanted.last else whole(extents)
    return Topic(name, extents, part, cluster.cleanup_policy(name))


def _not_there(name: str, names: list[str]) -> str:
    seen = [name for name in names if not name.startswith("__")]
    near = difflib.get_close_matches(name, seen, n=_NEAR_MAX)
    if near:
        hint = f"did you mean {' or '.join(repr(name) for name in near)}?"
    elif seen:
        hint = f"this user sees {counted(len(seen), 'topic')}, and none of a name like it"
    else:
        which = "but Kafka's own" if names else "at all"
        hint = (
            f"this user sees no topic {which}. Where the cluster is new, send something first (or set kafka.bootstrap_servers, if another one "
            "is meant); else grant Describe and Read on the topic"
        )
    return f"topic {name!r} does not exist, or this user may not see it: {hint}"
