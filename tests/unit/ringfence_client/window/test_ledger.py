"""Refusals and costs of the ledger. ``tests/property/test_ledger_model.py`` compares all its answers with a model."""

import gc
import random
import time
import tracemalloc

from ringfence_client.window.ledger import GroupLedger


def test_one_owner_and_one_order() -> None:
    """A group has one owner, who puts back a message with all later ones, and does not get a removed one again."""
    ledger = GroupLedger(prefetch=2)
    for position in range(4):
        ledger.append(position, b"A", 0)

    assert (ledger.acquire("first"), ledger.acquire("second")) == (0, None)
    assert (ledger.acquire("first"), ledger.acquire("first")) == (1, None)
    assert ledger.release("first", 0) == [0, 1]
    assert [ledger.acquire("second") for _ in range(2)] == [0, 1]
    ledger.acknowledge("second", 0)
    assert ledger.holds("second") == [1]
    assert (ledger.acquire("second"), ledger.acquire("first")) == (2, None)


def _call_s(groups: int) -> float:
    """Return CPU seconds a call, while two messages of each group come in any order, go from hand to hand, and end."""
    ledger = GroupLedger(prefetch=2)
    positions = list(range(2 * groups))
    random.Random(groups).shuffle(positions)
    began = time.process_time()
    for number, position in enumerate(positions):
        ledger.append(position, b"%d" % (number % groups), 0)
    assert [ledger.acquire("first") for _ in positions] == sorted(positions)
    assert [ledger.acquire("nobody") for _ in range(groups)] == [None] * groups
    later = [max(pair) for pair in zip(positions[:groups], positions[groups:], strict=True)]
    assert [ledger.release("first", position) for position in later] == [[position] for position in later]
    assert [ledger.acquire("first") for _ in later] == sorted(later)
    assert ledger.close("first") == sorted(positions)
    for number in range(0, groups, 2):
        ledger.purge(b"%d" % number)
    while (found := ledger.acquire("second")) is not None:
        ledger.acknowledge("second", found)
    assert len(ledger) == 0
    return (time.process_time() - began) / (10 * groups)


def test_many_groups() -> None:
    """A call costs about the same with 20,000 groups as with 200; a scan would cost a hundred times more."""
    assert min(_call_s(20_000) for _ in range(2)) < 30 * min(_call_s(200) for _ in range(5))


def _churn(ledger: GroupLedger) -> None:
    """Let groups and consumers pass through, put one message back again and again, and purge others."""
    for number in range(10, 20_000, 10):
        for position in range(number, number + 10):
            ledger.append(position, None if position % 10 == 1 else b"%d" % (position // 3), 0)
        for _ in range(8):
            ledger.acquire(str(number))
        ledger.acknowledge(str(number), number)
        ledger.acknowledge(str(number), number + 1)
        ledger.close(str(number))
        for group in {position // 3 for position in range(number, number + 10)}:
            ledger.purge(b"%d" % group)
    for _ in range(10_000):
        assert ledger.acquire("first") == 1
        ledger.release("first", 1)
    for number in range(10, 20_000):
        ledger.append(number, b"%d" % number, 0)
        ledger.purge(b"%d" % number)


def test_nothing_is_kept() -> None:
    ledger = GroupLedger(prefetch=2)
    for position, group in enumerate([b"A", b"B", b"A", b"B"]):
        ledger.append(position, group, 0)
    ledger.acquire("holds the first")
    tracemalloc.start()
    try:
        _churn(ledger)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        _churn(ledger)
        gc.collect()

        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()
    assert len(ledger) == 4
