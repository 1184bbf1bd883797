"""The handlers of the demo's chain, without a broker."""

import json

from app.demo.chain import billing, ledger
from ringfence_client.testing import HandlerBench, message


def test_billing_keeps_a_total_of_each_account() -> None:
    """An order without a value costs nothing; one without an account has no total but its own."""
    bench = HandlerBench(billing.handle, addresses=["billing"])
    orders = [('{"amount": 5}', "a"), ("7", "a"), ("2", "b"), (None, "a"), ("4", None)]
    bench.deliver(*(message(value, group=group) for value, group in orders))

    totals = sorted((record.key or b"", json.loads(record.value or b"")["total"]) for record in bench.sent)
    assert totals == [(b"", 4), (b"a", 5), (b"a", 12), (b"a", 12), (b"b", 2)]
    assert len({record.duplicate_id for record in bench.sent}) == 5
    assert bench.state("a") == b"12"


def test_ledger_numbers_the_entries_after_a_takeover_too() -> None:
    """A crash repeats no number and leaves none out."""
    bench = HandlerBench(ledger.handle, addresses=["ledger"])
    bench.deliver(message('{"order": "1"}', group="a"))
    bench.crash_before_commit(message('{"order": "2"}', group="a"))
    bench.take_over()
    bench.deliver(message('{"order": "3"}', group="a"), message('{"order": "4"}'))

    lines = [json.loads(record.value or b"") for record in bench.sent]
    assert [(line["order"], line["entry"]) for line in lines] == [("1", 1), ("2", 2), ("3", 3), ("4", None)]
