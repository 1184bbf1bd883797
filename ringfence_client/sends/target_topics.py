"""Topics that handlers send to: partitions and limits, and which of them take nothing now."""

import asyncio
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
"""After which a topic is looked at again: it may have got more partitions, or another limit."""
REFUSED_S: Final = 30.0
"""For so long nothing is sent to a topic that refused a write."""
LOOK_LIMIT_S: Final = 10.0
AVOIDED_S: Final = 5.0
"""For so long nothing is sent to a partition that does not answer; then it is asked again."""
EXPLAIN_LIMIT_S: Final = 2.0
"""The writer waits for this question after a write that failed."""

Place = tuple[str, int]
"""Topic and partition."""


class SendError(RingfenceError):
    """A message cannot be acknowledged, because what it sends cannot be written. It is a failed attempt."""


class HiddenTopicError(SendError):
    """This user may not describe a topic, so its existence is unknown."""


class TargetTopic(NamedTuple):
    """A topic, as it was when it was last looked at."""

    partitions: int
    bytes_max: int
    """The largest record batch that it takes."""
    compacted: bool
    """Whether it takes no record without a key."""
    timestamps: Mapping[str, int]
    """How far a timestamp may be from the broker's clock, in ms, by the setting's name."""
    looked_at: float
    """By the monotonic clock, s."""


class TargetTopics:
    """Target topics of one consumer's sends."""

    def __init__(
        self, cluster: Cluster, owned: Mapping[str, str], is_state: Callable[[str], bool] = lambda _: False
    ) -> None:
        """``owned``: topics that Ringfence alone writes, and what they are; ``is_state``: whether a topic has states of a consumer group."""
        self._is_state = is_state
        self._cluster = cluster
        self._owned = owned
        self._topics: dict[str, TargetTopic] = {}
        self._refused: dict[str, tuple[float, float, str]] = {}
        """When a topic refused a write last, until when nothing is sent to it (both by the monotonic clock), and why."""
        self._away: dict[Place, float] = {}
        """Partitions that could not be written, and until when nothing is sent to them, by the monotonic clock, s."""
        self._banned = False
        """Whether nothing is sent to some topics or partitions now."""
        self._stale_at = 0.0
        """When the first of the looks is old, by the monotonic clock, s."""
        self._refreshing: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Look at no topic any more."""
        for task in self._refreshing:
            task.cancel()
        if self._refreshing:
            await asyncio.wait(self._refreshing)

    @property
    def settled(self) -> bool:
        """Whether all topics that are known may be used as they are, without another look."""
        return not self._banned and time.monotonic() < self._stale_at

    def known(self, name: str) -> TargetTopic | None:
        """Return a topic that was looked at; None = it was not."""
        return self._topics.get(name)

    def known_target(self, name: str) -> TargetTopic | None:
        """Return the same for a topic that handlers may send to; None for others."""
        return None if name in self._owned else self._topics.get(name)

    async def usable(self, names: Collection[str]) -> dict[str, TargetTopic]:
        """Return these topics; those that are not known are looked at.

        Raises:
            SendError: one of them takes nothing; the text says why.
        """
        for name in names:
            self._require_allowed(name)
        found = {name: self._topics.get(name) or await self._look_at(name) for name in names}
        self._refresh()
        await self._look_at_avoided()
        return found

    def is_away(self, place: Place) -> bool:
        """Whether a partition cannot be written now."""
        return place in self._away

    def refuse(self, topics: Iterable[str], reason: str) -> None:
        """Note that topics refused a write, so they are looked at again. One that refuses again soon gets nothing for a while."""
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
        self._away |= dict.fromkeys(places, time.monotonic() + AVOIDED_S)

    async def unanswered(self, places: Collection[Place], own: Place) -> set[Place]:
        """Return the partitions whose leaders do not answer; none if the leader of ``own``, which is written too, does not answer either."""
        try:
            known = await self._cluster.offsets.known_ends({*places, own}, EXPLAIN_LIMIT_S)
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            return set()
        return set(places).difference(known) if own in known else set()

    async def missing(self, places: Collection[Place]) -> dict[str, str]:
        """Return which topics of these partitions do not exist as they did, with the reason; none where the cluster does not tell."""
        counts: dict[str, int] = {}
        try:
            async with asyncio.timeout(EXPLAIN_LIMIT_S):
                counts = await self._cluster.topics.partition_counts([*{topic for topic, _ in places}])
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
        """Return what the cluster says of a topic; None = it does not exist.

        Raises:
            HiddenTopicError: this user may not see it.
        """
        described = await self._cluster.topics.describe([name])
        if name in described.refused:
            raise HiddenTopicError(
                f"this user may not describe {name}: allow Describe and Write on it, and Read and Create too if it is a state topic"
            )
        return described.topics.get(name)

    def note(self, found: TopicDescription) -> TargetTopic:
        """Keep what the cluster says of a topic."""
        topic = self._topics[found.name] = TargetTopic(
            found.partitions,
            found.message_bytes_max,
            found.config is not None and "compact" in found.cleanup_policy,
            found.timestamps,
            time.monotonic(),
        )
        return topic

    def forget(self, name: str) -> None:
        """Look at a topic again next time."""
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

    async def _look_at(self, name: str) -> TargetTopic:
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                found = await self.described(name)
        except SendError:
            raise
        except (KafkaError, OSError, TimeoutError, RingfenceError) as error:
            raise SendError(f"{name} cannot be checked, so nothing is sent: {named(error)}") from error
        if found is None:
            raise SendError(f"{name} does not exist, so nothing is sent: create it")
        return self.note(found)

    def _refresh(self) -> None:
        """Look again at topics whose last look is old, beside all else."""
        now = time.monotonic()
        self._banned = bool(self._away) or any(until > now for _, until, _ in self._refused.values())
        for name, topic in self._topics.items():
            if topic.looked_at + FRESH_S <= now:
                self._topics[name] = topic._replace(looked_at=now)
                task = asyncio.create_task(self._look_again(name))
                self._refreshing.add(task)
                task.add_done_callback(self._refreshing.discard)
        self._stale_at = min((topic.looked_at for topic in self._topics.values()), default=now) + FRESH_S

    async def _look_again(self, name: str) -> None:
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                found = await self.described(name)
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            return  # the old answer stands; a write that is refused says more
        if found is None:
            self._topics.pop(name, None)
        else:
            self.note(found)

    async def _look_at_avoided(self) -> None:
        """Have partitions that answer again be written again."""
        due = {place for place, until in self._away.items() if until <= time.monotonic()}
        if not due:
            return
        try:
            known = await self._cluster.offsets.known_ends(due, EXPLAIN_LIMIT_S)
        except (KafkaError, OSError, TimeoutError, RingfenceError):
            known = {}
        self._away |= dict.fromkeys(due, time.monotonic() + AVOIDED_S)
        for place in known:
            self._away.pop(place, None)
