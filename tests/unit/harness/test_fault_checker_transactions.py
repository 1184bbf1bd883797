"""The fault tests' checker on transactions: TORN, and each other anomaly where there are parts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from tests.harness.checker.check import Anomaly, check
from tests.harness.checker.order import apart
from tests.harness.history import History, Place, Record, Target, attributed
from tests.support.histories import A, B, C, accept, arrive, divert, found, home, only, quarantine, story

OTHERS = {
    "payments": Target("payments.accepted"),
    "notes": Target(
        "notes.accepted", lambda record: record.key, lambda record: record.header("region") or b"default"
    ),
}


def part(key: str | None = "g", address: str | None = None, known: str | None = None, **more: Any) -> Any:
    named = {} if address is None else {"address": address}
    headers = [] if known is None else [{"name": "_AMQ_DUPL_ID", "value": known}]
    return {"key": key, "value": "v", "headers": [*headers, *more.pop("headers", [])], **named, **more}


def envelope(offset: int, *parts: Any, known: Any = None, key: Any = b"k", partition: int = 0) -> Record:
    record = arrive(offset, known, key, partition, headers=(("_RF_TX", b"json/1"),))
    return record._replace(value=json.dumps({"parts": parts}).encode())


def emit(*records: Record, others: dict[str, Target] = OTHERS) -> list[Record]:
    """Return the records that a correct lane writes, parts of transactions too; one partition a topic."""
    ends: dict[str, Any] = {}
    written = []

    def put(record: Record, topic: str) -> None:
        offset = next(ends.setdefault(topic, count(0, 2)))
        written.append(record._replace(topic=topic, partition=0, offset=offset))

    for record in records:
        named = ("_RF_SOURCE", str(record.place).encode())
        if record.header("_RF_TX") is None:
            put(record._replace(headers=(*record.headers, named)), "orders.accepted")
            continue
        parts = json.loads(record.value or b"")["parts"]
        for number, part in enumerate(parts, 1):
            headers = [(header["name"], header["value"].encode()) for header in part["headers"]]
            key = None if part["key"] is None else part["key"].encode()
            message = record._replace(key=key, value=part["value"].encode(), headers=tuple(headers))
            address = part.get("address")
            target = Target("orders.accepted") if address is None else others[address]
            group = target.group_of(message)
            ours: list[tuple[str, bytes | None]] = [named, ("_RF_TX_PART", b"%d/%d" % (number, len(parts)))]
            ours += [] if group == key else [("_RF_KEY", key)]
            put(message._replace(key=group, headers=(*message.headers, *ours)), target.topic)
    return written


def run(inputs: Sequence[Record], accepted: Sequence[Record], **more: Any) -> History:
    return story([*inputs], [*accepted], others=OTHERS, **more)


PARTS = [part("g"), part("h", "payments"), part("n", "notes"), part(None)]
T = envelope(0, *PARTS, known=A)
"""Parts of three addresses; one ID on the envelope."""


def without(records: Sequence[Record], *indexes: int) -> list[Record]:
    return [record for number, record in enumerate(records) if number not in indexes]


def place(records: Sequence[Record], *order: int) -> list[Record]:
    return [records[item]._replace(offset=2 * number) for number, item in enumerate(order)]


def numbered(number: bytes | None) -> Record:
    """Return the first part of :data:`T` with another number."""
    headers = tuple(header for header in GOOD[0].headers if header[0] != "_RF_TX_PART")
    return GOOD[0]._replace(headers=headers if number is None else (*headers, ("_RF_TX_PART", number)))


GOOD = emit(T)
HEADERS = GOOD[2].headers
PLAIN, KNOWN = arrive(0, B, b"k"), envelope(1, part(known="c"), part(known="b"), known=A)
AFTER = [arrive(2, A, b"k"), arrive(3, C, b"k")]
DIVERTED = run([PLAIN, KNOWN], emit(PLAIN), divert=True)
PAID = envelope(0, part("x", "payments", "b"), part("y", "notes"))
PAID_AGAIN = envelope(2, part("z", "payments", "b"))
OWN, KEYED = arrive(1, B, b"k"), envelope(3, part("y", "notes"))
SMALLER = envelope(1, part("g"), known=A)
FORGED = arrive(0, A, headers=(("_RF_TX_PART", b"1/2"),))
MIXED = [arrive(0, A, b"g"), envelope(1, part("g"), part("g"), key=b"g"), arrive(2, B, b"g")]
FREE = [arrive(0, A, b"g0"), envelope(1, part("g0"), key=b"k1"), arrive(2, B, b"g0")]
ELSEWHERE = [FREE[0], envelope(0, part("g0"), key=b"g0", partition=1)]
LAST = arrive(5, B, b"k")
LEFT = [*GOOD, emit(LAST)[0]._replace(offset=90)]
SIMPLE: dict[str, tuple[History, dict[str, int]]] = {
    "accepted whole, in three topics": (run([T], GOOD), {}),
    "its resend and a plain message under its ID": (
        run([T, envelope(1, *PARTS, known=A), arrive(2, A, b"k")], GOOD[::-1]), {},
    ),
    "one known ID is enough, and new ones beside it do not become known": (
        run([PLAIN, KNOWN, *AFTER], emit(PLAIN, *AFTER)), {},
    ),
    "what follows a duplicate is lost": (run([PLAIN, KNOWN, *AFTER], emit(PLAIN)), {"LOST": 2}),
    "a diverted one that is missing": (DIVERTED, {"LOST": 1}),
    "diverted, with the original of any of its IDs": (replace(DIVERTED, diverted=[divert(KNOWN, PLAIN)]), {}),
    "diverted, with another original": (replace(DIVERTED, diverted=[divert(KNOWN, arrive(3, A))]), {"WRONG-VERDICT": 1}),
    "IDs of payments are apart, and notes has the key for its ID": (
        run([PAID, OWN, PAID_AGAIN, KEYED], emit(PAID, OWN)), {},
    ),
    "an ID of payments is none of orders": (run([PAID, OWN], emit(PAID)), {"LOST": 1}),
    "an ID of payments again": (run([PAID, PAID_AGAIN], emit(PAID, PAID_AGAIN)), {"FORGOTTEN": 1}),
    "quarantined whole, it takes no ID": (run([T, SMALLER], emit(SMALLER), quarantined=[quarantine(T)]), {}),
    "behind a quarantined one": (run([T, SMALLER], [], quarantined=[quarantine(T)]), {"LOST": 1}),
    "a plain message with a forged number": (run([FORGED], accept(FORGED)), {"CORRUPTED": 1}),
    "the forged number left out": (run([FORGED], accept(FORGED._replace(headers=FORGED.headers[:-1]))), {}),
    "O3: at home with its group": (run(MIXED, emit(*MIXED)), {}),
    **{
        f"O3: in the order {order}": (run(MIXED, place(emit(*MIXED), *order)), {"REORDERED": 1})
        for order in ((1, 0, 2, 3), (0, 1, 3, 2), (0, 3, 1, 2), (3, 0, 1, 2))
    },
    "O4: it overtakes a plain message of another lane": (run(FREE, place(emit(*FREE), 1, 0, 2)), {}),
    "O4: a plain message of another lane overtakes it": (run(FREE, place(emit(*FREE), 0, 2, 1)), {}),
    "O4: from another input partition": (run(ELSEWHERE, place(emit(*ELSEWHERE), 1, 0)), {}),
    **{
        f"part number {number!r}": (run([T], [numbered(number), *GOOD[1:]]), {"PHANTOM": 1, "TORN": 1})
        for number in (b"0/4", b"5/4", b"1/3", b"1", b"one/4", None)
    },
    **{
        f"a part {name}": (run([T], [*GOOD[:2], *written, GOOD[3]]), anomalies)
        for name, written, anomalies in (
            ("twice", [GOOD[2], GOOD[2]._replace(offset=90)], {"DOUBLED": 1}),
            ("under its key, which is not its group", [GOOD[2]._replace(key=b"n")], {"CORRUPTED": 1}),
            ("with another value", [GOOD[2]._replace(value=b"another")], {"CORRUPTED": 1}),
            ("with another time", [GOOD[2]._replace(timestamp=1)], {"CORRUPTED": 1}),
            ("with a header", [GOOD[2]._replace(headers=(*HEADERS, ("_RF_TX", b"json/1")))], {"CORRUPTED": 1}),
            ("elsewhere", [GOOD[2]._replace(topic="payments.accepted", offset=90)], {"PHANTOM": 1, "TORN": 1}),
        )
    },
    "parts of a deleted envelope": (run([LAST], LEFT, log_starts={0: 5}), {"GAP": 1}),
    "a deleted envelope, torn": (run([LAST], without(LEFT, 1), log_starts={0: 5}), {"GAP": 1, "TORN": 1}),
    "a deleted envelope, doubled": (
        run([LAST], [*LEFT, GOOD[1]._replace(offset=91)], log_starts={0: 5}), {"DOUBLED": 1, "GAP": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("history", "anomalies"), SIMPLE.values(), ids=SIMPLE)
def test_simple_histories(history: History, anomalies: dict[str, int]) -> None:
    assert found(history) == anomalies


A_AND_B, C_PART = [part(known="a"), part(known="b")], part(known="c")
BETWEEN: dict[str, tuple[list[Record], dict[int, str]]] = {
    "an ID that is there twice takes one slot": (
        [envelope(0, part(known="a"), part(known="a")), arrive(1, B, b"k"), arrive(2, A, b"k")],
        {2: "FORGOTTEN", 1: "OVERRUN"},
    ),
    "IDs behind it in its own transaction, and none before it in the other one": (
        [envelope(0, *A_AND_B, C_PART), envelope(1, part(known="x"), part(known="y"), part(known="a"))],
        {3: "FORGOTTEN", 2: "OVERRUN"},
    ),
    "the last ID of a transaction": ([envelope(0, *A_AND_B, C_PART), envelope(1, C_PART)], {1: "FORGOTTEN"}),
    "several common IDs are one finding: that of the ID that should have been known": (
        [envelope(0, *A_AND_B), envelope(1, *A_AND_B)],
        {1: "FORGOTTEN"},
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_how_many_ids_were_between(name: str) -> None:
    """IDs between two acceptances count across parts and transactions."""
    inputs, expected = BETWEEN[name]
    history = run(inputs, emit(*inputs))

    for capacity, anomaly in expected.items():
        assert found(replace(history, capacity=capacity)) == {anomaly: 1}


@pytest.mark.parametrize(
    ("key", "known", "first", "lane"),
    [(b"k1", b"a0", "b0", 1), (None, b"a1", "b0", 1), (None, None, "b1", 1), (None, None, None, 0)],
)
def test_home(key: bytes | None, known: bytes | None, first: str | None, lane: int) -> None:
    """A transaction's key decides its home, else its own ID, else the first ID of a part, else its place."""
    one = envelope(0, part("x1"), part("x", "payments", first), key=key, known=known)
    same = arrive(0, known or b"z", b"g%d" % lane, partition=1)

    assert found(run([one, same], emit(one, same))) == ({"FORGOTTEN": 1} if known else {})
    other = same._replace(key=b"g%d" % (1 - lane))
    assert found(run([one, other], emit(one, other))) == ({"CROSS-LANE": 1} if known else {})


