"""How often brokers are asked for records: seldom enough that a batch is worth its transaction, and no lane waits for another.

A transaction costs its lane some milliseconds of CPU and, with the broker's answers, some tens of them in all, for one
record as for a hundred. Fetches that follow one another at once bring what has come in a millisecond. So a broker that was read to
its end is left alone for a moment; who is behind never waits. What comes to an idle partition does not wait either: a fetch
lies with the broker by then.

Here and not in the lane, because records that wait in the broker cost nothing, and a batch that was fetched costs a fetch, a turn
of the consumer's thread and one of Faust, whatever is in it.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka import TopicPartition

from app.worker.fetch.fetch_interval import FetchInterval

FETCH_WAIT_MS: Final = 100
"""How long a broker holds a fetch that finds nothing; meanwhile nothing else is fetched from it."""
QUIET_WAIT_MS: Final = 500
"""The same while nothing comes at all: each fetch names all partitions, which of a thousand takes milliseconds, here and there."""
QUIET_AFTER_S: Final = 5.0
SILENT_AFTER_S: Final = 20.0
SILENT_WAIT_MAX_MS: Final = 2_000
"""The same when nothing has come for longer, of a worker of very many partitions: a millisecond for each. Who is given more, or seeks,
waits so long at most for the end of that fetch."""
PARTIAL_WAIT_MS: Final = 10
"""The same of a fetch that leaves out partitions because what was fetched of them is not taken yet, and soon will be:
they would have to wait for the end of this one."""
PARTIAL_AFTER_S: Final = 0.02
"""How long the others wait for a partition of which something lies there before there is a fetch without it."""


class FetchScheduler:
    """Of one fetcher of aiokafka; on its loop."""

    def __init__(
        self,
        fetcher: Any,
        wanted: Callable[[TopicPartition], bool],
        spacing: FetchInterval,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        """Takes effect at once; there is no way back. ``wanted``: whether what is fetched of a partition is taken soon.

        ``spacing``: how long a broker that was read to its end is left alone.
        """
        self._fetcher = fetcher
        self._wanted = wanted
        self._spacing = spacing
        self._clock = clock
        self._cpu = cpu
        self._due: dict[int, float] = {}
        """When a broker may be asked again, by its node number."""
        self._asked: dict[int, float] = {}
        """When a broker was asked last, of those that had been left alone."""
        self._read_at = clock()
        self._actions = fetcher._get_actions_per_node
        fetcher._get_actions_per_node = self._paced
        fetcher._prefetch_backoff = PARTIAL_AFTER_S

    def hurry(self) -> None:
        """Partitions are to be read from elsewhere: what comes to them is not to wait for the end of a long fetch."""
        self._read_at = self._clock()

    def asked_at(self, tp: TopicPartition) -> float:
        """When the broker was asked for what is there of a partition now, by the clock.

        That is a moment ago, but where its broker had been left alone, so that there was something to fetch. If the fetch has lasted longer
        than a batch takes in all, it lay there until something came.
        """
        now = self._clock()
        asked = self._asked.get(self._fetcher._select_read_replica(tp), now)
        return asked if now - asked < self._spacing.took_s else now

    @staticmethod
    def _whole_wait_ms(quiet_s: float, partitions: int) -> int:
        if quiet_s < QUIET_AFTER_S:
            return FETCH_WAIT_MS
        if quiet_s < SILENT_AFTER_S:
            return QUIET_WAIT_MS
        return min(SILENT_WAIT_MAX_MS, max(QUIET_WAIT_MS, partitions))

    def read(self, partitions: Mapping[TopicPartition, bool]) -> None:
        """Records of these partitions were taken just now; True = the log has more of it."""
        if partitions:
            self._read_at = self._clock()
        behind: dict[int, bool] = {}
        for tp, more in partitions.items():
            node = self._fetcher._select_read_replica(tp)
            behind[node] = behind.get(node, False) or more
        if behind and not any(behind.values()):
            self._spacing.look(self._cpu(), self._clock())
        for node, more in behind.items():
            self._due[node] = 0.0 if more else self._clock() + self._spacing.wait_s

    def _paced(self, assignment: Any) -> tuple[Any, ...]:
        """Aiokafka's choice of what to ask which broker, without those that are not due; it chooses anew when they are."""
        now = self._clock()
        held = any(map(self._wanted, self._fetcher._records))
        whole = self._whole_wait_ms(now - self._read_at, len(assignment.tps))
        self._fetcher._fetch_max_wait_ms = PARTIAL_WAIT_MS if held else whole
        fetches, resets, timeout, stale, resumed = self._actions(assignment)
        due = []
        for node, request in fetches:
            again = self._due.get(node, 0.0)
            if again > now:
                timeout = min(timeout, again - now)
                continue
            due.append((node, request))
            if again:
                self._asked[node] = now
            else:
                self._asked.pop(node, None)
        return due, resets, timeout, stale, resumed
