"""The worker's pages and ``/status``: the state of the whole application, read every few seconds at most."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from aiokafka.errors import KafkaError

from app.commands.groups.open_letters import read_letters
from app.commands.repair.records import Refused, Selection
from app.commands.status import page
from app.commands.status.findings import findings
from app.commands.status.lanes import ANSWER_LIMIT_S, fetch_document
from app.commands.status.model import Consumers, Status
from app.commands.status.page import NO_CHARTS
from app.commands.status.read import Counts, read_histories, read_status
from app.commands.status.status import as_document
from app.worker import run_report
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import RingfenceError, said
from ringfence_kafka.http import auth
from ringfence_kafka.page.history import Charts, Subject

KEPT_S: Final = 3.0
"""Minimum interval between reads of the cluster, for any number of viewers, in seconds."""
LIMIT_S: Final = 12.0
SHOWN_MAX: Final = 200


class StatusPage:
    """Last status of the application. Requests during a read share its result."""

    def __init__(
        self, settings: Settings, ask: Callable[[Settings], Awaitable[Status]] | None = None
    ) -> None:
        """Take ``ask``, a function that reads the status from the cluster and all processes."""
        self._settings = settings
        self._ask = ask or partial(read_status, counts=Counts(settings))
        self._lock = asyncio.Lock()
        self._seen: tuple[Status | None, str] = (None, "not checked yet")
        self._past: Charts = NO_CHARTS
        self._seen_at = float("-inf")

    async def read(self) -> tuple[Status | None, str]:
        """Return the status, or None and the reason."""
        async with self._lock:
            if time.monotonic() - self._seen_at > KEPT_S:
                self._seen = await self._answered(self._ask(self._settings))
                status, _ = self._seen
                self._past = NO_CHARTS if status is None else await self._history(status, "glance")
                self._seen_at = time.monotonic()
        return self._seen

    async def _answered(self, question: Awaitable[Any]) -> tuple[Any, str]:
        """Return an answer, or None and the reason."""
        try:
            async with asyncio.timeout(LIMIT_S):
                return await question, ""
        except TimeoutError:
            return (
                None,
                f"no answer from {self._settings.kafka.bootstrap_servers} within {LIMIT_S:.0f} s: look at the brokers",
            )
        except (RingfenceError, KafkaError, OSError) as error:
            return None, said(error)

    async def _history(self, status: Status, span: str, subject: Subject = ()) -> Charts:
        return await read_histories(self._settings, status, span, subject)

    def _shown(self, template: str, title: str, **values: Any) -> str:
        app = self._settings.app
        return page.shown(template, app=app.id, worker=app.instance_name, title=title, **values)

    async def html(self, own: Mapping[str, Any]) -> str:
        """Return the overview page. ``own``: state of this worker's lanes."""
        status, fault = await self.read()
        found = findings(status) if status is not None else ()
        app = self._settings.app
        report = run_report.link(self._settings, status.last_run if status is not None else None)
        return page.render(status, found, app.instance_name, own, fault, self._past, app.id, report)

    async def address(self, address: str) -> str | None:
        """Return the page of an address; None = unknown address, or brokers do not answer."""
        status, _ = await self.read()
        if status is None or (found := _first(status.addresses, address=address)) is None:
            return None
        hour, day = await self._charts(status, ("address", address))
        alone = findings(_without_others(status, addresses=[found]))
        return self._shown("address", address, address=found, found=alone, hour=hour, day=day)

    async def consumers(self, group: str, address: str) -> str | None:
        """Return the page of a consumer group; None as for :meth:`address`."""
        status, _ = await self.read()
        if status is None:
            return None
        if (found := _first(status.consumers, consumer_group=group, address=address)) is None:
            return None
        (hour, day), waiting = await asyncio.gather(
            self._charts(status, ("consumers", group, address)), self._waiting(found)
        )
        alone = findings(_without_others(status, consumers=[found]))
        title = f"{group} at {address}"
        return self._shown("consumers", title, group=found, found=alone, hour=hour, day=day, waiting=waiting)

    async def _charts(self, status: Status, subject: Subject) -> tuple[Charts, Charts]:
        hour, day = (self._history(status, span, subject) for span in ("hour", "day"))
        return await asyncio.gather(hour, day)

    async def _waiting(self, group: Consumers) -> list[dict[str, Any]]:
        """Ask the lease holders for waiting groups, and return them with the oldest first."""
        async with auth.session(self._settings.app, ANSWER_LIMIT_S) as session:
            answers = await asyncio.gather(
                *(fetch_document(session, self._settings.app, web, "/groups") for web in group.webs)
            )
        rows = [row for answer in answers if isinstance(answer, dict) for row in answer.get("groups", ())]
        return sorted(rows, key=lambda row: -row["head_age_seconds"])

    async def letters(self, group: str, address: str) -> str | None:
        """Return the page of a consumer group's open dead letters; None = unknown address."""
        if not self._knows(address):
            return None
        letters, fault = await self._answered(read_open(self._settings, address, group))
        return self._shown(
            "letters", f"dead letters of {group} at {address}", letters=letters, fault=fault, consumer_group=group,
            address=address, LETTERS_MAX=SHOWN_MAX,
        )  # fmt: skip

    async def letter(self, group: str, address: str, partition: str, offset: str) -> str | None:
        """Return the page of a dead letter; None = it does not exist."""
        if not self._knows(address):
            return None
        at = int(partition), int(offset)
        letter, fault = await self._answered(read_one(self._settings, address, group, at))
        if letter is None and not fault:
            return None
        place = f"{at[0]}/{at[1]}"
        return self._shown(
            "letter", f"dead letter {place} of {group} at {address}", letter=letter, fault=fault, consumer_group=group,
            address=address, place=place, values=self._settings.app.page_values,
        )  # fmt: skip

    def _knows(self, address: str) -> bool:
        return any(each.name == address for each in self._settings.addresses)

    async def document(self) -> dict[str, Any]:
        """Return the document of ``ringfence status --json``."""
        status, fault = await self.read()
        if status is None:
            return {"ok": False, "error": fault}
        return as_document(status, findings(status))


def _first(items: Any, **names: str) -> Any:
    return next(
        (item for item in items if all(getattr(item, key) == name for key, name in names.items())), None
    )


def _without_others(status: Status, **kept: Any) -> Status:
    """Return the status reduced to one row of the overview, and the workers."""
    nothing: dict[str, Any] = {
        key: [] for key in ("addresses", "consumers", "bridges", "faults", "left_bridges", "deleted", "left_letters")
    }  # fmt: skip
    return replace(status, last_run=None, **(nothing | kept))


async def read_open(settings: Settings, address: str, consumer_group: str) -> list[Refused]:
    """Return the oldest open dead letters of a consumer group, without values.

    Raises:
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """
    found: list[Refused] = []

    def keep(letter: Refused) -> None:
        found.append(replace(letter, value=None))

    await read_letters(settings, address, Selection(consumer_group=consumer_group), keep, limit=SHOWN_MAX)
    return sorted(found, key=lambda letter: (letter.timestamp, letter.place))


async def read_one(
    settings: Settings, address: str, consumer_group: str, at: tuple[int, int]
) -> Refused | None:
    """Return one dead letter, open or settled; None = it does not exist. Raises as :func:`read_open`."""
    found: list[Refused] = []
    selection = Selection(consumer_group=consumer_group, at=[at])
    await read_letters(settings, address, selection, found.append, settled_too=True)
    if not found:
        return None
    return found[0] if settings.app.page_values else replace(found[0], value=None)
