"""Topics that handlers send to: partitions, limits, and those that are unavailable now."""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from aiokafka.errors import KafkaError

from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.errors import RingfenceError, named
from ringfence_kafka.wording import counted

FRESH_S: Final = 30.0
"""Age after which a topic is looked up again, in seconds. It may have more partitions, or another limit."""
REFUSED_S: Final = 30.0
"""Seconds for which nothing is sent to a topic that refused writes."""
LOOK_LIMIT_S: Final = 10.0
AVOIDED_S: Final = 5.0
"""Seconds until the next question to an unavailable partition. Nothing is sent to it until then."""
EXPLAIN_LIMIT_S: Final = 2.0
"""Time limit of lookups for which the writer waits after a failed write, in seconds."""

Place = tuple[str, int]


class SendError(RingfenceError):
    """A message cannot be acknowledged, because its sends cannot be written. The attempt failed."""


class HiddenTopicError(SendError):
    """This user may not describe a topic, so its existence is unknown."""


class TargetTopic(NamedTuple):
    """A topic as of its last lookup."""

    partitions: int
    bytes_max: int
    """Size limit of one record batch, in bytes."""
    compacted: bool
    """Whether the topic refuses records without a key."""
    timestamps: Mapping[str, int]
    """Largest distance of a timestamp from the broker's clock, in milliseconds, by the setting's name."""
    looked_at: float
    """Time of the lookup by the monotonic clock, in seconds."""


