"""Records that wait for a transaction."""

from ringfence_client.sends.outbox import FULL_BYTES, HURRY_BYTES, Outbox, OutgoingRecord


def _record(value: bytes, size: int = 10) -> OutgoingRecord:
    return OutgoingRecord("ledger", 0, None, value, [], None, size, 1_000)


def test_what_failed_comes_first_the_next_time() -> None:
    """Records of a failed transaction come first in the next one, in order. The later state of a group counts."""
    outbox = Outbox()
    outbox.add_records([_record(b"1")])
    outbox.set_state(b"g", b"one")
    assert outbox.uncommitted() == ([_record(b"1")], {b"g": b"one"})
    outbox.add_records([_record(b"2")])
    outbox.set_state(b"g", None)

    assert outbox.uncommitted() == ([_record(b"1"), _record(b"2")], {b"g": None})
    assert outbox.commit() == {b"g": None}
    assert outbox.uncommitted() == ([], {})


def test_what_comes_during_a_transaction_is_not_committed_with_it() -> None:
    outbox = Outbox()
    outbox.add_records([_record(b"1")])
    outbox.uncommitted()
    outbox.add_records([_record(b"2")])
    outbox.commit()

    assert outbox.uncommitted()[0] == [_record(b"2")]


def test_it_knows_its_size() -> None:
    """The sizes go up and down with what is added and committed, whatever states replace one another."""
    outbox = Outbox()
    outbox.add_records([_record(b"1", HURRY_BYTES)])
    assert (outbox.hurried, outbox.full) == (True, False)
    outbox.uncommitted()
    outbox.add_records([_record(b"2", FULL_BYTES)])
    assert outbox.full
    outbox.commit()
    assert outbox.bytes == FULL_BYTES
    outbox.uncommitted()
    outbox.commit()
    for state in (b"12345", b"1", None, b"123"):
        outbox.set_state(b"g", state)
    known = outbox.bytes
    outbox.uncommitted()
    outbox.commit()

    assert known > 3
    assert outbox.bytes == 0
