"""The transaction coordinator, and the checks of partitions and the group: epochs, fences, and late markers.

Partitions and the group ask the coordinator only if no transaction of this epoch is open with them, until its marker is written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka.errors import ConcurrentTransactions, InvalidTxnState, OutOfOrderSequenceNumber, ProducerFenced

from tests.simulator.kafka.logs import Batch, Fate, Headers, Known, Log, Part

TRANSACTION_LIMIT_S: Final = 60.0
"""Seconds after which the coordinator aborts an open transaction, unless the producer sets another limit."""


class State(Enum):
    """State of a transactional ID."""

    EMPTY = auto()
    ONGOING = auto()
    ENDING = auto()
    """The end is decided; markers are still to be written."""
    ENDED = auto()


class Who(NamedTuple):
    """A producer, as its requests name it."""

    name: str
    epoch: int
    implicit: bool = False
    """Whether a write adds itself to its transaction, and each end raises the epoch."""
    by: object = None

    def __repr__(self) -> str:
        return f"{self.name} {self.epoch}"


class Pending(NamedTuple):
    """Offsets that a transaction is to commit for the group, kept until the marker is written."""

    epoch: int
    offsets: dict[tuple[str, int], int]


class Transactional:
    """State of one transactional ID."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = -1
        self.state = State.EMPTY
        self.committed = False
        self.logs: dict[Log, None] = {}
        self.group = False
        self.count = 0
        """Number of transactions: shows which one a time-out was set for."""
        self.limit_s = TRANSACTION_LIMIT_S
        self.by: object = None
        """Life of the process that has taken it over last."""
        self.missing = 0

    @property
    def at_rest(self) -> bool:
        return self.state is State.EMPTY or self.state is State.ENDED


After = Callable[..., Any]


