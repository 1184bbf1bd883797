"""Whoever holds partitions of an accepted topic, for the consumer groups whose dead letters are repaired."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from app.commands.groups import consumer_api, show
from app.commands.repair.redrive_log import RepairError
from ringfence_client.progress.lease import LostError
from ringfence_client.progress.progress_record import Progress
from ringfence_client.web import offline_drop
from ringfence_client.window.window import Window
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.ownership.partition_state import NotOwnerError


class ConsumerAnswer(NamedTuple):
    """What a holder says, or what was written without one."""

    done: Collection[int]
    """Offsets that it has done what was asked for, or had done it before."""
    left: str = ""
    """Why the others are left."""


class LeaseHolders:
    """Whoever has the partitions of an accepted topic for the consumer groups whose dead letters they are."""

    def __init__(self, settings: Settings, address: AddressSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._address = address
        self._say = say
        self._clusters: dict[str, Cluster] = {}
        self._progresses: dict[str, Sequence[Progress | None]] = {}
        self.topic_id = ""

    async def close(self) -> None:
        """Disconnect."""
        for cluster in self._clusters.values():
            await cluster.stop()

    async def progresses(self, group: str) -> Sequence[Progress | None]:
        """Of each partition, as they were when they were first asked for."""
        if group not in self._clusters:
            cluster = Cluster(self._settings.kafka, group)
            await cluster.start()
            self._clusters[group] = cluster
            await cluster.groups.await_coordinator()
            self._progresses[group] = await show.progresses(self._settings, self._address, cluster)
            self.topic_id = (await cluster.topics.identity(self._address.accepted_topic)).topic_id
        return self._progresses[group]

    async def blocked(self, group: str) -> set[tuple[int, int]]:
        """Partitions and offsets behind which their groups wait, as was written last."""
        found = await self.progresses(group)
        return {
            (number, offset)
            for number, item in enumerate(found)
            if item is not None and item.topic_id == self.topic_id
            for offset in item.blocked
        }

    async def is_unknown(self, group: str, partition: int) -> bool:
        """Return whether a group without members has neither a progress record nor an offset in a partition.

        A redrive would give it a record that begins at the start of the log. A new consumer would then begin there, whatever its ``--start``.
        """
        if (await self.progresses(group))[partition] is not None:
            return False
        cluster = self._clusters[group]
        return (
            await cluster.groups.state() in NO_MEMBERS
            and await cluster.groups.committed_offset(self._address.accepted_topic, partition) is None
        )

    async def tell(
        self,
        group: str,
        partition: int,
        letters: Mapping[int, int],
        what: str,
        change: Callable[[Window], Any],
    ) -> ConsumerAnswer:
        """Have the holder of a partition do something about messages: offset → the number of the redrive.

        Where nobody holds it, ``change`` is done to what is due, by taking it for a moment.
        """
        known = (await self.progresses(group))[partition]
        cluster = self._clusters[group]
        refusal = "has no web server"
        if known is not None and known.web and not known.released:
            answer = await consumer_api.ask(
                self._settings.app,
                known.web,
                f"letters/{what}",
                {
                    "consumer_group": group,
                    "topic": self._address.accepted_topic,
                    "partition": partition,
                    "topic_id": self.topic_id,
                    "letters": sorted(letters.items()),
                },
            )
            if isinstance(answer, dict):
                return _told(answer, letters)
            refusal = answer
        if await cluster.groups.state() not in NO_MEMBERS:
            # It may have changed hands: whoever has it now is asked the next time.
            self._progresses[group] = await show.progresses(self._settings, self._address, cluster)
            return ConsumerAnswer(
                (),
                f"{group} holds {self._address.accepted_topic}/{partition}, and its consumer {refusal}: run this again in a moment, where "
                "its web server can be reached; or stop the group's consumers first",
            )
        try:
            await offline_drop.change(
                self._settings, self._address, cluster, partition, change, self.topic_id, self._say
            )
        except (NotOwnerError, LostError) as error:
            raise RepairError(
                f"a consumer of {group} came while nobody was to hold {self._address.accepted_topic}/{partition}: run this again; what was "
                "done stays so"
            ) from error
        return ConsumerAnswer(letters.keys())


def _told(answer: Mapping[str, Any], letters: Mapping[int, int]) -> ConsumerAnswer:
    if answer.get("full"):
        # Which of them, a repetition tells: those that wait already change nothing.
        return ConsumerAnswer(
            (), "too many redriven messages wait there already: run this again later, or with --rate"
        )
    busy = set(answer.get("busy", ()))
    why = "its consumer is about to write it: run this again" if busy else ""
    return ConsumerAnswer(letters.keys() - busy, why)
