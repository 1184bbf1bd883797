import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from app.commands.groups import changes, lease_holders, show
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.progress_record import Progress
from ringfence_client.web import offline_drop
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import End, Window
from ringfence_kafka.config.load import validate
from tests.support.cluster_double import ClusterDouble
from tests.support.consumers.windows import of
from tests.support.terminal import Keyboard

GROUP = b"g"
SETTINGS = validate({"addresses": [{"name": "orders"}]})


class _Topic(ClusterDouble):
    """The accepted topic and its holder, if there is one: messages of a group that are not finished, and what was dropped of them."""

    group_id = "billing"
    await_coordinator = AsyncMock()
    state = AsyncMock(return_value="Empty")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, held: bool) -> None:
        self.unfinished = [5, 7]
        self.topic_id = "first"
        self.told: list[dict[str, Any]] = []
        self.below: list[int] = []
        state, web = ("held", "http://c1:80") if held else ("released", "")
        holder = Progress(0, holder="c1/1", web=web, state=state)
        self._patch = monkeypatch
        monkeypatch.setattr(sys, "stdin", Keyboard(""))
        monkeypatch.setattr(changes, "Cluster", lambda *_: self)
        monkeypatch.setattr(show, "progresses", AsyncMock(return_value=[holder]))
        monkeypatch.setattr(show, "read_position", self._standing)
        monkeypatch.setattr(show, "unfinished", self._unfinished)
        monkeypatch.setattr(lease_holders, "send_order", self._ask)
        monkeypatch.setattr(offline_drop, "drop_below", self._drop_below)

    def dropped(self, happens: Callable[[], object], *, skip: bool) -> tuple[int, str]:
        """Return the exit code and the question. Somebody says yes, and while the question was read something happened."""
        asked: list[str] = []

        def confirmed(question: str, **_: object) -> None:
            asked.append(question)
            happens()

        self._patch.setattr(changes, "confirmed", confirmed)
        return changes.drop(SETTINGS, "orders", "billing", "g", skip=skip, yes=False, letters=False), asked[0]

    async def _standing(self, *_: object) -> show.PartitionPosition:
        return show.PartitionPosition(Progress(0), self.topic_id, 0, self.unfinished[-1] + 1)

    async def _unfinished(self, *arguments: Any) -> dict[str | None, show.GroupRow]:
        there = [offset for offset in self.unfinished if offset < arguments[3].end]
        row = show.GroupRow(0, "g", GROUP.hex(), len(there), 0, None, there[0], 1.0) if there else None
        return {GROUP.hex(): row} if row else {}

    async def _ask(self, _app: object, _web: str, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.told.append(body)
        return {"dropped": 1, "acquired": 0, "offsets": []}

    async def _drop_below(self, *arguments: Any) -> None:
        self.below.append(arguments[5])


@pytest.mark.parametrize("held", [False, True])
def test_purge_what_was_asked_about(monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    """A purge drops and counts only the messages that the question named by offset, and none that came since."""
    topic = _Topic(monkeypatch, held=held)

    code, asked = topic.dropped(lambda: topic.unfinished.extend([8, 9]), skip=False)

    assert code == 0
    assert "drop for good 2 messages" in asked
    assert "of orders.accepted/0 from offset 5 to 7?" in asked
    assert [item["below"] for item in topic.told] == ([8] if held else [])
    assert topic.below == ([] if held else [8])


@pytest.mark.parametrize("held", [False, True])
def test_skip_what_was_asked_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], held: bool
) -> None:
    """A skip drops only the message that the question named; if somebody was quicker, the next message stays."""
    topic = _Topic(monkeypatch, held=held)

    code, asked = topic.dropped(lambda: topic.unfinished.pop(0), skip=True)

    assert code == 1
    assert "the first message, orders.accepted/0/5?" in asked
    assert (topic.told, topic.below) == ([], [])
    said = capsys.readouterr().out
    assert "gone     orders.accepted/0/5" in said
    assert "nothing to drop" not in said


def test_another_topic_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of a deleted topic do not apply to the one created in its place."""
    topic = _Topic(monkeypatch, held=False)

    code, _ = topic.dropped(lambda: setattr(topic, "topic_id", "second"), skip=False)

    assert (code, topic.below) == (1, [])


@pytest.mark.parametrize("owned", [False, True])
def test_purged_up_to_an_offset(owned: bool) -> None:
    """A purge up to an offset drops fetched messages too."""
    window = Window(Progress(0), memory=MemoryBudget(2**20))
    window.feed(of(GROUP, 0, 1, 2, 3, 4))
    lease: Any = SimpleNamespace(token=1, topic="t", partition=0, topic_id="i")
    nobody: Any = None
    held = HeldPartition(lease, window, nobody, nobody, nobody)
    if owned:
        assert window.ledger.acquire("handler") == 0

    assert held.purge(GROUP, 3) == (2 if owned else 3)
    assert window.offsets_of(GROUP) == ([0, 3, 4] if owned else [3, 4])
    if owned:
        window.finish(0, End.ACK, "handler")
    assert [window.next, window.ledger.acquire("handler")] == [3, 3]
    assert held.purge(GROUP, 9) == 1
    window.feed(of(GROUP, 7, 8, 9))  # behind the message that the handler has
    assert window.offsets_of(GROUP) == [3, 9]
