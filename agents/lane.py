"""A lane: one partition of an address; the unit of ownership, order, state and transaction.

Two promises live here.

*No record is ever stepped over.* Each batch says where its fetch began. A lane drops what lies below the offset
that comes next and refuses a batch that begins above it. On any failure it keeps the batch, discards its
producer, opens again, reads the batch again from the log, trims it to the new offset and runs it again: later
batches, already queued, would otherwise commit over the failed one.

*State follows the commit.* See :mod:`agents.transactions`.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final

from aiokafka.errors import KafkaError

from agents.batch import FetchedBatch
from agents.cursor import ClusterWentBackError, Cursor, TopicRecreatedError
from agents.mail import Mail
from agents.opening import (
    LaneRefusedError,
    NotOwnerError,
    Opened,
    Opening,
    TopicChangedError,
    TopicMissingError,
)
from agents.ownership import Ownership
from agents.topic_faults import denied
from agents.transactions import Observe, Transactions
from ringfence_kafka.errors import RingfenceError, named
from ringfence_kafka.log_reader import LogStalledError
from ringfence_kafka.producer import FencedError
from ringfence_kafka.waiting import back_off, is_cancelled, set_within
from tables.store import DamagedStoreError

log: Final = logging.getLogger("ringfence.lane")

DRAIN_LIMIT_S: Final = 8.0
"""How long closing waits for the transaction under way."""
BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
REFUSED_AGAIN_S: Final = 10.0
"""How soon a lane that must not run asks whether it may now."""
WAIT_UNUSUAL_S: Final = 10.0
"""A rebalance that takes longer than this to confirm an assignment is worth a warning."""
_EXPECTED: Final = (
    TopicRecreatedError,
    ClusterWentBackError,
    KafkaError,
    OSError,
    TimeoutError,
    TopicChangedError,
    TopicMissingError,
    LogStalledError,
    DamagedStoreError,
    RingfenceError,
)
"""What a cluster and a disk do; anything else shows its trace once."""


class LaneState(StrEnum):
    """What health shows."""

    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    RETRYING = "retrying"
    """Something is refused or away; the lane keeps its batch and tries again."""
    REFUSED = "refused"
    """The lane must not run until a person has acted; the reason says how. It asks at intervals whether somebody has."""


class Lane:
    """Runs one lane in a task of its own, so that Faust may cancel its actors at any await."""

    def __init__(
        self,
        opening: Opening,
        changed: Callable[[], None] = lambda: None,
        observe: Observe = lambda _seconds, _parts: None,
    ) -> None:
        """``changed`` is called whenever the state may have changed, ``observe`` after each batch."""
        self.name = opening.name
        self.state = LaneState.CLOSED
        self.reason = ""
        """Why the lane is not open, for logs and health."""
        self.counts: Counter[str] = Counter()
        self.transactions = Transactions(opening, self.counts, observe)
        self._opening = opening
        self._changed = changed
        self._mail = Mail()
        self._kept: FetchedBatch | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._opened: Opened | None = None
        self._cursors: dict[str, Cursor] = {}
        self._busy = False
        """A batch is being processed."""
        self._distrust: Exception | None = None
        """Found between batches: why the lane must be opened anew, or not be open."""
        self._reported: type[BaseException] = FencedError
        """What was shown with its trace last; a fence never is."""
        self._warn_at: float | None = None
        """When waiting for the group becomes unusual; None = it does not wait."""

    @property
    def next(self) -> int:
        """First input offset that is not yet processed; 0 until the lane was open."""
        cursor = self._cursors.get(self._opening.address.input_topic)
        return cursor.next if cursor else 0

    def seconds_covered(self) -> float | None:
        """How far back the ring reaches; None while the lane is not open, or knows fewer than two IDs."""
        return self._opening.table.seconds_covered() if self._opened is not None else None

    @property
    def opening(self) -> Opening:
        """What the lane is made from."""
        return self._opening

    @property
    def cursors(self) -> dict[str, Cursor]:
        """How far it is, by topic; empty until it was open."""
        return self._cursors

    async def compare(self) -> None:
        """Whether an idle lane still fits the cluster; if not, it opens anew. One that works finds out by itself."""
        opened = self._opened
        if opened is None or self.state is not LaneState.OPEN or self._kept or self._mail:
            return
        try:
            for cursor in opened.cursors.values():
                await cursor.compare(opened.cluster)
        except ClusterWentBackError as error:
            if self._opened is opened and not self._busy:
                self._doubt(error)

    def refuse(self, faults: Iterable[str]) -> None:
        """Something is wrong with the topics of an open lane: it must not go on with them."""
        if self._opened is not None:
            self._doubt(LaneRefusedError("; ".join(faults)))

    def note_sizes(self, bytes_max: Mapping[str, int]) -> None:
        """What the cluster says now of how large a record batch each topic takes."""
        known = self._opened.outputs.bytes_max if self._opened is not None else {}
        changed = [
            f"{each} takes {bytes_max[each]} bytes"
            for each in known
            if bytes_max.get(each, known[each]) != known[each]
        ]
        if changed:
            self._doubt(TopicChangedError(f"max.message.bytes has changed: {', '.join(changed)} now"))

    def _doubt(self, error: Exception) -> None:
        self._distrust = error
        self._wake.set()

    # -- what its owner calls ------------------------------------------------------------------------------

    def start(self, ownership: Ownership) -> None:
        """Open and work until :meth:`close`. The predecessor must be closed."""
        if self._task is not None:
            raise AssertionError(f"lane {self.name} is started while it runs")
        self._closing.clear()
        self._mail.clear()
        self._kept = self._distrust = self._warn_at = None
        self._set(LaneState.OPENING)
        self._task = asyncio.create_task(self._run(ownership), name=f"lane {self.name}")

    async def close(self) -> None:
        """Finish the transaction under way, then stop. RocksDB stays open for the next :meth:`start`."""
        task, self._task = self._task, None
        if task is None:
            return
        self._closing.set()
        self._wake.set()
        self._room.set()
        if not self._busy:
            task.cancel()  # opening or waiting: nothing is half-done that the next fence does not end
        done, _ = await asyncio.wait([task], timeout=DRAIN_LIMIT_S)
        if not done:
            log.warning("lane %s: its transaction does not end; left to the next owner's fence", self.name)
            task.cancel()
            await asyncio.wait([task])
        self._set(LaneState.CLOSED)
        log.info("lane %s closed at offset %d", self.name, self.next)

    async def dispose(self) -> None:
        """Close for good, RocksDB included."""
        await self.close()
        self._opening.table.close()

    async def offer(self, batch: FetchedBatch) -> None:
        """Hand over a batch; waits while the lane is busy. A closed lane drops it: it will be fetched again."""
        while self._task is not None and not self._closing.is_set():
            if self._mail.add(batch):
                self._wake.set()
                return
            self._room.clear()
            await self._room.wait()

    # -- the task ------------------------------------------------------------------------------------------

    async def _run(self, ownership: Ownership) -> None:
        """Open, work; on any failure begin again. Nothing but cancellation leaves here."""
        attempt = 0
        while not self._closing.is_set():
            try:
                self._opened = await self._opening.open(ownership)
                self._cursors, self._warn_at, self._distrust = self._opened.cursors, None, None
                await self._read_held_again(self._opened)
                if self._kept is None:
                    self._set(LaneState.OPEN)
                while (batch := await self._take()) is not None:
                    self._busy = True
                    rest = await self.transactions.run(batch, self._opened, ownership)
                    self._busy, self._kept = False, rest
                    attempt, self._reported = 0, FencedError
                    self._set(LaneState.OPEN)
            except LaneRefusedError as error:
                await self._discard()  # as below
                if (self.state, self.reason) != (LaneState.REFUSED, str(error)):
                    log.error("lane %s stopped: %s", self.name, error)
                self._set(LaneState.REFUSED, str(error))
                await set_within(self._closing, REFUSED_AGAIN_S)
            except BaseException as error:
                # A lane that dies loses its partition in silence: so does one that takes for its own cancellation that of
                # something it waited for, or that meets a panic of RocksDB's bindings, which is no Exception.
                if is_cancelled() or isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                attempt += 1
                await (
                    self._discard()
                )  # before the wait: an open transaction holds back readers of the outputs
                await self._retry_later(error, attempt)
            finally:
                self._busy = False
                await self._discard()

    def _set(self, state: LaneState, reason: str = "") -> None:
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            self._changed()

    async def _discard(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.producer.discard()

    async def _retry_later(self, error: BaseException, attempt: int) -> None:
        delay = back_off(attempt, BACKOFF_FIRST_S, BACKOFF_MAX_S)
        self._set(LaneState.RETRYING, self._said(error))
        self.counts["fenced" if isinstance(error, FencedError) else "retries"] += 1
        if isinstance(error, FencedError):
            log.warning("lane %s fenced: %s; opening again in %.1f s", self.name, error, delay)
        elif isinstance(error, NotOwnerError):
            self._say_waits(error)
        else:
            log.warning("lane %s retrying in %.1f s (attempt %d): %s", self.name, delay, attempt, self.reason)
            if not isinstance(error, (*_EXPECTED, self._reported)):
                self._reported = type(error)
                log.error(
                    "lane %s: internal error, please report it; the batch is kept and tried again",
                    self.name,
                    exc_info=error,
                )
        await set_within(self._closing, delay)

    def _said(self, error: BaseException) -> str:
        """What is repaired in one way is said in one, wherever it is found."""
        if isinstance(error, TopicMissingError | TopicChangedError):
            return str(error)
        return denied(self._opening.group_id, self._opening.address, error) or named(error)

    async def _read_held_again(self, opened: Opened) -> None:
        """After a failure: the failed batch, as it stands in the log now. Those behind it are fetched again."""
        if self._kept is None:
            return
        try:
            again = await self._opening.read_again(self._kept)
        except TimeoutError:
            again = None  # the consumer brings it, sooner or later
        self._kept = again and opened.cursors[again.topic].renew(again)

    def _say_waits(self, error: NotOwnerError) -> None:
        """Once an assignment, as it is part of every rebalance; a warning when it lasts."""
        now = time.monotonic()
        if self._warn_at is None:
            log.info("lane %s waits: %s", self.name, error)
        elif now >= self._warn_at:
            log.warning("lane %s still waits: %s", self.name, error)
        else:
            return
        self._warn_at = now + WAIT_UNUSUAL_S

    async def _take(self) -> FetchedBatch | None:
        """The kept batch, else the next one; None when the lane is to close."""
        while not self._closing.is_set():
            if self._distrust is not None:
                error, self._distrust = self._distrust, None
                raise error
            if self._kept is not None:
                return self._kept
            self._kept = self._mail.take()
            if self._kept is not None:
                self._room.set()
                return self._kept
            self._wake.clear()
            await self._wake.wait()
        return None
