"""The consumer group whose members share out partitions by the product's own assignor."""

from collections.abc import Callable
from typing import Any, Final

from ringfence_client.consumer.assignor import KeepingAssignor
from tests.simulator.kafka.groups import Group, Place

KEPT_SHARE: Final = 0.6
"""Of generations in which the product's assignor shares out; in the others partitions are dealt out, so that many move."""


class KeepingGroup(Group):
    """As :class:`Group`; members say what they have."""

    def __init__(self, *options: Any, topic: str, partitions: Callable[[], int]) -> None:
        super().__init__(*options)
        self._topic = topic
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int]:
        """As the assignor asks of a cluster."""
        return set(range(self._partitions()))

    def _assignment(self) -> dict[str, frozenset[Place]]:
        if not self.members or self._dice.random() >= KEPT_SHARE:
            return super()._assignment()
        members = {name: self.members[name].said for name in sorted(self.members)}
        shared = KeepingAssignor(self._topic, dict).assign(self, members)
        return {
            name: frozenset(Place(topic, number) for topic, numbers in item.assignment for number in numbers)
            for name, item in shared.items()
        }