class Coordinator:
    """Coordinator of all transactional IDs."""

    def __init__(
        self,
        after: After,
        marker_delay: Callable[[], float],
        commit_offsets: Callable[[Mapping[tuple[str, int], int]], None],
    ) -> None:
        """``after(seconds, call, *args)`` is the cluster's timer; ``marker_delay`` returns the seconds until the next marker."""
        self._after = after
        self._marker_delay = marker_delay
        self._commit_offsets = commit_offsets
        self._pending: dict[str, Pending] = {}
        self.known: dict[str, Transactional] = {}
        self.aborted: list[str] = []

    # -- requests ----------------------------------------------------------------------------------------------

    def initialise(self, name: str, limit_s: float = TRANSACTION_LIMIT_S, by: object = None) -> int:
        """Answer InitProducerId with the epoch. An open transaction is aborted, and the caller must retry meanwhile."""
        found = self.known.setdefault(name, Transactional(name))
        if found.state is State.ONGOING:
            found.epoch += 1  # at once: the former holder begins nothing now
            self._end(found, commit=False)
        if found.state is State.ENDING:
            raise ConcurrentTransactions(name)
        found.epoch += 1
        found.state, found.limit_s, found.by = State.EMPTY, limit_s, by
        return found.epoch

    def add_partitions(self, who: Who, logs: Iterable[Log]) -> None:
        self._begun(who).logs |= dict.fromkeys(logs)

    def add_offsets(self, who: Who) -> None:
        self._begun(who).group = True

    def produce(
        self,
        who: Who,
        sequence: int,
        log: Log,
        records: Sequence[tuple[int, bytes | None, bytes | None, Headers]],
    ) -> int:
        known = log.producers.get(who.name)
        if known is None or known.part is None or known.epoch != who.epoch:
            _note(log, who, sequence)
            found = self._begun(who) if who.implicit else self._held(who)
            if who.implicit:
                found.logs[log] = None
            elif found.state is not State.ONGOING or log not in found.logs:
                self._refuse(found)
        known = log.producers.setdefault(who.name, Known(who.epoch))
        return _append(log, known, who, sequence, records, self.known[who.name].count)

    def offsets(self, who: Who, offsets: Mapping[tuple[str, int], int]) -> None:
        pending = self._pending.get(who.name)
        if pending is None or pending.epoch != who.epoch:
            found = self._begun(who) if who.implicit else self._held(who)
            if who.implicit:
                found.group = True
            elif found.state is not State.ONGOING or not found.group:
                self._refuse(found)
            pending = self._pending[who.name] = Pending(who.epoch, {})
        pending.offsets.update(offsets)

    def end(self, who: Who, commit: bool) -> int:
        """End the transaction; return the next epoch. The answer comes once the end is decided, before any marker is written."""
        found = self.known[who.name]
        again = who.implicit and who.epoch == found.epoch - 1 and found.state in {State.ENDING, State.ENDED}
        if not again:
            found = self._held(who)
        if who.implicit and found.state is State.ENDING and not again:
            raise ProducerFenced(who.name)
        if found.state is State.ONGOING:
            found.epoch += who.implicit
            self._end(found, commit=commit)
        elif who.implicit and not commit and not again:  # an abort of nothing has its own epoch, too
            found.epoch += 1
            found.state, found.committed = State.ENDED, False
        elif found.state is State.EMPTY or found.committed is not commit or (who.implicit and not again):
            raise InvalidTxnState(who.name)
        elif found.state is State.ENDING:
            raise ConcurrentTransactions(who.name)
        return found.epoch

    # -- what is known -----------------------------------------------------------------------------------------

    @property
    def at_rest(self) -> bool:
        for value in self.known.values():  # noqa: SIM110 - asked often, and this is what costs least
            if not value.at_rest:
                return False
        return True

    def committed(self, part: Part) -> bool:
        if part.fate is not Fate.OPEN or part.owner is None:
            return part.fate is Fate.COMMITTED
        found = self.known[part.owner[0]]
        opened = (log.producers.get(found.name) for log in found.logs)
        return (
            found.state is State.ENDING
            and found.committed
            and any(item is not None and item.part is part for item in opened)
        )

    # -- by itself ---------------------------------------------------------------------------------------------

    def _held(self, who: Who) -> Transactional:
        found = self.known[who.name]
        if found.epoch != who.epoch:
            raise ProducerFenced(who.name)
        return found

    def _begun(self, who: Who) -> Transactional:
        found = self._held(who)
        if found.state is State.ENDING:
            raise ConcurrentTransactions(who.name)
        if found.state is not State.ONGOING:
            found.state = State.ONGOING
            found.logs, found.group = {}, False
            found.count += 1
            self._after(found.limit_s, self._time_out, found, found.count)
        return found

    @staticmethod
    def _refuse(found: Transactional) -> None:
        """Refuse a request outside its transaction; temporarily, while markers of the last one are missing."""
        raise (ConcurrentTransactions if found.state is State.ENDING else InvalidTxnState)(found.name)

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
            partial(log.end_of, found.name, found.epoch, fate) for log in found.logs
        ]
        if found.group:
            markers.append(partial(self._end_offsets, found.name, commit))
        found.missing = len(markers)
        for marker in markers:
            self._after(self._marker_delay(), self._mark, found, marker)
        if not markers:
            found.state = State.ENDED

    def _end_offsets(self, name: str, commit: bool) -> None:
        pending = self._pending.pop(name, None)
        if pending is not None and commit:
            self._commit_offsets(pending.offsets)

    def _mark(self, found: Transactional, marker: Callable[[], None]) -> None:
        marker()
        found.missing -= 1
        if not found.missing:
            found.state = State.ENDED


def _note(log: Log, who: Who, sequence: int) -> None:
    """Note a write that the partition checks with the coordinator; even if refused, a higher sequence is not the first of its transaction."""
    epoch, lowest = log.asked.get(who.name, (who.epoch, sequence))
    if who.epoch > epoch:
        epoch, lowest = who.epoch, sequence
    elif who.epoch == epoch:
        lowest = min(lowest, sequence)
    log.asked[who.name] = epoch, lowest


def _append(
    log: Log,
    known: Known,
    who: Who,
    sequence: int,
    records: Sequence[tuple[int, bytes | None, bytes | None, Headers]],
    number: int,
) -> int:
    """Append as a partition does: a batch that is already there is not written again."""
    if known.epoch == who.epoch:
        for batch in known.batches:
            if (batch.sequence, batch.records) == (sequence, len(records)):
                return batch.base
    elif who.epoch < known.epoch:
        raise ProducerFenced(who.name)
    else:
        known.begin(who.epoch)
    if sequence != known.next or (known.part is None and sequence > log.asked[who.name][1]):
        raise OutOfOrderSequenceNumber(f"{who}: {sequence} after {known.next}")
    if known.part is None:
        del log.asked[who.name]
        known.part = log.begin((who.name, who.epoch), number, who.by)
    base = log.append(records, known.part)
    known.next += len(records)
    known.batches.append(Batch(sequence, len(records), base))
    return base
