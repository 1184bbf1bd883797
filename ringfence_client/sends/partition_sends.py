"""Sends and states of one held partition, between the acknowledgements and the transactions of its writer."""

from collections.abc import Iterable, Sequence

from ringfence_client.handlers.effects import Effects
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.outbox import Outbox
from ringfence_client.sends.outgoing_record import OutgoingRecord, batches_of
from ringfence_client.sends.state_store import StateReader, StateStore
from ringfence_client.sends.target_topics import Place
from ringfence_kafka.errors import TopicError, named
from ringfence_kafka.producer.outgoing import name_topics
from ringfence_kafka.producer.transactional import NewBuilder, Outgoing, refusing_topics


class AwayError(TopicError):
    """Partitions that handlers send to cannot be written now."""

    def __init__(self, places: Iterable[Place]) -> None:
        """``places``: topics and partitions."""
        self.places = sorted(places)
        named_places = ", ".join(f"{topic}/{partition}" for topic, partition in self.places)
        super().__init__(f"{named_places} has no leader, or its broker does not answer")


class PartitionSends:
    """Sends of one partition, while it is held."""

    def __init__(self, reader: StateReader) -> None:
        self.outbox = Outbox()
        self.states = StateStore(reader, self.outbox)
        self._destinations: Destinations = reader.destinations
        self._groups: list[bytes] = []
        """Those whose states were taken, in the order of their records."""
        self._places: set[Place] = set()
        """Topics and partitions of what was taken."""
        self._state_batches = 0
        """How many of the batches that were taken last are of states; they are the last ones."""

    def resolve_at_once(self, effects: Effects) -> list[OutgoingRecord] | None:
        """Return the same as :meth:`resolve` if nothing must be looked up for it; else None. Raises as that does."""
        if effects.changed and not self.states.is_prepared:
            return None
        return self._destinations.resolve_at_once(effects) if effects.sends else []

    async def resolve(self, effects: Effects) -> list[OutgoingRecord]:
        """Return the records of an attempt that is about to be acknowledged, with their places.

        Raises:
            SendError: one of them cannot be written, or the state cannot: the attempt failed.
        """
        if effects.changed and not self.states.is_prepared:
            await self.states.prepare()
        return await self._destinations.resolve(effects) if effects.sends else []

    def acknowledge(self, group: bytes | None, records: Iterable[OutgoingRecord], effects: Effects) -> None:
        """Take over what an attempt asked for, in the moment in which its message counts as finished."""
        self.outbox.add_records(records)
        if effects.changed and group is not None:
            self.outbox.set_state(group, effects.state)

    def take_batches(self, new: NewBuilder) -> list[Outgoing]:
        """Return everything that no committed transaction has, as record batches; :meth:`commit` follows if one has it."""
        records, states = self.outbox.take()
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
        """Note that what was taken is committed; ``bases`` has the base offset of each batch, if that is known."""
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
        """Return an error that names missing topics or partitions, if they made the last transaction fail; else the same error.

        A producer waits for a topic that it does not know, or for a leader, until its time is over. ``own`` is the partition of the progress: while
        it does not answer either, nothing is known. Without a place for states no handler may run, so these are waited for.
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
        """Note which topics refused the last transaction with this error; returns whether something that was sent went there."""
        if isinstance(error, AwayError):
            self._destinations.topics.avoid(error.places)
            return True
        found = refusing_topics(error).intersection(topic for topic, _ in self._places)
        self._destinations.topics.refuse(found, named(error))
        return bool(found)