class TargetTopics:
    """Target topics of one consumer's sends."""

    def __init__(
        self, cluster: Cluster, owned: Mapping[str, str], is_state: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Prepare the topics. ``owned``: roles of topics that only Ringfence writes; ``is_state``: whether a topic has a group's states."""
        self._is_state = is_state
        self._cluster = cluster
        self._owned = owned
        self._topics: dict[str, TargetTopic] = {}
        self._refused: dict[str, tuple[float, float, str]] = {}
        """Time of a topic's last refusal, end of the ban (both by the monotonic clock), and the reason."""
        self.away: dict[Place, float] = {}
        """Unavailable partitions, and the time of the next question by the monotonic clock, in seconds."""
        self._banned = False
        """Whether some topics or partitions are banned now."""
        self._stale_at = 0.0
        """Time at which the oldest lookup expires, by the monotonic clock, in seconds."""
        self._refreshing: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Stop looking at topics."""
        for task in self._refreshing:
            task.cancel()
        if self._refreshing:
            await asyncio.wait(self._refreshing)

    @property
    def settled(self) -> bool:
        """Whether all known topics are usable without another lookup."""
        return not self._banned and time.monotonic() < self._stale_at

    def known(self, name: str) -> TargetTopic | None:
        """Return a topic that was looked up; None = unknown."""
        return self._topics.get(name)

    def known_target(self, name: str) -> TargetTopic | None:
        """Return a known topic if handlers may send to it; otherwise None."""
        return None if name in self._owned else self._topics.get(name)

    async def usable(self, names: Collection[str]) -> dict[str, TargetTopic]:
        """Return these topics, and look up unknown ones; raise SendError if one is unavailable."""
        for name in names:
            self._require_allowed(name)
        found = {name: self._topics.get(name) or await self._describe(name) for name in names}
        self._refresh()
        await self._check_avoided()
        return found

    def refuse(self, topics: Iterable[str], reason: str) -> None:
        """Record topics that refused a write, and look them up again. A second refusal bans a topic for a while."""
        now = time.monotonic()
        for topic in topics:
            self._banned = True
            self._topics.pop(topic, None)
            last, _, _ = self._refused.get(topic, (-math.inf, 0.0, ""))
            until = now + REFUSED_S if now < last + 2 * REFUSED_S else 0.0
            self._refused[topic] = now, until, reason

    def avoid(self, places: Iterable[Place]) -> None:
        """Send nothing to these partitions until they answer again."""
        self._banned = True
        self.away |= dict.fromkeys(places, time.monotonic() + AVOIDED_S)

    async def unanswered(self, places: Collection[Place], own: Place) -> set[Place]:
        """Return the partitions whose leaders do not answer; empty if the leader of ``own`` does not answer either."""
        try:
            known = await self._cluster.offsets.known_ends({*places, own}, EXPLAIN_LIMIT_S)
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            return set()
        return set(places).difference(known) if own in known else set()

    async def missing(self, places: Collection[Place]) -> dict[str, str]:
        """Return the topics that are deleted or have fewer partitions, with the reason; empty if the cluster does not answer."""
        counts: dict[str, int] = {}
        try:
            async with asyncio.timeout(EXPLAIN_LIMIT_S):
                counts = await self._cluster.topics.partition_counts(sorted({topic for topic, _ in places}))
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            return {}
        found = {}
        for topic, partition in places:
            if topic not in counts:
                found[topic] = f"{topic} no longer exists"
            elif partition >= counts[topic]:
                found[topic] = f"{topic} was created again and has {counted(counts[topic], 'partition')}"
        return found

    async def described(self, name: str) -> TopicDescription | None:
        """Return the cluster's description of a topic; None = it does not exist."""
        described = await self._cluster.topics.describe([name])
        if name in described.refused:
            raise HiddenTopicError(
                f"this user may not describe {name}: allow Describe and Write on it, and Read and Create too if it is a state topic"
            )
        return described.topics.get(name)

    def store(self, found: TopicDescription) -> TargetTopic:
        """Store a topic's description."""
        topic = self._topics[found.name] = TargetTopic(
            found.partitions,
            found.message_bytes_max,
            found.config is not None and "compact" in found.cleanup_policy,
            found.timestamps,
            time.monotonic(),
        )
        return topic

    def forget(self, name: str) -> None:
        """Look up a topic again next time."""
        self._topics.pop(name, None)

    def _require_allowed(self, topic: str) -> None:
        role = self._owned.get(topic) or ("the state of a consumer group" if self._is_state(topic) else "")
        if role:
            raise SendError(
                f"{topic} is {role}, which only Ringfence writes: nothing is sent; send to the input topic "
                "of an address, or to a topic of your own"
            )
        _, until, reason = self._refused.get(topic, (0.0, 0.0, ""))
        if until > time.monotonic():
            raise SendError(
                f"{topic} refused the last writes, so nothing is sent to it for {REFUSED_S:g} s: {reason}"
            )

    async def _describe(self, name: str) -> TargetTopic:
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                found = await self.described(name)
        except SendError:
            raise
        except (KafkaError, OSError, TimeoutError, RingfenceError) as error:
            raise SendError(f"{name} cannot be checked, so nothing is sent: {named(error)}") from error
        if found is None:
            raise SendError(f"{name} does not exist, so nothing is sent: create it")
        return self.store(found)

    def _refresh(self) -> None:
        """Look up topics with old lookups again, in the background."""
        now = time.monotonic()
        self._banned = bool(self.away) or any(until > now for _, until, _ in self._refused.values())
        for name, topic in self._topics.items():
            if topic.looked_at + FRESH_S <= now:
                self._topics[name] = topic._replace(looked_at=now)
                task = asyncio.create_task(self._describe_again(name))
                self._refreshing.add(task)
                task.add_done_callback(self._refreshing.discard)
        self._stale_at = min((topic.looked_at for topic in self._topics.values()), default=now) + FRESH_S

    async def _describe_again(self, name: str) -> None:
        # After an error, the old answer stays valid; a refused write tells more.
        with contextlib.suppress(KafkaError, OSError, TimeoutError, RingfenceError):
            async with asyncio.timeout(LOOK_LIMIT_S):
                found = await self.described(name)
            if found is None:
                self._topics.pop(name, None)
            else:
                self.store(found)

    async def _check_avoided(self) -> None:
        """Make partitions that answer again available."""
        due = {place for place, until in self.away.items() if until <= time.monotonic()}
        if not due:
            return
        try:
            known = await self._cluster.offsets.known_ends(due, EXPLAIN_LIMIT_S)
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            known = {}
        self.away |= dict.fromkeys(due, time.monotonic() + AVOIDED_S)
        for place in known:
            self.away.pop(place, None)
