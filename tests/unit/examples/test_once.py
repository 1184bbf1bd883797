"""The example whose effect happens once: for each message, and under two holders at the same moment."""

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples import once
from ringfence_client import PartNumber
from ringfence_client.handlers.message import Fence, Message

WAIT_S = 30.0


def _message() -> Message:
    return Message(
        "orders", b"account", b"account", b"", [], None, 0, "orders/0/7", "orders.accepted", 0, 7, 1, Fence(1)
    )


def test_late_holder_looks_after_the_other_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two holders have the same message, and the second begins when the first has just looked: it is counted once."""
    monkeypatch.setenv("ONCE_DATABASE", str(tmp_path / "once.db"))
    connections: Any = SimpleNamespace()
    monkeypatch.setattr(once, "_connections", connections)
    store = once._store()
    other = sqlite3.connect(tmp_path / "once.db", timeout=WAIT_S, check_same_thread=False)
    waits = sqlite3.connect(tmp_path / "once.db", timeout=0)
    looked: list[bool] = []

    def late() -> None:
        connections.store = other
        once.handle(_message())

    second = threading.Thread(target=late)

    def begin_second(statement: str) -> None:
        if statement.startswith("INSERT INTO balance") and not looked:
            looked.append(True)
            second.start()
            try:
                waits.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return  # whoever looks now waits for this one
            waits.rollback()
            second.join(WAIT_S)

    store.set_trace_callback(begin_second)
    once.handle(_message())
    store.set_trace_callback(None)
    second.join(WAIT_S)

    assert looked
    assert not second.is_alive()
    assert store.execute("SELECT messages FROM balance").fetchall() == [(1,)]
    for connection in (store, other, waits):
        connection.close()


def test_each_message_has_its_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages without a group come from all partitions, parts share their source, and a dead letter is redriven."""
    monkeypatch.setenv("ONCE_DATABASE", str(tmp_path / "once.db"))
    monkeypatch.setattr(once, "_connections", SimpleNamespace())
    ungrouped = [
        replace(_message(), group=None, source=f"orders/{n % 2}/{n}", offset=9 - n) for n in range(9)
    ]
    parts = [replace(_message(), part=PartNumber(n, 2), redriven=m) for n in (1, 2) for m in (0, 1)]

    for message in [*ungrouped, *parts] * 2:
        once.handle(message)
    balances = once._store().execute("SELECT * FROM balance").fetchall()
    once._store().close()

    assert sorted(balances) == [(b"", 9), (b"account", 4)]
