"""Sends and states of one held partition, between acknowledgements and the writer's transactions."""

from collections.abc import Iterable, Sequence

from ringfence_client.handlers.effects import Effects
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.outbox import Outbox, OutgoingRecord, batches_of
from ringfence_client.sends.state_reader import StateReader
from ringfence_client.sends.state_store import StateStore
from ringfence_client.sends.target_topics import Place
from ringfence_kafka.errors import TopicError, named
from ringfence_kafka.producer.outgoing import name_topics
from ringfence_kafka.producer.transactional import NewBuilder, Outgoing, refusing_topics


class AwayError(TopicError):
    """Target partitions of sends cannot be written now."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = sorted(places)
        named_places = ", ".join(f"{topic}/{partition}" for topic, partition in self.places)
        super().__init__(f"{named_places} has no leader, or its broker does not answer")


class PartitionSends:
    """Sends of one held partition."""

    def __init__(self, reader: StateReader, states: str = "") -> None:
        """Take the ID of the state topic that the last holder used; empty = none."""
        self.outbox = Outbox()
        self.states = StateStore(reader, self.outbox, states)
        self._destinations: Destinations = reader.destinations
        self._groups: list[bytes] = []
        """Groups whose states were taken, in the order of their records."""
        self._places: set[Place] = set()
        self._state_batches = 0
        """Number of state batches among the taken ones. They are the last ones."""

    def resolve_at_once(self, effects: Effects) -> list[OutgoingRecord] | None:
        """Return the same as :meth:`resolve` if that needs no lookup; otherwise None. Raises as :meth:`resolve` does."""
        if effects.changed and not self.states.is_prepared:
            return None
        return self._destinations.resolve_at_once(effects) if effects.sends else []

    async def resolve(self, effects: Effects) -> list[OutgoingRecord]:
        """Return the records of an attempt before its acknowledgement, with their places; raise SendError if an effect cannot be written."""
        if effects.changed and not self.states.is_prepared:
            await self.states.prepare()
        return await self._destinations.resolve(effects) if effects.sends else []

    def acknowledge(self, group: bytes | None, records: Iterable[OutgoingRecord], effects: Effects) -> None:
        """Take over an attempt's effects at the moment in which its message counts as finished."""
        self.outbox.add_records(records)
        if effects.changed and group is not None:
            self.outbox.set_state(group, effects.state)

    def take_batches(self, new: NewBuilder) -> list[Outgoing]:
        """Return all uncommitted records as batches. The caller calls :meth:`commit` when they are committed."""
        records, states = self.outbox.uncommitted()
        if not (records or states):
            self._groups, self._state_batches, self._places = [], 0, set()
            return []
        found = batches_of(records, new)
        self._groups = list(states)
        state_batches = batches_of(self.states.records_of(states), new)
        self._state_batches = len(state_batches)
        batches = found + state_batches
        self._places = {(batch.topic, batch.partition) for batch in batches}
        return batches

    def commit(self, batches: Sequence[Outgoing] = (), bases: Sequence[int] = ()) -> None:
        """Record that the taken records are committed; ``bases``: base offset of each batch, if known."""
        states = self.outbox.commit()
        if not states:
            return
        offsets: dict[bytes, int] = {}
        count = self._state_batches
        if count and len(bases) == len(batches):
            by_place: dict[int, list[int]] = {}
            for batch, base in zip(batches[-count:], bases[-count:], strict=True):
                numbers = range(base, base + batch.builder.record_count()) if base >= 0 else ()
                by_place.setdefault(batch.partition, []).extend(numbers)
            offsets = self.states.offsets_by_group(self._groups, by_place)
        self.states.committed(states, offsets)

    async def explained(self, error: Exception, own: Place) -> Exception:
        """Return an error that names missing topics or partitions if they failed the last transaction; otherwise the same error.

        A producer waits until its time limit for a missing topic or leader. ``own`` is the partition of the progress record: if it does not
        answer either, the cause is unknown. Without a place for states no handler may run, so the writer waits for a state topic.
        """
        if refusing_topics(error) or not self._places:
            return error
        missing = await self._destinations.topics.missing(self._places)
        if not missing:
            away = await self._destinations.topics.unanswered(self._places, own)
            if not away or any(topic == self._destinations.state_topic for topic, _ in away):
                return error
            return AwayError(away)
        found = TopicError("; ".join(missing.values()))
        name_topics(found, missing)
        return found

    def refused(self, error: Exception) -> bool:
        """Record the topics that refused the last transaction with this error; return whether they include targets of sends."""
        if isinstance(error, AwayError):
            self._destinations.topics.avoid(error.places)
            return True
        found = refusing_topics(error).intersection(topic for topic, _ in self._places)
        self._destinations.topics.refuse(found, named(error))
        return bool(found)
