"""The bench of the ledger measures what it says it does."""

import pytest

from bench import ledger
from bench.errors import BenchError
from ringfence_client.ledger import GroupLedger

SIZES = (300, 600)
KINDS = {
    "acknowledge",
    "acquire",
    "append, filling up",
    "append, new group",
    "append, waiting group",
    "close, of one message",
    "draining, by message",
    "groups(), by group",
    "purge",
    "reject",
    "release",
}


def test_every_call_at_every_size() -> None:
    """Each kind of call is measured equally often at each size, in groups that are as many after a round as before."""
    small, large = ledger.run(SIZES, rounds=3, seed=1, say=lambda _: None)

    assert set(small.calls) == set(large.calls) == KINDS
    assert small.calls["purge"] == large.calls["purge"] == 3 * ledger.BLOCK
    assert small.calls["acquire"] == large.calls["acquire"] == 9 * ledger.BLOCK
    assert [each.calls["groups(), by group"] for each in (small, large)] == [
        size * ledger.GROUPS_REPEATS for size in SIZES
    ]
    assert all(each.us(kind) > 0 for each in (small, large) for kind in KINDS)
    assert ledger.document([small, large])["ledgers"][1]["groups"] == 600


def test_a_ledger_that_loses_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of a ledger that is wrong are none."""
    monkeypatch.setattr(GroupLedger, "reject", lambda *_: None)

    with pytest.raises(BenchError, match="messages are in the ledger"):
        ledger.run([300], rounds=1, seed=1, say=lambda _: None)
