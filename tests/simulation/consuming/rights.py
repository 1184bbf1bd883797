"""What consumers must have asked of their group before they fence, and again before they write."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.cluster import SimulatedCluster
from tests.simulation.rights import Rights

EXEMPT: Final[Any] = object()
"""Who fences a lease back that it drains is no member for that partition any more; the lease itself says whether it may. It may come back
meanwhile: who has fenced last takes nothing from anybody."""


class ConsumerRights(Rights):
    """Of one process."""

    def __init__(self, draining: Callable[[int], bool], cluster: SimulatedCluster) -> None:
        super().__init__()
        self._draining = draining
        self._cluster = cluster

    def fence(self, transactional_id: str) -> Any:
        known = self._cluster.transactions.known.get(transactional_id)
        own = known is not None and known.by is asyncio.get_running_loop()
        if own or self._draining(int(transactional_id.rpartition("/")[2])):
            return EXEMPT
        return super().fence(transactional_id)

    def write(self, transactional_id: str, opening: Any, lanes: Any) -> None:
        if opening is not EXEMPT:
            super().write(transactional_id, opening, lanes)
