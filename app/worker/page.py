"""The worker's page and ``/status``: the state of the whole application, asked for at most every few seconds."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from aiokafka.errors import KafkaError

from app.commands.status import page
from app.commands.status.findings import findings
from app.commands.status.model import Finding, Status
from app.commands.status.read import read
from app.commands.status.status import as_document
from ringfence_client.progress.open_records import OpenRecordCounts
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import RingfenceError, said

KEPT_S: Final = 3.0
"""Interval of questions to the cluster, however many look."""
LIMIT_S: Final = 12.0


class StatusPage:
    """The last status. Requests during a question share its answer."""

    def __init__(
        self, settings: Settings, ask: Callable[[Settings], Awaitable[Status]] | None = None
    ) -> None:
        """``ask``: asks the cluster and all processes."""
        self._settings = settings
        self._ask = ask or partial(read, counts=OpenRecordCounts(settings.kafka))
        self._lock = asyncio.Lock()
        self._seen: tuple[Status | None, str] = (None, "nobody has looked yet")
        self._seen_at = float("-inf")

    async def look(self) -> tuple[Status | None, str]:
        """Return the status, or why there is none."""
        async with self._lock:
            if time.monotonic() - self._seen_at > KEPT_S:
                self._seen = await self._new()
                self._seen_at = time.monotonic()
        return self._seen

    async def _new(self) -> tuple[Status | None, str]:
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self._ask(self._settings), ""
        except TimeoutError:
            return (
                None,
                f"no answer from {self._settings.kafka.bootstrap_servers} within {LIMIT_S:.0f} s: look at the brokers",
            )
        except (RingfenceError, KafkaError, OSError) as error:
            return None, said(error)

    async def html(self, own: Mapping[str, Any]) -> str:
        """Return the page; ``own``: this worker's lanes."""
        status, fault = await self.look()
        found: Sequence[Finding] = findings(status) if status is not None else ()
        return page.render(status, found, self._settings.app.instance_name, own, fault)

    async def document(self) -> dict[str, Any]:
        """As ``ringfence status --json`` has it."""
        status, fault = await self.look()
        if status is None:
            return {"ok": False, "error": fault}
        return as_document(status, findings(status))
