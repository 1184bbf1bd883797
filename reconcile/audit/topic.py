"""Facts of the cluster about the audited topic. Nothing is joined, created or written."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconcile.audit import extent
from reconcile.audit.extent import Extent, Part
from reconcile.cluster.admin import Admin
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.wording import counted

_NEAR_MAX: Final = 3


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
    begin = now - extent.seconds_of(wanted.since) * 1000 if wanted.since else 0
    if begin > 0:  # brokers refuse negative times, or give them special meanings
        begins = {place[1]: offset for place, offset in cluster.offsets_at(places, begin).items()}
        part = extent.since(extents, begins, wanted.since)
    else:
        part = extent.last(extents, wanted.last) if wanted.last else extent.whole(extents)
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
