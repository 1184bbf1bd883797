"""The transaction coordinator, and what partitions and the group check by themselves: epochs, fences, and markers that come late.

A request may arrive long after its sender was told that it is lost, in the midst of whatever has come since. So each is judged as Kafka
judges it. Partitions, and the group, look at the coordinator only where they know of no transaction of this epoch that is open with them:
until its marker is written they take what comes for it, also when its end is decided. The coordinator takes requests of the present epoch.
The same epoch goes on from one transaction to the next, unless the end is of the kind that raises it (KIP-890).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka.errors import (
    ConcurrentTransactions,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)

from tests.simulator.kafka.logs import Batch, Fate, Headers, Known, Log, Part

TRANSACTION_LIMIT_S: Final = 60.0
"""After which the coordinator aborts a transaction that nobody ends, where its producer does not say."""


class State(Enum):
    """Of a transactional ID."""

    EMPTY = auto()
    ONGOING = auto()
    ENDING = auto()
    """Decided; markers are still to be written."""
    ENDED = auto()


class Who(NamedTuple):
    """A producer, as its requests name it."""

    name: str
    """The transactional ID."""
    epoch: int
    implicit: bool = False
    """What it writes adds itself to its transaction, and each end raises the epoch."""
    by: object = None
    """Whose requests these are."""

    def __repr__(self) -> str:
        return f"{self.name} {self.epoch}"


class Pending(NamedTuple):
    """Offsets that a transaction is to commit for the group, as the group knows them until it has the marker."""

    epoch: int
    offsets: dict[tuple[str, int], int]


class Transactional:
    """One transactional ID."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = -1
        self.state = State.EMPTY
        self.committed = False
        """Of the last that was ended: how."""
        self.logs: dict[Log, None] = {}
        """That are in the transaction."""
        self.group = False
        """Whether the group is."""
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
        self._pending: dict[str, Pending] = {}
        """Of the group, by transactional ID."""
        self.known: dict[str, Transactional] = {}
        self.aborted: list[str] = []
        """Transactional IDs, once for each transaction of theirs that was."""

    # -- requests ----------------------------------------------------------------------------------------------

    def initialise(self, name: str, limit_s: float = TRANSACTION_LIMIT_S, by: object = None) -> int:
        """InitProducerId: the epoch; aborts what is under way, and has the caller come again meanwhile."""
        found = self.known.setdefault(name, Transactional(name))
        if found.state is State.ONGOING:
            found.epoch += 1  # at once: the former holder begins nothing any more
            self._end(found, commit=False)
        if found.state is State.ENDING:
            raise ConcurrentTransactions(name)
        found.epoch += 1
        found.state, found.limit_s, found.by = State.EMPTY, limit_s, by
        return found.epoch

    def add_partitions(self, who: Who, logs: Iterable[Log]) -> None:
        """AddPartitionsToTxn; begins a transaction where none is open."""
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
        """The base offset of the batch."""
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
        """EndTxn: the epoch that follows. It is acknowledged once it is decided: before any marker is written."""
        found = self.known[who.name]
        again = who.implicit and who.epoch == found.epoch - 1 and found.state in {State.ENDING, State.ENDED}
        if not again:
            found = self._held(who)
        if who.implicit and found.state is State.ENDING and not again:
            raise ProducerFenced(who.name)
        if found.state is State.ONGOING:
            found.epoch += who.implicit
            self._end(found, commit=commit)
        elif (
            who.implicit and not commit and not again
        ):  # of nothing: it has its epoch for itself all the same
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
        """Whether none is open, and none decided that does not show yet."""
        for value in self.known.values():  # noqa: SIM110 - asked often, and this is what costs least
            if not value.at_rest:
                return False
        return True

    def committed(self, part: Part) -> bool:
        """Whether that is decided for the transaction that a part is of."""
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
        """What is not in a transaction; for the moment, as long as the last one's markers are to come."""
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
    """The partition asks the coordinator about it. Whatever becomes of that, what has a higher number is not the first of its transaction."""
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
    """As a partition does: what it has already it does not write again."""
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
