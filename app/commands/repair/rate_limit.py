"""So many records a second, and no more."""

import asyncio
from typing import Final

CHUNK_MAX: Final = 500
"""Records of one transaction."""
CHUNKS_PER_S: Final = 5


class RateLimit:
    """Of one run."""

    def __init__(self, rate: float | None) -> None:
        """``rate``: records a second; None = as fast as it goes."""
        self._rate = rate
        self._due: float | None = None
        self.chunk = CHUNK_MAX if rate is None else max(1, min(CHUNK_MAX, int(rate / CHUNKS_PER_S)))

    async def wait(self, count: int) -> None:
        """Until so many more may be done."""
        if self._rate is None:
            return
        now = asyncio.get_running_loop().time()
        due = now if self._due is None else max(now, self._due)
        self._due = due + count / self._rate
        await asyncio.sleep(due - now)
