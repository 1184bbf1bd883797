"""A lane: one partition of an address; the unit of ownership, order, state and transaction.

Two promises live here.

*No record is ever stepped over.* Each batch says where its fetch began. A lane drops what lies below the offset
that comes next and refuses a batch that begins above it. On any failure it keeps the batch, discards its
producer, opens again, reads the batch again from the log, trims it to the new offset and runs it again: later
batches, already queued, would otherwise commit over the failed one.

*State follows the commit.* See :mod:`agents.transactions`.

What comes next is decided by :mod:`ringfence_kafka.tenure`. A rebalance does not close a lane: it stands still until the group has
decided, and a lane that stays goes on with ring, RocksDB and producer as they are.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from agents.batch import FetchedBatch
from agents.cursor import ClusterWentBackError, Cursor
from agents.failures import Failures
from agents.mail import Mail
from agents.opening import (
    LaneRefusedError,
    NotOwnerError,
    Opened,
    Opening,
    TopicChangedError,
)
from agents.ownership import Ownership
from agents.transactions import Observe, Transactions
from ringfence_kafka.producer import FencedError
from ringfence_kafka.tenure import Step, Tenure
from ringfence_kafka.waiting import back_off, cancelled, is_cancelled, set_within

log: Final = logging.getLogger("ringfence.lane")

DRAIN_LIMIT_S: Final = 8.0
"""How long closing waits for the transaction under way."""
BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
REFUSED_AGAIN_S: Final = 10.0
"""How soon a lane that must not run asks whether it may now."""


class LaneState(StrEnum):
    """What health shows."""

    CLOSED = "closed"
    OPENING = "opening"
    SUSPENDED = "suspended"
    """A rebalance is under way: nothing is begun, what is open stays open."""
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
        self._tenure: Tenure[Ownership] = Tenure()
        self._standing = asyncio.Event()
        """Nothing is under way, nor will be until :meth:`start` or :meth:`close`."""
        self._ours: asyncio.Task[None] | None = None
        """What ends when the right to it does."""
        self._task: asyncio.Task[None] | None = None
        self._opened: Opened | None = None
        self._cursors: dict[str, Cursor] = {}
        self._busy = False
        """A batch is being processed."""
        self._distrust: Exception | None = None
        """Found between batches: why the lane must be opened anew, or not be open."""
        self._failures = Failures(opening)

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
        """The group gave us the lane: open it, or go on with it, until :meth:`suspend` or :meth:`close`."""
        if self._task is not None and not self._standing.is_set():
            raise AssertionError(f"lane {self.name} is started while it runs")
        self._mail.clear()
        self._kept = None
        self._failures.waited()
        self._tenure.assigned(ownership)
        self._set(LaneState.OPENING)
        self._disturb()
        if self._task is None:
            self._distrust = None
            self._task = asyncio.create_task(self._run(), name=f"lane {self.name}")

    async def suspend(self) -> None:
        """A rebalance has begun: finish the transaction under way, and begin nothing until :meth:`start`."""
        if self._task is None:
            return
        self._tenure.revoked()
        self._disturb()
        standing = asyncio.create_task(self._standing.wait())
        await asyncio.wait({standing, self._task}, timeout=DRAIN_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        standing.cancel()
        if not self._standing.is_set():
            await self._leave_to_the_fence(self._task)
            self._task = None
        self._set(LaneState.CLOSED if self._opened is None else LaneState.SUSPENDED)

    async def close(self) -> None:
        """Finish the transaction under way, then stop. RocksDB stays open for the next :meth:`start`."""
        task, self._task = self._task, None
        if task is None:
            return
        self._tenure.ended()
        self._disturb()
        done, _ = await asyncio.wait([task], timeout=DRAIN_LIMIT_S)
        if not done:
            await self._leave_to_the_fence(task)
        self._set(LaneState.CLOSED)
        log.info("lane %s closed at offset %d", self.name, self.next)

    async def dispose(self) -> None:
        """Close for good, RocksDB included."""
        await self.close()
        self._opening.table.close()

    async def offer(self, batch: FetchedBatch) -> None:
        """Hand over a batch; waits while the lane is busy. One that may begin nothing drops it: it will be fetched again."""
        while self._task is not None and self._tenure.right is not None:
            if self._mail.add(batch):
                self._wake.set()
                return
            self._room.clear()
            await self._room.wait()

    def _disturb(self) -> None:
        """Have whatever waits look at what has changed. An opening is half-done, but nothing of it that the next fence does not end."""
        self._standing.clear()
        self._wake.set()
        self._room.set()
        if self._ours is not None:
            self._ours.cancel()

    async def _leave_to_the_fence(self, task: "asyncio.Task[None]") -> None:
        log.warning("lane %s: its transaction does not end; left to the next owner's fence", self.name)
        await cancelled(task)

    # -- the task ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Step by step. On any failure what is open is given up and opened anew; nothing but cancellation leaves here."""
        steps: Mapping[Step, Callable[[], Coroutine[Any, Any, None]]] = {
            Step.OPEN: lambda: self._while_ours(self._open()),
            Step.REGAIN: lambda: self._while_ours(self._regain()),
            Step.WORK: self._work,
            Step.REST: self._rest,
            Step.STAND: self._stand,
        }
        try:
            while (step := self._tenure.step(time.monotonic())) is not Step.END:
                try:
                    await steps[step]()
                except LaneRefusedError as error:
                    await self._discard()  # as below
                    if (self.state, self.reason) != (LaneState.REFUSED, str(error)):
                        log.error("lane %s stopped: %s", self.name, error)
                    self._set(LaneState.REFUSED, str(error))
                    self._tenure.failed(time.monotonic() + REFUSED_AGAIN_S)
                except BaseException as error:
                    # A lane that dies loses its partition in silence: so does one that takes for its own cancellation that
                    # of something it waited for, or that meets a panic of RocksDB's bindings, which is no Exception.
                    if is_cancelled() or isinstance(error, KeyboardInterrupt | SystemExit):
                        raise
                    await self._failed(error)
        finally:
            await self._discard()

    async def _while_ours(self, step: Coroutine[Any, Any, None]) -> None:
        """Do it as long as the right lasts that it was begun under."""
        task = self._ours = asyncio.create_task(step)
        try:
            await asyncio.wait([task])
        finally:
            self._ours = None
            if not task.done():
                await cancelled(task)
        if not (task.cancelled() and task.cancelling()):
            task.result()

    async def _open(self) -> None:
        ownership = self._tenure.require_right()
        self._opened = await self._opening.open(ownership)
        self._cursors, self._distrust = self._opened.cursors, None
        self._failures.waited()
        await self._read_held_again(self._opened)
        self._tenure.confirmed(ownership)
        if self._kept is None:
            self._set(LaneState.OPEN)

    async def _regain(self) -> None:
        ownership = self._tenure.require_right()
        try:
            await self._opening.regain(ownership, self._require_opened())
        except NotOwnerError as error:
            self._try_later(error, keeps=True)
            return
        self._tenure.confirmed(ownership)
        self._failures.waited()
        self._set(LaneState.OPEN)
        log.info("lane %s goes on at offset %d", self.name, self.next)

    async def _work(self) -> None:
        ownership, opened = self._tenure.require_right(), self._require_opened()
        while (batch := await self._take()) is not None:
            self._busy = True
            try:
                self._kept = await self.transactions.run(batch, opened, ownership)
            finally:
                self._busy = False
            self._tenure.succeeded()
            self._failures.succeeded()
            self._set(LaneState.OPEN)

    async def _rest(self) -> None:
        self._wake.clear()
        await set_within(self._wake, max(0.0, self._tenure.rests_until - time.monotonic()))

    async def _stand(self) -> None:
        self._wake.clear()
        self._standing.set()
        await self._wake.wait()

    def _set(self, state: LaneState, reason: str = "") -> None:
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            self._changed()

    async def _discard(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.producer.discard()

    def _require_opened(self) -> Opened:
        if self._opened is None:
            raise AssertionError(f"lane {self.name} is not open")
        return self._opened

    async def _failed(self, error: BaseException) -> None:
        await self._discard()  # at once: an open transaction holds back readers of the outputs
        self._try_later(error)
        self.counts["fenced" if isinstance(error, FencedError) else "retries"] += 1

    def _try_later(self, error: BaseException, *, keeps: bool = False) -> None:
        """``keeps``: what is open is sound."""
        delay = back_off(self._tenure.attempts + 1, BACKOFF_FIRST_S, BACKOFF_MAX_S)
        self._tenure.failed(time.monotonic() + delay, keeps=keeps)
        self._set(LaneState.RETRYING, self._failures.reason(error))
        self._failures.say(error, delay, self._tenure.attempts)

    async def _read_held_again(self, opened: Opened) -> None:
        """After a failure: the failed batch, as it stands in the log now. Those behind it are fetched again."""
        if self._kept is None:
            return
        try:
            again = await self._opening.read_again(self._kept)
        except TimeoutError:
            again = None  # the consumer brings it, sooner or later
        self._kept = again and opened.cursors[again.topic].renew(again)

    async def _take(self) -> FetchedBatch | None:
        """The kept batch, else the next one; None when there is something else to do."""
        while self._tenure.step(time.monotonic()) is Step.WORK:
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
