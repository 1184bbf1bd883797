"""A ring in its shortest form, and batches of messages for it."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Self

from hypothesis import strategies as st

from ringfence_kafka.protocol import stored_ids
from tables.promise import Promise
from tables.ring import Checked, Ring, Verdict

OWN = [stored_ids.encode_id(b"%c" % letter) for letter in b"abcdefgh"]
ALPHABET = [*OWN, *(stored_ids.foreign_id("payments", data) for data in OWN[:4])]
"""Some of the IDs again, of another address: these are other IDs."""


class Batch(NamedTuple):
    """Messages, each with its IDs, and the times at which their producers' clock goes back and forth."""

    units: list[list[bytes]]
    several: bool
    """A message may have more than one ID."""
    ahead: int
    """Milliseconds from the end of the last batch to the first message; below 0 = back in time."""
    apart: int
    """Milliseconds between two messages."""

    def times(self, now: int) -> list[int]:
        return [now + self.ahead + self.apart * number for number in range(len(self.units))]

    def check(self, ring: Ring, now: int) -> Checked:
        if self.several:
            return ring.check_units(self.units, self.times(now))
        return ring.check([unit[0] if unit else None for unit in self.units], self.times(now))


def _batches(units: st.SearchStrategy[list[bytes]], count: int, *, several: bool) -> st.SearchStrategy[Batch]:
    messages = st.lists(units, max_size=count)
    return st.builds(Batch, messages, st.just(several), st.integers(-6, 12), st.integers(-1, 2))


_ids = st.sampled_from(ALPHABET)
_few, _many = st.lists(_ids, max_size=1), st.lists(_ids, min_size=2, max_size=16)
batches = _batches(_few, 20, several=False) | _batches(_few | _many, 10, several=True)
capacities = st.sampled_from([0, 1, 2, 3, 5, 8, 13])
ages = st.sampled_from([0, 0, 4, 15, 60])


class Live(NamedTuple):
    """An ID that the ring holds."""

    sequence: int
    id: bytes
    time: int


def promises(capacity: int) -> st.SearchStrategy[Promise | None]:
    if capacity < 2:
        return st.none()
    sizes, ages_ms = st.integers(1, capacity - 1), st.sampled_from([1, 5, 20])
    return st.none() | st.tuples(sizes, ages_ms).map(lambda drawn: Promise(*drawn))


class Model:
    """Ring in its shortest form: the last N accepted IDs, in order.

    With a promise, IDs beyond its size go when they are too old for the newest record.
    """

    def __init__(
        self,
        capacity: int,
        max_age: int = 0,
        head: int = 0,
        live: Sequence[Live] = (),
        *,
        durable: bool = True,
        promise: Promise | None = None,
    ) -> None:
        self.promise = promise
        """With the newest record and the number of IDs that left too early, as the ring must have them."""
        self.capacity = capacity
        self.max_age = max_age
        self.head = head
        self.live = deque(live)
        self.durable = durable
        """Its IDs are in the changelog."""

    def original(self, encoded_id: bytes | None, time: int) -> int | None:
        latest = next((item for item in reversed(self.live) if item.id == encoded_id), None)
        if latest is None or (self.max_age and time - latest.time > self.max_age):
            return None
        promise = self.promise
        if promise and latest.sequence < self.head - promise.size and time - latest.time > promise.min_age_ms:
            return None
        return latest.sequence

    def verdict(self, unit: Sequence[bytes], time: int) -> tuple[Verdict, int | None]:
        if not unit or self.capacity == 0:
            return Verdict.UNCHECKED, None
        known = (self.original(id_, time) for id_ in unit)
        original = next((sequence for sequence in known if sequence is not None), None)
        return Verdict.ACCEPTED if original is None else Verdict.DUPLICATE, original

    def accept(
        self, units: Sequence[Sequence[bytes]], times: Sequence[int]
    ) -> tuple[list[Verdict], list[int | None]]:
        verdicts, originals, begin, gone = [], list[int | None](), self.head, list[Live]()
        newest = self.promise.newest_ms if self.promise else 0
        for unit, time in zip(units, times, strict=True):
            verdict, original = self.verdict(unit, time)
            verdicts.append(verdict)
            originals.append(original)
            if verdict is not Verdict.ACCEPTED:
                continue
            newest = max(newest, time)
            for id_ in dict.fromkeys(unit):
                self.live.append(Live(self.head, id_, time))
                self.head += 1
            while len(self.live) > self.capacity:
                gone.append(self.live.popleft())
        if self.promise is not None:
            self.age(begin, newest, gone)
        return verdicts, originals

    def age(self, begin: int, newest: int, gone: Sequence[Live]) -> None:
        """Let go of what is too old, but of none that came with this batch."""
        assert self.promise is not None
        size, age = self.promise[:2]
        broken = sum(newest - item.time <= age for item in gone)
        self.promise = Promise(size, age, newest, self.promise.broken + broken)
        until = min(self.head - size, begin)
        while self.live and self.live[0].sequence < until and newest - self.live[0].time > age:
            self.live.popleft()

    def reopened(self, capacity: int, max_age: int, *, durable: bool, promise: Promise | None = None) -> Self:
        """Return the model after another opening: the newest IDs stay, and IDs in memory only are gone."""
        live = list(self.live)[-capacity:] if capacity and durable and self.durable else []
        if promise is not None and self.promise is not None:
            promise = Promise(*promise[:2], *self.promise[2:])
        return type(self)(capacity, max_age, self.head, live, durable=durable, promise=promise)

    def copy(self) -> Self:
        return type(self)(
            self.capacity, self.max_age, self.head, self.live, durable=self.durable, promise=self.promise
        )
