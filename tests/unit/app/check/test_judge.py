"""The check, on hand-written histories: it must see each kind of fault, and none where there is none."""

import json
from itertools import count

import pytest

from app.check import judge as comparison
from app.check.judge import Judgement, straddling
from app.check.records import ID_HEADER as ID
from app.check.records import PART_HEADER, SOURCE_HEADER, TRANSACTION_HEADER, CannotJudgeError, Record


def judge(address: str, inputs: list[Record], outputs: list[Record]) -> Judgement:
    [found] = comparison.judge({address: inputs}, {address: outputs})
    return found


def _input(offset: int, duplicate_id: str | None, group: str | None = "g", partition: int = 0) -> Record:
    headers = (("trace", b"t"),) if duplicate_id is None else ((ID, duplicate_id.encode()), ("trace", b"t"))
    key = None if group is None else group.encode()
    return Record(partition, offset, key, b"v%d" % offset, headers, 1_000 + offset)


def _outputs(*accepted: Record, partition: int = 0) -> list[Record]:
    """Return the records that a correct worker writes for these inputs, with gaps for transaction markers."""
    offsets = count(0, 2)
    return [
        item._replace(partition=partition, offset=next(offsets), headers=(*item.headers, _source(item)))
        for item in accepted
    ]


def _source(record: Record) -> tuple[str, bytes | None]:
    return (SOURCE_HEADER, f"orders/{record.partition}/{record.offset}".encode())


FIRST, SECOND, THIRD = _input(0, "1"), _input(1, "2"), _input(2, "3")
RESEND = _input(3, "1")
INPUTS = [FIRST, SECOND, THIRD, RESEND]


def _faults(found: Judgement) -> tuple[int, int, int, int]:
    return len(found.lost), len(found.doubled), len(found.out_of_order), len(found.changed)


def test_one_fault() -> None:
    for outputs, faults, said in (
        (_outputs(FIRST, THIRD), (1, 0, 0, 0), "orders/0/1 (group g, ID 2): not accepted"),
        (_outputs(FIRST, SECOND, FIRST, THIRD), (0, 1, 0, 0), "orders/0/0 (group g, ID 1): accepted 2 times"),
        (_outputs(FIRST, SECOND, THIRD, RESEND), (0, 1, 0, 0), "orders/0/3 (group g, ID 1): accepted 2 times"),
        (_outputs(FIRST, THIRD, SECOND), (0, 0, 1, 0), "orders/0/1 (group g, ID 2): accepted after offset 2 of its group"),
        (_outputs(SECOND, THIRD, RESEND), (0, 0, 1, 0), "orders/0/3 (group g, ID 1): accepted in place of its original"),
        (_outputs(FIRST, SECOND) + _outputs(THIRD, partition=1), (0, 0, 1, 0), "orders/0/2 (group g, ID 3): its group is in the accepted partitions 0 and 1"),
    ):  # fmt: skip
        found = judge("orders", INPUTS, outputs)

        assert _faults(found) == faults
        assert [*found.lost, *found.doubled, *found.out_of_order] == [said]
        assert not found.exact


def test_exact_runs() -> None:
    """An exact run accepts each distinct message once, in order and unchanged, and drops the resend."""
    found = judge("orders", INPUTS, _outputs(FIRST, SECOND, THIRD))
    assert found.exact
    assert (found.sent, found.distinct, found.accepted) == (4, 3, 3)
    # Resends count as straddling if they follow the kill and their original was consumed before it.
    assert [straddling("orders", INPUTS, killed) for killed in ({0: 2}, {0: 4}, {})] == [1, 0, 0]

    other, alone, alone_too = _input(1, "2", "h"), _input(2, None, None), _input(3, None, None)
    inputs = [FIRST, other, alone, alone_too]
    assert judge("orders", inputs, _outputs(alone_too, alone, other, FIRST)).exact

    # Messages without an ID are distinct, however alike; a null ID is none; the last of several IDs counts.
    alike = [_input(0, None)._replace(value=b"v"), _input(1, None)._replace(value=b"v")]
    null = _input(2, None)._replace(headers=((ID, None),))
    two = _input(3, None)._replace(headers=((ID, b"x"), (ID, b"y")))
    inputs = [*alike, null, two, _input(4, "y")]
    assert judge("orders", inputs, _outputs(*alike, null, two)).exact
    lost = judge("orders", inputs, _outputs(*alike, two)).lost
    assert lost == ["orders/0/2 (group g, ID none): not accepted"]


