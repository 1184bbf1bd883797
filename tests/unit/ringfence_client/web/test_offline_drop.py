"""Dropping messages of a partition without a consumer, with a stand-in for the cluster."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence_client.handlers.retries import Failures
from ringfence_client.partition import topics
from ringfence_client.progress.progress_record import Progress
from ringfence_client.web import offline_drop
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import Window
from ringfence_kafka.config.load import validate
from ringfence_kafka.readers.log_reader import LogReader
from tests.support.consumers.windows import Fetched

LOG = [Fetched(index, (b"a", b"b", None)[index % 3]) for index in range(12)]


class _Partition:
    def __init__(self, progress: Progress) -> None:
        self.window = Window(progress, memory=MemoryBudget(2**20))
        self.written: Progress | None = None
        self.abandoned = False

    async def open(self, *_: object) -> tuple[Any, Window, Any]:
        return SimpleNamespace(topic_id="T", topic="orders.accepted"), self.window, self

    async def nothing(self, *_: object, **__: object) -> None:
        return None

    def start(self, _: object) -> None:
        pass

    async def persisted(self) -> None:
        self.written = self.window.progress()

    async def abandon(self) -> None:
        self.abandoned = True

    stop = nothing
    close = nothing


async def _read(_: object, __: str, ___: int, start: int, end: int, consume: Callable[[Any], Any]) -> int:
    await consume(LOG[start:end])
    return end


async def _drop(monkeypatch: pytest.MonkeyPatch, partition: _Partition, group: bytes, below: int) -> None:
    settings = validate({"addresses": [{"name": "orders"}]})
    monkeypatch.setattr(offline_drop, "LeaseAcquisition", lambda *_: partition)
    topic = SimpleNamespace(start=partition.nothing, stop=partition.nothing)
    monkeypatch.setattr(offline_drop, "ProgressTopic", lambda *_: topic)
    monkeypatch.setattr(topics, "prepare", partition.nothing)
    cluster: Any = SimpleNamespace(group_id="billing", kafka=settings.kafka)
    await offline_drop.drop_below(settings, settings.addresses[0], cluster, 0, group, below, "T", print)


async def test_what_is_named_is_finished_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop finishes only messages of the group below the bound: blocked, failing and redriven ones."""
    monkeypatch.setattr(LogReader, "read_range", _read)
    failing = {number: Failures(1, 0) for number in (5, 6, 7)}
    attempts = dict.fromkeys(failing, 1)
    partition = _Partition(Progress(3, blocked=(3, 4, 9), attempts=attempts, failures=failing, again=(0, 1)))
    await _drop(monkeypatch, partition, b"a", 9)

    assert partition.written is not None
    found = partition.written
    assert (found.next, found.finished, found.blocked, found.again) == (4, [(6, 7)], (4, 9), (1,))
    assert (set(found.attempts), set(found.failures)) == ({5, 7}, {5, 7})
    assert found.purged[b"a"][1] == 9


async def test_nothing_is_changed_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop changes nothing, and writes nothing, if the groups of the messages cannot be read."""

    async def fail(*_: object) -> int:
        raise OSError("gone")

    monkeypatch.setattr(LogReader, "read_range", fail)
    partition = _Partition(Progress(3, blocked=(3,)))
    with pytest.raises(OSError, match="gone"):
        await _drop(monkeypatch, partition, b"a", 9)

    assert (partition.written, partition.abandoned) == (None, True)
    assert partition.window.redrives.blocked == {3}
