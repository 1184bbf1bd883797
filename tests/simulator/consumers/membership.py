"""Checks that consumers ask their group before they fence, and again before they write."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tests.simulator.kafka.cluster import SimulatedCluster
from tests.simulator.lanes.membership import Rights

EXEMPT: Final[Any] = object()
"""Exempts a process that fences a lease back to drain its partition: not a member for that, it lets the lease itself decide."""


class ConsumerRights(Rights):
    """Checks of one process."""

    def __init__(self, draining: Callable[[int], bool], cluster: SimulatedCluster) -> None:
        super().__init__()
        self._openings: dict[asyncio.Task[Any], None] = {}
        self.fences: list[tuple[int, float]] = []
        self._draining = draining
        self._cluster = cluster

    def begin(self) -> None:
        super().begin()
        self._openings.clear()

    def fence(self, transactional_id: str) -> Any:
        known = self._cluster.transactions.known.get(transactional_id)
        own = known is not None and known.by is asyncio.get_running_loop()
        partition = int(transactional_id.rpartition("/")[2])
        if own or self._draining(partition):
            return EXEMPT
        self.fences.append((partition, asyncio.get_running_loop().time()))
        opening = super().fence(transactional_id)
        if opening is not None and not opening.get_name().startswith(
            "progress"
        ):  # a writer takes back a lease that it holds
            self._openings[opening] = None
        return opening

    def join(self) -> None:
        """Check that no opening continues when the process joins again and gives everything up."""
        self._openings = {opening: None for opening in self._openings if not opening.done()}
        if self._openings:
            self.violations.append(f"JOINED while {len(self._openings)} openings go on")

    def write(self, transactional_id: str, opening: Any, lanes: Any) -> None:
        if opening is not EXEMPT:
            super().write(transactional_id, opening, lanes)
