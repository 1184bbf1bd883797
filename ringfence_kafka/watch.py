"""Watches whether the broker answers: who has nothing to do would not notice that it is gone."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

INTERVAL_S: Final = 2.0
ANSWER_LIMIT_S: Final = 5.0


class BrokerWatch:
    """Asks every other second; says once that the broker is away, and once that it is back."""

    def __init__(self, ask: Callable[[], Awaitable[object]], log: logging.Logger, meanwhile: str) -> None:
        """``ask`` is any small question to the cluster; ``meanwhile`` says what becomes of messages while nobody answers."""
        self._ask = ask
        self._log = log
        self._meanwhile = meanwhile
        self._away_since: float | None = None

    @property
    def away(self) -> bool:
        """The last question was not answered."""
        return self._away_since is not None

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_LIMIT_S):
                    await self._ask()
            except Exception as error:  # noqa: BLE001 - whatever it is, the broker did not answer
                if self._away_since is None:
                    self._away_since = time.monotonic()
                    self._log.warning(
                        "the broker does not answer (%s); %s", type(error).__name__, self._meanwhile
                    )
            else:
                if self._away_since is not None:
                    self._log.info(
                        "the broker answers again after %.0f s", time.monotonic() - self._away_since
                    )
                    self._away_since = None
            await asyncio.sleep(INTERVAL_S)
