"""Address, number and names of a lane, open or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from agents.lane.assignment import Partition
from ringfence_kafka.config.chains import feeder
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneIdentity:
    """One lane of an app."""

    name: str
    app_id: str
    """ID of the app, and of the workers' group."""
    address: AddressSettings
    number: int
    changelog: str
    forward_topic: str
    """Forward topic. Its partition with the lane's number holds records from other lanes. An address with one lane has none."""
    targets: Sequence[AddressSettings]
    """Other addresses that may accept parts of its transactions."""
    chained: bool
    """Whether another address writes its input."""

    @classmethod
    def of_lane(cls, settings: Settings, address: AddressSettings, number: int) -> Self:
        """Return the identity of a lane."""
        app_id = settings.app.id
        return cls(
            name=wire_names.lane_name(address.name, number),
            app_id=app_id,
            address=address,
            number=number,
            changelog=wire_names.changelog_topic(app_id, address.name),
            forward_topic=wire_names.forward_topic(app_id, address.name),
            targets=settings.transaction_targets(address),
            chained=feeder(address, settings.addresses) is not None,
        )

    def inputs(self, partitions: int) -> list[Partition]:
        """Return the inputs of the lane; the forward topic is last. ``partitions``: partition count of the input topic."""
        layout = LaneLayout.from_setting(self.address.lanes, partitions)
        own = [(self.address.input_topic, partition) for partition in layout.partitions_of(self.number)]
        return [*own, (self.forward_topic, self.number)] if self.address.forwards else own
