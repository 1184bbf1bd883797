"""The example whose store refuses late effects: what it counts as the same message."""

import sqlite3
from pathlib import Path

import pytest

from examples import fenced
from ringfence_client import Message, PartNumber
from ringfence_client.handlers.message import Fence


def test_parts_of_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts share their source, and each has its effect once; a repeated part has none."""
    database = tmp_path / "fenced.db"
    monkeypatch.setenv("FENCED_DATABASE", str(database))
    monkeypatch.setattr(fenced, "_connections", type("Connections", (), {})())
    messages = [
        Message("payments", b"g", b"g", b"%d" % number, [], None, 0, "transfers/0/5", "payments.accepted", 0, number, 1, Fence(3), part)
        for number, part in enumerate([PartNumber(1, 2), PartNumber(2, 2), None])
    ]  # fmt: skip

    for message in [*messages, *messages]:
        fenced.handle(message)
    with sqlite3.connect(database) as store:
        found = list(store.execute("SELECT part, value FROM entry ORDER BY value"))

    assert found == [("1/2", b"0"), ("2/2", b"1"), ("", b"2")]
