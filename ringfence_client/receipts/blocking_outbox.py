"""Outbox for programs without an event loop."""

import asyncio
import threading
from typing import TYPE_CHECKING

from ringfence_client.receipts.outgoing import Content, GivenHeaders
from ringfence_client.receipts.receipt import OutboxError, Receipt

if TYPE_CHECKING:
    from ringfence_client.receipts.outbox import Outbox


class BlockingOutbox:
    """Does the same as :class:`Outbox` without ``await``. Any number of threads may use it."""

    def __init__(self, outbox: "Outbox") -> None:
        """Connect as :meth:`Outbox.__aenter__` does."""
        self._outbox = outbox
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="outbox", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(outbox.__aenter__(), self._loop).result()
        except BaseException:
            self._end()
            raise

    def send(
        self,
        value: Content | None,
        *,
        duplicate_id: Content | None = None,
        key: Content | None = None,
        headers: GivenHeaders = (),
    ) -> Receipt:
        """Send a message, and wait until a worker has judged it, as :meth:`Outbox.send` does."""
        if self._loop.is_closed():
            raise OutboxError("the outbox is closed, and nothing is sent: use it within 'with'")
        sending = self._outbox.send(value, duplicate_id=duplicate_id, key=key, headers=headers)
        return asyncio.run_coroutine_threadsafe(sending, self._loop).result()

    def close(self) -> None:
        """Disconnect."""
        try:
            asyncio.run_coroutine_threadsafe(self._outbox.__aexit__(None, None, None), self._loop).result()
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
