"""Metadata refreshes of a consumer: reports possible changes of its topics, and waits for leaders."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

LOOK_AGAIN_S: Final = 0.1
"""Time between two metadata requests while a partition has no leader, in seconds. aiokafka itself repeats them without a pause."""
_NO_LEADER: Final = -1


def refresh_metadata_on_doubt(consumer: Any, doubted: Callable[[], None] = lambda: None) -> None:
    """Call ``doubted`` when a broker's response makes a consumer refresh its metadata: a topic may have been deleted, or a leader changed.

    The call precedes all later responses of the broker. aiokafka itself only refreshes and continues.

    A partition that *still* has no leader causes no call: its replicas are unavailable, and other partitions of the topic need not wait.
    aiokafka would request metadata without a pause until a leader exists; with this patch it does so ten times a second.
    """
    consumer._client.force_metadata_update = _MetadataRefresh(consumer, doubted).forced


class _MetadataRefresh:
    def __init__(self, consumer: Any, doubted: Callable[[], None]) -> None:
        self._consumer = consumer
        self._client = consumer._client
        self._doubted = doubted
        self._force: Callable[[], asyncio.Future[Any]] = self._client.force_metadata_update
        self._leaderless: set[Any] = set()
        """Assigned partitions without a leader, in the latest metadata."""
        self._again: asyncio.Future[Any] | None = None

    def forced(self) -> "asyncio.Future[Any]":
        if not self._just_waits():
            self._doubted()
            return self._force()
        if self._again is None or self._again.done():
            loop = asyncio.get_running_loop()
            self._again = loop.create_future()
            loop.call_later(LOOK_AGAIN_S, self._ask_again, self._again)
        return asyncio.shield(self._again)

    def _just_waits(self) -> bool:
        """Return whether the fetcher only refreshes for partitions that are known to have no leader."""
        fetcher = self._consumer._fetcher
        if fetcher is None or asyncio.current_task() is not fetcher._fetch_task:
            return False  # the refresh follows a broker's response
        cluster = self._client.cluster
        leaders = {tp: cluster.leader_for_partition(tp) for tp in self._consumer.assignment()}
        before = self._leaderless
        self._leaderless = {tp for tp, leader in leaders.items() if leader == _NO_LEADER}
        return None not in leaders.values() and bool(self._leaderless) and self._leaderless <= before

    def _ask_again(self, again: "asyncio.Future[Any]") -> None:
        def answered(_: "asyncio.Future[Any]") -> None:
            if not again.done():
                again.set_result(None)

        self._force().add_done_callback(answered)
