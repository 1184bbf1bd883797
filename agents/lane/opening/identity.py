"""Address, number and names of a lane, open or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from agents.lane.assignment import Partition
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneIdentity:
    """One lane of an app."""

    name: str
    app_id: str
    """Also the ID of the workers' group."""
    address: AddressSettings
    number: int
    changelog: str
    forward_topic: str
    """Its partition with the lane's number holds what other lanes forward; an address with one lane has no such topic."""
    targets: Sequence[AddressSettings]
    """Other addresses that parts of its transactions may go to."""
    chained: bool
    """Another address writes its input."""

    @classmethod
    def of(cls, settings: Settings, address: AddressSettings, number: int) -> Self:
        """Return a lane by its address and number."""
        app_id = settings.app.id
        return cls(
            name=wire_names.lane_name(address.name, number),
            app_id=app_id,
            address=address,
            number=number,
            changelog=wire_names.changelog_topic(app_id, address.name),
            forward_topic=wire_names.forward_topic(app_id, address.name),
            targets=settings.transaction_targets(address),
            chained=settings.feeder(address) is not None,
        )

    def inputs(self, partitions: int) -> list[Partition]:
        """Return what the lane reads, of an input topic with so many partitions; the forward topic comes last."""
        layout = LaneLayout.of(self.address.lanes, partitions)
        own = [(self.address.input_topic, partition) for partition in layout.partitions_of(self.number)]
        return [*own, (self.forward_topic, self.number)] if self.address.forwards else own