@pytest.mark.parametrize("missing", [[0], [1], [2], [3], [0, 1, 2], [1, 3]])
def test_torn(missing: list[int]) -> None:
    """A transaction with only some parts accepted, in any address, is one finding and not lost as well."""
    finding = only(run([T], without(emit(T), *missing)))

    assert finding.anomaly is Anomaly.TORN
    assert finding.places[0] == T.place
    assert finding.text.endswith(f"without its parts {', '.join(str(number + 1) for number in missing)}")


def test_lost() -> None:
    """A transaction with no part accepted and no known ID is lost once, whatever the number of parts."""
    finding = only(run([T], []))

    assert finding.anomaly is Anomaly.LOST
    assert finding.places == (T.place,)
    assert "transaction of 4, IDs 'a', 'n' of notes, key 'k'" in finding.text


MALFORMED = [
    {"parts": []},
    {"parts": [part()] * 10_001},
    {"parts": [part()], "more": 1},
    {"parts": [part(address="ledgers")]},
    {"parts": [part() | {"value_base64": "AA=="}]},
    {"parts": [part(headers=[{"name": "_RF_KEY", "value": "1"}])]},
    ["parts"],
]


@pytest.mark.parametrize("document", MALFORMED)
def test_malformed(document: Any) -> None:
    """A malformed transaction belongs in quarantine: accepted, it is a phantom, and missing, it is lost."""
    record = envelope(0)._replace(value=json.dumps(document).encode())

    assert check(run([record], [], quarantined=[quarantine(record)])) == []
    assert found(run([record], [])) == {"LOST": 1}
    assert found(run([record], emit(envelope(0, part())))) == {"LOST": 1, "PHANTOM": 1}


