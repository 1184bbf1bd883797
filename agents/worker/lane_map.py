"""Which lanes the group's partitions make up. Pure."""

from collections.abc import Iterable
from typing import Final

from agents.worker.lag import Partition
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import first_of

NAMES_MAX: Final = 64


def listed(names: Iterable[str], none: str = "none") -> str:
    """Join names for a line of the log, of a thousand names only some."""
    return first_of(list(names), NAMES_MAX) or none


class LaneMap:
    """Lanes by input topic and partition; each has a partition of its input and one of its forward topic."""

    def __init__(self, settings: Settings) -> None:
        self._addresses = {address.input_topic: address for address in settings.addresses}
        self._forwards = {
            wire_names.forward_topic(settings.app.id, address.name): address.input_topic
            for address in settings.addresses
        }
        self._inputs = self._forwards | {topic: topic for topic in self._addresses}
        self.halves: dict[Partition, str] = {}
        """Lanes of which the group gave us one half only: the half that is missing."""
        self.unassigned: list[str] = []
        """Lanes of which no worker has one half at least, though the group has assigned its partitions."""
        self.assigned = False
        """An assignment is complete."""

    def address(self, place: Partition) -> AddressSettings:
        """Return the address of a lane."""
        return self._addresses[place[0]]

    def name(self, place: Partition) -> str:
        """Return the name of a lane."""
        return wire_names.lane_name(self.address(place).name, place[1])

    def find(self, topic: str, partition: int) -> Partition:
        """Return the lane that a partition belongs to; of other topics a lane that does not exist."""
        return self._inputs.get(topic, ""), partition

    def inputs(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return the partitions of inputs among these, sorted."""
        return sorted(partition for partition in set(partitions) if partition[0] in self._addresses)

    def assign(self, partitions: set[Partition]) -> set[Partition]:
        """Return the lanes of which the group gave us input and forward partition, and note the halves of others.

        Workers with different address lists can be given different halves of a lane. It must not be opened: its other
        half may be processed elsewhere.
        """
        whole, self.halves = set(), {}
        for forward, topic in self._forwards.items():
            for number in sorted({number for name, number in partitions if name in {forward, topic}}):
                missing = {(topic, number), (forward, number)} - partitions
                if not missing:
                    whole.add((topic, number))
                    continue
                self.halves[topic, number] = "/".join(map(str, missing.pop()))
        return whole

    def note_unassigned(self, partitions: Iterable[Partition]) -> None:
        """Note the partitions that no worker has, of all topics there are."""
        mine = {(self._inputs[topic], number) for topic, number in partitions if topic in self._inputs}
        self.unassigned = [self.name(place) for place in sorted(mine)]

    def set_assigned(self, assigned: bool) -> None:
        """Note whether an assignment is complete: its lanes are started."""
        self.assigned = assigned
