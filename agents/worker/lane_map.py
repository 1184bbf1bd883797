"""Maps the partitions of an assignment to lanes. Pure."""

from collections.abc import Iterable
from typing import Final

from agents.lane.assignment import LaneKey, Partition
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import lane_of
from ringfence_kafka.wording import first_of

NAMES_MAX: Final = 64


def listed(names: Iterable[str], none: str = "none") -> str:
    """Join names for a log line. If there are many, only the first ones are shown."""
    return first_of(list(names), NAMES_MAX) or none


class LaneMap:
    """Lanes by input topic and lane number. A lane has partitions of its input, and one of its forward topic."""

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
        """Assigned partitions of each lane, including half-assigned lanes."""
        self.halves: dict[LaneKey, str] = {}
        """Half-assigned lanes, each with one of its missing partitions."""
        self.unassigned: list[str] = []
        """Names of lanes with a partition that no worker has although the group is assigned."""
        self.assigned = False
        """Whether an assignment is complete."""

    def address(self, key: LaneKey) -> AddressSettings:
        """Return the address of a lane."""
        return self._addresses[key[0]]

    def name(self, key: LaneKey) -> str:
        """Return the name of a lane."""
        return wire_names.lane_name(self.address(key).name, key[1])

    def find(self, topic: str, partition: int) -> LaneKey:
        """Return the lane of a partition. For other topics the lane does not exist."""
        address = self._addresses.get(topic)
        return self._input_of.get(topic, ""), lane_of(partition, address.lanes if address is not None else 0)

    def lanes_of(self, partitions: Iterable[Partition]) -> list[LaneKey]:
        """Return the lanes of those partitions that are inputs, sorted."""
        return sorted({self.find(*place) for place in partitions if place[0] in self._addresses})

    def inputs(self) -> dict[LaneKey, list[Partition]]:
        """Return the assigned input partitions of each lane."""
        own = {key: [place for place in places if place[0] == key[0]] for key, places in self.given.items()}
        return {key: places or [key] for key, places in own.items()}

    def assign(self, partitions: set[Partition]) -> set[LaneKey]:
        """Record an assignment. Return the lanes that are assigned completely.

        Workers with different address lists can get different halves of a lane. Such a lane must not be opened: another worker may
        process its other half. The opening checks whether all partitions of the input are assigned.
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

    def set_unassigned(self, partitions: Iterable[Partition]) -> None:
        """Record the partitions, of all topics, that no worker has."""
        mine = {self.find(*place) for place in partitions if place[0] in self._input_of}
        self.unassigned = [self.name(key) for key in sorted(mine)]

    def set_assigned(self, assigned: bool) -> None:
        """Record whether an assignment is complete, which means that its lanes are started."""
        self.assigned = assigned
