"""Watches whether the broker answers: an idle process would not notice that it is unavailable."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka.errors import KafkaConnectionError

INTERVAL_S: Final = 2.0
ANSWER_LIMIT_S: Final = 5.0


class BrokerWatch:
    """Queries the broker at intervals. Logs once that it does not answer, and once that it answers again."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[object]],
        log: logging.Logger,
        meanwhile: str,
        denied: Callable[[], Awaitable[Exception | None]] | None = None,
    ) -> None:
        """Create the watch.

        ``ask``: any small query to the cluster. ``meanwhile``: what happens to messages while the broker does not answer. ``denied``:
        returns an error with a remedy that names a broker which refuses access; None = no broker refuses.
        """
        self._ask = ask
        self._denied = denied
        self._log = log
        self._meanwhile = meanwhile
        self._away_since: float | None = None
        self._said_why = False

    @property
    def away(self) -> bool:
        """Whether the last query had no answer."""
        return self._away_since is not None

    async def _asked(self) -> None:
        """Query once, or twice: brokers close long-lived authenticated connections at a request (``connections.max.reauth.ms``)."""
        try:
            await self._ask()
        except KafkaConnectionError:
            if self.away:
                raise
            await self._ask()

    async def _say_why(self) -> None:
        """Log once that a broker answers and refuses access, also after an outage."""
        if self._denied is None or self._said_why:
            return
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                denied = await self._denied()
        except TimeoutError:
            return
        except Exception as error:
            denied = error
        if denied is not None:
            self._said_why = True
            self._log.warning("%s", denied)

    async def run(self) -> None:
        """Query until cancelled."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_LIMIT_S):
                    await self._asked()
            except Exception as error:
                if self._away_since is None:
                    self._away_since = time.monotonic()
                    self._log.warning(
                        "the broker does not answer (%s); %s", type(error).__name__, self._meanwhile
                    )
                if not isinstance(error, TimeoutError):
                    await self._say_why()
            else:
                self._said_why = False
                if self._away_since is not None:
                    self._log.info(
                        "the broker answers again after %.0f s", time.monotonic() - self._away_since
                    )
                    self._away_since = None
            await asyncio.sleep(INTERVAL_S)
