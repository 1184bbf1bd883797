"""Address, number and names of a lane, open or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol import wire_names


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneIdentity:
    """One lane of an app."""

    name: str
    app_id: str
    """Also the ID of the workers' group."""
    address: AddressSettings
    partition: int
    changelog: str
    forward_topic: str
    targets: Sequence[AddressSettings]
    """Other addresses that parts of its transactions may go to."""
    chained: bool
    """Another address writes its input."""

    @classmethod
    def of(cls, settings: Settings, address: AddressSettings, partition: int) -> Self:
        """Return a lane by its address and number."""
        app_id = settings.app.id
        return cls(
            name=wire_names.lane_name(address.name, partition),
            app_id=app_id,
            address=address,
            partition=partition,
            changelog=wire_names.changelog_topic(app_id, address.name),
            forward_topic=wire_names.forward_topic(app_id, address.name),
            targets=settings.transaction_targets(address),
            chained=settings.feeder(address) is not None,
        )
