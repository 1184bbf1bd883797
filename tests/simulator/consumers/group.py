"""A consumer group that assigns partitions with the product's own assignor."""

from collections.abc import Callable
from typing import Any, Final

from ringfence_client.consumer.assignor import KeepingAssignor
from tests.simulator.kafka.groups import Group, Place

KEPT_SHARE: Final = 0.6
"""Share of generations that use the product's assignor; in the others partitions are dealt out, so that many move."""


class KeepingGroup(Group):
    """A :class:`Group` whose members report what they have."""

    def __init__(self, *options: Any, topic: str, partitions: Callable[[], int]) -> None:
        super().__init__(*options)
        self._topic = topic
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int]:
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
