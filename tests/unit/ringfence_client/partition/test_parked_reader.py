"""Parked records that are read again from a log that has lost some."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringfence_client.partition.parked_reader import GONE, ParkedReader
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import Lease
from ringfence_client.progress.progress_record import Progress
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import Window
from tests.support.consumers.windows import of


@pytest.mark.parametrize("redriven", [False, True])
async def test_a_record_that_is_gone_is_counted(monkeypatch: pytest.MonkeyPatch, redriven: bool) -> None:
    """A message that handlers never get is counted, parked or redriven."""
    counts: Counter[str] = Counter()
    unused: Any = None
    reader = ParkedReader(unused, counts)
    window = Window(Progress(5, again=(1,)), memory=MemoryBudget(2**20), records_max=2)
    window.feed(of(b"a", *range(5, 10)))
    writer = SimpleNamespace(count_changes=lambda: None)
    lease = Lease("billing", "orders.accepted", 0, "me")
    held = HeldPartition(lease, window, cast(Any, writer), reader.read_parked, unused)

    async def none(*_: object) -> None:
        return None

    async def same(_: object) -> bool:
        return True

    monkeypatch.setattr(reader, "_stretch", none)
    monkeypatch.setattr(reader, "_same", same)
    if redriven:
        await reader._read_redriven(held, lambda: None)
    else:
        assert await held.load(9) is GONE

    assert counts["gap_records"] == 1
