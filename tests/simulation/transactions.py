"""The transaction coordinator: epochs, fences, and markers that come late.

AddPartitionsToTxn and Produce are one request here, and AddOffsetsToTxn and TxnOffsetCommit another.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Final

from aiokafka.errors import (
    ConcurrentTransactions,
    InvalidTxnState,
    ProducerFenced,
)

from tests.simulation.logs import Fate, Headers, Log, Part

TRANSACTION_LIMIT_S: Final = 60.0
"""After which the coordinator aborts a transaction that nobody ends, where its producer does not say."""


class State(Enum):
    """Of a transactional ID."""

    EMPTY = auto()
    ONGOING = auto()
    ENDING = auto()
    """Decided; markers are still to be written."""
    ENDED = auto()


class OffsetsPart:
    """What a transaction is to commit for the group."""

    __slots__ = ("offsets",)

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], int] = {}


class Transactional:
    """One transactional ID."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = -1
        self.state = State.EMPTY
        self.committed = False
        """Of the last that was ended: how."""
        self.parts: dict[Log, Part] = {}
        self.offsets: OffsetsPart | None = None
        self.written: dict[int, int] = {}
        """Sequence of a batch → its base offset: one that is sent again is not written again."""
        self.count = 0
        """Of transactions: which one a time-out was set for."""
        self.limit_s = TRANSACTION_LIMIT_S
        self.by: object = None
        """The life of a process that has taken it last."""
        self.missing = 0
        """Markers that are not written yet."""

    @property
    def at_rest(self) -> bool:
        """Nothing is open, and nothing decided that does not show yet."""
        return self.state is State.EMPTY or self.state is State.ENDED


After = Callable[..., Any]


class Coordinator:
    """Of all transactional IDs."""

    def __init__(
        self,
        after: After,
        marker_delay: Callable[[], float],
        commit_offsets: Callable[[Mapping[tuple[str, int], int]], None],
    ) -> None:
        """``after(seconds, call, *args)`` is the cluster's timer; ``marker_delay`` says how long the next marker takes."""
        self._after = after
        self._marker_delay = marker_delay
        self._commit_offsets = commit_offsets
        self.known: dict[str, Transactional] = {}
        self.aborted: list[str] = []
        """Transactional IDs, once for each transaction of theirs that was."""

    def initialise(self, name: str, limit_s: float = TRANSACTION_LIMIT_S, by: object = None) -> int:
        """InitProducerId: the epoch; aborts what is under way, and has the caller come again meanwhile."""
        found = self.known.setdefault(name, Transactional(name))
        if found.state is State.ONGOING:
            found.epoch += 1  # at once: the former holder's writes are refused from now on
            self._end(found, commit=False)
        if found.state is State.ENDING:
            raise ConcurrentTransactions(name)
        found.epoch += 1
        found.state, found.limit_s, found.by = State.EMPTY, limit_s, by
        found.written.clear()
        return found.epoch

    def produce(
        self,
        name: str,
        epoch: int,
        sequence: int,
        log: Log,
        records: Sequence[tuple[int, bytes | None, bytes | None, Headers]],
    ) -> int:
        """The base offset of the batch."""
        found = self._writable(name, epoch)
        if sequence in found.written:
            return found.written[sequence]
        part = found.parts.get(log)
        if part is None:
            part = found.parts[log] = log.begin((name, epoch), found.count)
        base = found.written[sequence] = log.append(records, part)
        return base

    def offsets(self, name: str, epoch: int, offsets: Mapping[tuple[str, int], int]) -> None:
        """TxnOffsetCommit, without a group generation."""
        found = self._writable(name, epoch)
        if found.offsets is None:
            found.offsets = OffsetsPart()
        found.offsets.offsets.update(offsets)

    def end(self, name: str, epoch: int, commit: bool) -> None:
        """EndTxn. It is acknowledged once it is decided: before any marker is written."""
        found = self._held(name, epoch)
        if found.state is State.ONGOING:
            self._end(found, commit=commit)
        elif found.state is State.EMPTY or found.committed is not commit:
            raise InvalidTxnState(name)
        elif found.state is State.ENDING:
            raise ConcurrentTransactions(name)

    def committed(self, part: Part) -> bool:
        """Whether that is decided for the transaction that a part is of."""
        if part.fate is not Fate.OPEN or part.owner is None:
            return part.fate is Fate.COMMITTED
        found = self.known[part.owner[0]]
        return found.state is State.ENDING and found.committed and part in found.parts.values()

    def _held(self, name: str, epoch: int) -> Transactional:
        found = self.known[name]
        if found.epoch != epoch:
            raise ProducerFenced(name)
        return found

    def _writable(self, name: str, epoch: int) -> Transactional:
        found = self._held(name, epoch)
        if found.state is State.ENDING:
            raise ConcurrentTransactions(name)
        if found.state is not State.ONGOING:
            found.state = State.ONGOING
            found.parts, found.offsets = {}, None
            found.count += 1
            self._after(found.limit_s, self._time_out, found, found.count)
        return found

    def _time_out(self, found: Transactional, count: int) -> None:
        if found.count == count and found.state is State.ONGOING:
            found.epoch += 1
            self._end(found, commit=False)

    def _end(self, found: Transactional, *, commit: bool) -> None:
        found.state, found.committed = State.ENDING, commit
        if not commit:
            self.aborted.append(found.name)
        fate = Fate.COMMITTED if commit else Fate.ABORTED
        markers: list[Callable[[], None]] = [
            partial(log.mark, part, fate) for log, part in found.parts.items()
        ]
        if found.offsets is not None:
            markers.append(partial(self._commit_offsets, found.offsets.offsets) if commit else lambda: None)
        found.missing = len(markers)
        for each in markers:
            self._after(self._marker_delay(), self._mark, found, each)
        if not markers:
            found.state = State.ENDED

    def _mark(self, found: Transactional, marker: Callable[[], None]) -> None:
        marker()
        found.missing -= 1
        if not found.missing:
            found.state = State.ENDED