def test_changed() -> None:
    first, second, third = _outputs(FIRST, SECOND, THIRD)
    trace, source = ("trace", b"t"), _source(SECOND)
    for name, spoilt in (
        ("key", second._replace(key=b"h")),
        ("value", second._replace(value=None)),
        ("timestamp", second._replace(timestamp=999)),
        ("headers", second._replace(headers=(trace, (ID, b"2"), source))),
        ("headers", second._replace(headers=((ID, b"2"), trace, ("more", b""), source))),
    ):
        found = judge("orders", INPUTS, [first, spoilt, third])

        assert _faults(found) == (0, 0, 0, 1)
        assert name in found.changed[0]


def test_phantom() -> None:
    """An output that names no input, a wrong one or two does not count as an acceptance."""
    first, second, third = _outputs(FIRST, SECOND, THIRD)
    wrong = (b"orders/0/99", b"payments/0/1", b"orders/0", b"orders/0/x", b"\xff", None)
    cases: list[list[bytes | None]] = [[], *([source] for source in wrong), [b"orders/0/1"] * 2]
    for sources in cases:
        named = [(SOURCE_HEADER, source) for source in sources]
        outputs = [first, second._replace(headers=(*SECOND.headers, *named)), third]

        assert _faults(judge("orders", INPUTS, outputs)) == (1, 0, 0, 1), sources


def _transaction(offset: int, *parts: dict[str, object], tx_id: str | None = None) -> Record:
    headers = ((TRANSACTION_HEADER, b"json/1"), *(() if tx_id is None else ((ID, tx_id.encode()),)))
    return Record(0, offset, b"g", json.dumps({"parts": list(parts)}).encode(), headers, 1_000 + offset)


DEBIT: dict[str, object] = {"address": "payments", "key": "a", "value": "-5"}
CREDIT: dict[str, object] = {"address": "payments", "key": "b", "value_base64": "AAE="}
NOTE: dict[str, object] = {
    "key": "a",
    "headers": [{"name": ID, "value": "n"}, {"name": "h", "value_base64": "/w=="}],
}
MOVED, AGAIN = (_transaction(offset, DEBIT, CREDIT, NOTE, tx_id="t") for offset in (0, 1))


def _part(record: Record, number: int, offset: int) -> Record:
    """Return the record that a correct worker writes for a part."""
    part = json.loads(record.value or b"")["parts"][number - 1]
    value = {"-5": b"-5"}.get(part.get("value"), b"\x00\x01" if "value_base64" in part else None)
    written = ((ID, b"n"), ("h", b"\xff")) if "headers" in part else ()
    source = (SOURCE_HEADER, f"transfers/{record.partition}/{record.offset}".encode())
    headers = (*written, source, (PART_HEADER, b"%d/3" % number))
    return Record(0, offset, part["key"].encode(), value, headers, record.timestamp)


def _judge_transfers(payments: list[Record], own: list[Record], *inputs: Record) -> Judgement:
    records = {"transfers": list(inputs or (MOVED, AGAIN)), "payments": []}
    transfers, others = comparison.judge(records, {"transfers": own, "payments": payments})
    assert others == Judgement("payments")
    return transfers


WHOLE = [_part(MOVED, 1, 0), _part(MOVED, 2, 1)], [_part(MOVED, 3, 0)]
"""Records of both topics."""


def test_a_whole_transaction() -> None:
    """A whole transaction is accepted with all parts once, in the topics that they name. Its resend is dropped whole."""
    found = _judge_transfers(*WHOLE)
    assert found.exact, found
    assert (found.sent, found.distinct, found.accepted, found.parts) == (2, 1, 1, 3)

    other = _judge_transfers(*WHOLE, MOVED, _transaction(1, {"key": "z"}, NOTE))
    assert other.exact, other
    own_of_payments = _transaction(1, {**NOTE, "address": "payments"})
    assert len(_judge_transfers(*WHOLE, MOVED, own_of_payments).lost) == 1