def test_parts_of_one_group() -> None:
    """O1: parts of one group are in the order of their numbers, and other groups may come between."""
    one = envelope(0, part("g"), part("h"), part("g"))
    good = emit(one)

    assert check(run([one], place(good, 1, 0, 2))) == []
    finding = only(run([one], place(good, 2, 1, 0)))
    assert finding.anomaly is Anomaly.REORDERED
    assert finding.places == (one.place, Place("orders.accepted", 0, 4), one.place)


def test_attributed() -> None:
    """Parts that payments accepted are judged with orders, which sent them; a record of no known address is a phantom there."""
    plain = arrive(0, A, b"h")._replace(topic="payments")
    headers = (*plain.headers, ("_RF_SOURCE", b"payments/0/0"))
    theirs = plain._replace(topic="payments.accepted", offset=40, headers=headers)
    odd = theirs._replace(offset=42, headers=(("_RF_SOURCE", b"ledgers/0/0"),))
    good = emit(T)
    orders = run([T], [item for item in good if not item.topic.startswith("payments")])
    accepted = [theirs, *(item for item in good if item.topic.startswith("payments"))]
    payments = History("payments", 2, 10, home, inputs=[plain], accepted=accepted)

    assert found(orders) == {"TORN": 1}
    assert found(payments) == {"PHANTOM": 1}
    assert [found(history) for history in attributed([orders, payments])] == [{}, {}]
    payments.accepted.append(odd)
    assert [found(history) for history in attributed([orders, payments])] == [{}, {"PHANTOM": 1}]


def test_apart() -> None:
    """Parts of a group stand where its messages stand, or consumers see no order in it."""
    plain = arrive(0, A, b"h")._replace(topic="payments")
    theirs = plain._replace(topic="payments.accepted", offset=40)
    payments = History("payments", 2, 10, home, inputs=[plain], accepted=[theirs])
    orders = run([T], emit(T))

    assert apart([orders, payments]) == []
    (finding,) = apart([orders, replace(payments, accepted=[theirs._replace(partition=1)])])
    assert finding.anomaly is Anomaly.REORDERED
    assert "in several partitions of payments.accepted: [0] from orders, [1] from payments" in finding.text
