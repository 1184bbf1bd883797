"""What a call of the group ledger costs, by how many groups wait: ``python -m bench ledger``.

Ledgers of all sizes are there at once and are measured in turn, a block of calls of each kind in each round, so that
what disturbs the machine disturbs all. CPU time, and the mean: what comes rarely is part of the price. Garbage is
collected while the ledgers are filled, and not again: reference counting alone frees what the calls leave behind.
"""

import gc
import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from bench.errors import BenchError
from bench.table import machine
from ringfence_client.ledger import GroupLedger

SIZES: Final = (1_000, 100_000, 1_000_000)
BLOCK: Final = 100
"""Calls timed together: reading the clock vanishes in them, and they change the smallest size by a tenth."""
MESSAGES_A_GROUP: Final = 2
PREFETCH: Final = 2
GROUPS_REPEATS: Final = 3
_CONSUMER: Final = "consumer"

Say = Callable[[str], None]


class Rig:
    """A ledger in which so many groups wait, before and after each round."""

    def __init__(self, groups: int, seed: int) -> None:
        """Fill it, in an order of ages that is not that of arrival."""
        self.groups = groups
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._source = random.Random(seed)
        self._ledger: GroupLedger[int] = GroupLedger(PREFETCH)
        self._depth: Counter[bytes] = Counter()
        """Messages of each group that is there."""
        self._names: list[bytes] = []
        """All these groups, and some that are gone."""
        self._group_of: dict[int, bytes] = {}
        self._position = self._number = 0
        messages = [self._message(name) for name in self._new_names(groups) for _ in range(MESSAGES_A_GROUP)]
        self._source.shuffle(messages)
        before = _resident_bytes()
        self._timed("append, filling up", self._ledger.append, messages)
        self.bytes_a_message = (_resident_bytes() - before) / len(messages)

    def us(self, kind: str) -> float:
        """CPU microseconds a call."""
        return self.cpu_s[kind] / self.calls[kind] * 1e6

    def round(self) -> None:
        """A block of each kind of call; then as many groups wait as before.

        Raises:
            BenchError: the ledger has more or fewer messages than were put into it and not taken out.
        """
        ledger = self._ledger
        new = [self._message(name) for name in self._new_names(BLOCK)]
        self._timed("append, new group", ledger.append, new)
        more = [self._message(name) for name in self._some_names()]
        self._timed("append, waiting group", ledger.append, more)
        # From the last on: an earlier one would take the later ones of its group back with it.
        self._timed("release", ledger.release, self._acquired()[::-1])
        for kind, finish in (("acknowledge", ledger.acknowledge), ("reject", ledger.reject)):
            held = self._acquired()
            self._timed(kind, finish, held)
            self._gone(position for _, position in held)
        consumers = [(f"consumer {number}",) for number in range(BLOCK)]
        for each in consumers:
            ledger.acquire(*each)
        self._timed("close, of one message", ledger.close, consumers)
        dropped = self._timed("purge", ledger.purge, [(name,) for name in self._some_names()])
        self._gone(position for each in dropped for position in each)
        for name in self._new_names(self.groups - len(self._depth)):
            for message in [self._message(name) for _ in range(MESSAGES_A_GROUP)]:
                ledger.append(*message)
        if len(ledger) != self._depth.total():
            raise BenchError(f"{len(ledger)} messages are in the ledger, not {self._depth.total()}")

    def end(self) -> None:
        """Ask for all groups, then take and acknowledge all there is; counted by group and by message.

        Raises:
            BenchError: other groups than should.
        """
        ledger = self._ledger
        for _ in range(GROUPS_REPEATS):
            began = time.process_time()
            rows = ledger.groups()
            self._spent("groups(), by group", began, len(rows))
            if {each.group: each.depth for each in rows} != self._depth:
                raise BenchError(f"{len(rows)} groups wait, not {len(self._depth)}, or of other depth")
            del rows
        messages, began = len(ledger), time.process_time()
        while (position := ledger.acquire(_CONSUMER)) is not None:
            ledger.acknowledge(_CONSUMER, position)
        self._spent("draining, by message", began, messages)

    def _acquired(self) -> list[tuple[str, int]]:
        return [
            (_CONSUMER, each) for each in self._timed("acquire", self._ledger.acquire, [(_CONSUMER,)] * BLOCK)
        ]

    def _timed(self, kind: str, call: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        began = time.process_time()
        results = [call(*each) for each in arguments]
        self._spent(kind, began, len(arguments))
        return results

    def _spent(self, kind: str, began_s: float, calls: int) -> None:
        self.cpu_s[kind] += time.process_time() - began_s
        self.calls[kind] += calls

    def _message(self, name: bytes) -> tuple[int, bytes, int]:
        """One more of this group: the arguments of append."""
        self._position += 1
        self._depth[name] += 1
        self._group_of[self._position] = name
        return self._position, name, 0

    def _new_names(self, count: int) -> list[bytes]:
        names = [b"group-%d" % number for number in range(self._number, self._number + count)]
        self._number += count
        self._names += names
        return names

    def _some_names(self) -> list[bytes]:
        """As many groups as calls, at random, each once."""
        chosen: set[bytes] = set()
        while len(chosen) < BLOCK:
            index = self._source.randrange(len(self._names))
            if self._names[index] in self._depth:
                chosen.add(self._names[index])
            else:
                self._names[index] = self._names[-1]
                self._names.pop()
        return sorted(chosen)

    def _gone(self, positions: Iterable[int]) -> None:
        for position in positions:
            name = self._group_of.pop(position)
            self._depth[name] -= 1
            if not self._depth[name]:
                del self._depth[name]


def run(sizes: Sequence[int], rounds: int, seed: int, say: Say) -> list[Rig]:
    """Measure ledgers of these sizes side by side.

    Raises:
        BenchError: one does not hold what it should.
    """
    rigs = []
    for size in sizes:
        rigs.append(Rig(size, seed))
        say(f"{size:,} groups wait, {rigs[-1].bytes_a_message:,.0f} bytes a message")
    began = time.process_time()
    gc.collect()
    say(f"a full garbage collection of all these takes {time.process_time() - began:.2f} CPU s")
    # A collection looks at all ledgers at once, and would be charged to whichever call sets it off.
    gc.disable()
    try:
        for number in range(rounds):
            # To and fro, so that none always follows the largest, which leaves the caches cold.
            for rig in rigs if number % 2 else reversed(rigs):
                rig.round()
        for rig in rigs:
            rig.end()
    finally:
        gc.enable()
    return rigs


def show(rigs: Sequence[Rig], console: Console) -> None:
    """Print a row a kind of call: microseconds, and how many times those of the smallest size."""
    least, *others = rigs
    table = Table(
        "CPU µs a call",
        *(f"{each.groups:,} groups" for each in rigs),
        *(f"x {each.groups:,}" for each in others),
    )
    for kind in least.calls:
        table.add_row(
            kind, *(f"{each.us(kind):.2f}" for each in rigs), *(f"{each.us(kind) / least.us(kind):.2f}" for each in others)
        )  # fmt: skip
    console.print(table)
    console.print(f"Load average at the end: {', '.join(f'{each:.1f}' for each in os.getloadavg())}.")


def document(rigs: Sequence[Rig]) -> dict[str, Any]:
    """Everything measured, and where."""
    return {
        **machine(),
        "load_average": os.getloadavg(),
        "ledgers": [
            {
                "groups": each.groups,
                "bytes_a_message": each.bytes_a_message,
                "calls": dict(each.calls),
                "cpu_us_a_call": {kind: each.us(kind) for kind in each.calls},
            }
            for each in rigs
        ],
    }


def save(rigs: Sequence[Rig], path: Path) -> None:
    """Write the document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(rigs), indent=2) + "\n", "utf-8")


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)