def test_parts() -> None:
    """A transaction of which some parts were accepted is torn, and not lost as well.

    A part accepted twice is doubled, whether by the same transaction or by its resend. It is changed if it is in
    another address's topic, or if its number is missing or wrong.
    """
    (debit, credit), (note,) = WHOLE
    for missing, payments, own in ((1, [credit], [note]), (2, [debit], [note]), (3, [debit, credit], [])):
        found = _judge_transfers(payments, own)

        assert found.torn == [f"transfers/0/0 (group a, ID t, n): accepted without part {missing}/3"]
        assert _faults(found) == (0, 0, 0, 0)
        assert not found.exact
    payments, own = WHOLE
    for offset, transaction in enumerate((MOVED, AGAIN)):
        found = _judge_transfers([*payments, _part(transaction, 2, 9)], own)
        assert found.doubled == [f"transfers/0/{offset} (group a, ID t, n) part 2/3: accepted 2 times"]
    assert "address not as in the input" in _judge_transfers(payments[:1], [payments[1], *own]).changed[0]
    spoilt = own[0]._replace(headers=(*own[0].headers[:-1], (PART_HEADER, b"4/3")))
    found = _judge_transfers(payments, [spoilt])
    assert (len(found.changed), len(found.torn)) == (1, 1)
    assert "names no input record in _RF_SOURCE and _RF_TX_PART" in found.changed[0]


def test_what_cannot_be_judged() -> None:
    """A malformed transaction cannot be judged, nor a header that no bridge wrote: the demo's producers write none."""
    for value in (None, b"", b"[]", b"{}", b'{"parts": []}', b'{"parts": [1]}', b'{"parts": 1}'):
        with pytest.raises(CannotJudgeError, match="transfers/0/0 is no transaction"):
            _judge_transfers([], [], MOVED._replace(value=value))
    with pytest.raises(CannotJudgeError, match="orders/0/0 came over no bridge"):
        judge("orders", [FIRST._replace(headers=(("_RF_BRIDGE_DUPL_ID", b"x"),))], [])


def _bridged(record: Record, hop: int, confirmed: int = 0, **more: bytes | None) -> Record:
    told = {
        "_RF_BRIDGE_DUPL_ID": b"to-paris/topic/0/%d" % hop,
        "_RF_BRIDGE_CONFIRMED": b"%d" % confirmed,
        **more,
    }
    return record._replace(headers=(*record.headers, *told.items()))


def _arrived(record: Record) -> Record:
    return record._replace(headers=tuple(header for header in record.headers if "BRIDGE" not in header[0]))


def test_sent_again_over_a_bridge() -> None:
    """A message sent again over a bridge, or below a confirmed offset, is a duplicate whatever its IDs.

    Headers of bridges end here, except the passed members of a message that came over a bridge.
    """
    over = _bridged(FIRST, 0, _RF_HOPS=b"berlin")
    forged = SECOND._replace(headers=(*SECOND.headers, ("_RF_HOPS", b"paris")))
    assert judge("orders", [over, forged], _outputs(_arrived(over), SECOND)).exact
    for record, output in ((over, over), (over, FIRST), (forged, forged)):
        assert _faults(judge("orders", [record], _outputs(output))) == (0, 0, 0, 1)

    first, again = _bridged(FIRST, 0), _bridged(RESEND._replace(headers=FIRST.headers), 0)
    other, below = _bridged(_input(4, None), 9, 5), _bridged(_input(5, "6"), 3)
    outputs = _outputs(*map(_arrived, (first, SECOND, other)))
    exact = judge("orders", [first, SECOND, again, other, below], outputs)

    assert exact.exact
    assert (exact.sent, exact.distinct, exact.accepted, exact.resent) == (5, 3, 3, 2)
    for repeated in (again, below):
        inputs = [first, other, repeated]
        assert _faults(judge("orders", inputs, _outputs(*map(_arrived, inputs)))) == (0, 1, 0, 0)
    assert _faults(judge("orders", [first, again], [])) == (1, 0, 0, 0)
