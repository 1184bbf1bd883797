"""Which lanes the group's partitions make up. Pure."""

from collections.abc import Iterable
from typing import Final

from agents.lane.assignment import LaneKey, Partition
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import lane_of
from ringfence_kafka.wording import first_of

NAMES_MAX: Final = 64


def listed(names: Iterable[str], none: str = "none") -> str:
    """Join names for a line of the log, of a thousand names only some."""
    return first_of(list(names), NAMES_MAX) or none


class LaneMap:
    """Lanes by input topic and lane number; a lane has partitions of its input, and one of its forward topic."""

    def __init__(self, settings: Settings) -> None:
        self._addresses = {address.input_topic: address for address in settings.addresses}
        self._forwards = {
            address.input_topic: wire_names.forward_topic(settings.app.id, address.name)
            for address in settings.addresses
            if address.forwards
        }
        self._input_of = {topic: topic for topic in self._addresses} | {
            forward: topic for topic, forward in self._forwards.items()
        }
        self.given: dict[LaneKey, list[Partition]] = {}
        """The partitions of each lane that the group gave us, those of halves included."""
        self.halves: dict[LaneKey, str] = {}
        """Lanes of which the group gave us only some partitions: one that is missing."""
        self.unassigned: list[str] = []
        """Lanes of which no worker has some partition, though the group has assigned its partitions."""
        self.assigned = False
        """An assignment is complete."""

    def address(self, key: LaneKey) -> AddressSettings:
        """Return the address of a lane."""
        return self._addresses[key[0]]

    def name(self, key: LaneKey) -> str:
        """Return the name of a lane."""
        return wire_names.lane_name(self.address(key).name, key[1])

    def find(self, topic: str, partition: int) -> LaneKey:
        """Return the lane that a partition belongs to; of other topics a lane that does not exist."""
        address = self._addresses.get(topic)
        return self._input_of.get(topic, ""), lane_of(partition, address.lanes if address is not None else 0)

    def lanes_of(self, partitions: Iterable[Partition]) -> list[LaneKey]:
        """Return the lanes that own partitions of inputs among these, sorted."""
        return sorted({self.find(*place) for place in partitions if place[0] in self._addresses})

    def inputs(self) -> dict[LaneKey, list[Partition]]:
        """Return the partitions of the input topic of each lane that the group gave us some of."""
        own = {key: [place for place in places if place[0] == key[0]] for key, places in self.given.items()}
        return {key: places or [key] for key, places in own.items()}

    def assign(self, partitions: set[Partition]) -> set[LaneKey]:
        """Return the lanes that are assigned completely, and note the halves of others.

        Workers with different address lists can be given different halves of a lane. It must not be opened: its other
        half may be processed elsewhere. Whether all partitions of the input are there, the lane's opening finds out.
        """
        given: dict[LaneKey, list[Partition]] = {}
        for place in sorted(partitions):
            if place[0] in self._input_of:
                given.setdefault(self.find(*place), []).append(place)
        self.given, self.halves = given, {}
        for (topic, number), places in given.items():
            forward = (self._forwards.get(topic, ""), number)
            if all(name != topic for name, _ in places):
                self.halves[topic, number] = f"{topic}/{number}"
            elif topic in self._forwards and forward not in places:
                self.halves[topic, number] = "/".join(map(str, forward))
        return given.keys() - self.halves.keys()

    def note_unassigned(self, partitions: Iterable[Partition]) -> None:
        """Note the partitions that no worker has, of all topics there are."""
        mine = {self.find(*place) for place in partitions if place[0] in self._input_of}
        self.unassigned = [self.name(key) for key in sorted(mine)]

    def set_assigned(self, assigned: bool) -> None:
        """Note whether an assignment is complete: its lanes are started."""
        self.assigned = assigned
