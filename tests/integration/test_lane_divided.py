"""Lanes whose transactions fail for what is in them: fewer records go at once until that goes well."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ringfence_kafka.errors import TopicError
from ringfence_kafka.producer.transactional import Outgoing, TransactionalProducer
from tests.support.lanes import Bench, bench, ids, until

COUNT = 200
AT_ONCE = 30
"""More would take longer than a transaction may."""
POISON = 77

transact = TransactionalProducer.transact


def _failing(monkeypatch: pytest.MonkeyPatch, check: Callable[[Sequence[Outgoing], int], None]) -> list[int]:
    """``check`` is given each transaction's batches, and up to where of the input it goes; returns that of those that pass."""
    passed: list[int] = []

    async def checked(
        self: TransactionalProducer, batches: Sequence[Outgoing], offsets: Mapping[Any, int], *rest: Any
    ) -> list[int]:
        (end,) = offsets.values()
        check(batches, end)
        passed.append(end)
        return await transact(self, batches, offsets, *rest)

    monkeypatch.setattr(TransactionalProducer, "transact", checked)
    return passed


def _exact(lanes: Bench, end: int) -> bool:
    return lanes.accepted_ids() == [b"%d" % index for index in range(end)]


async def test_too_much_for_its_time(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is slow, or allows this user little: all goes through, in parts."""

    def too_many(batches: Sequence[Outgoing], end: int) -> None:
        if (
            sum(batch.builder.record_count() for batch in batches if batch.topic.endswith(".accepted"))
            > AT_ONCE
        ):
            raise TimeoutError("planted")

    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, COUNT))
        lane = await lanes.opened()
        passed = _failing(monkeypatch, too_many)
        await lanes.feed(lane, 0, COUNT)

        assert _exact(lanes, COUNT)
        assert len(passed) >= COUNT / AT_ONCE
        assert lanes.committed() == COUNT


async def test_what_stands_before_it_flows(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of one record that no attempt gets through the lane says where it stands; only what is behind it waits."""
    caplog.set_level("INFO", "ringfence.lane")

    def poisoned(batches: Sequence[Outgoing], end: int) -> None:
        if end > POISON:
            raise TopicError("planted")

    async with bench(bootstrap, tmp_path) as lanes:
        lanes.send(*ids(0, COUNT))
        lane = await lanes.opened()
        with monkeypatch.context() as patch:
            _failing(patch, poisoned)
            await lane.offer(await lanes.fetch(0, COUNT))
            await until(lambda: lane.next == POISON, lambda: f"next is {lane.next}")
            await until(
                lambda: f"{lanes.name}/0 from offset {POISON} on: at most 1 at a time" in caplog.text,
                lambda: caplog.text,
            )
            assert _exact(lanes, POISON)
        await until(lambda: lane.next == COUNT, lambda: f"next is {lane.next}, {lane.state}: {lane.reason}")

        assert _exact(lanes, COUNT)
