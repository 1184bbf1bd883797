"""Histories written by hand, in a few words, for the tests of the fault tests' checker."""

from dataclasses import replace
from itertools import count
from typing import Any, Final

from tests.harness.checker.check import Finding, check, counts
from tests.harness.history import Headers, History, Outcome, Record, Send

TOPIC: Final = "orders"
A, B, C, D = b"a", b"b", b"c", b"d"


def home(key: bytes) -> int:
    return key[-1] - ord("0") if key[-1:].isdigit() else 0


def arrive(
    offset: int,
    id: bytes | None,  # noqa: A002 - the field's term
    group: bytes | None = b"g",
    partition: int = 0,
    headers: Headers = (),
) -> Record:
    own: Headers = (("t", b"%d-%d" % (partition, offset)), *headers)
    if id is not None:
        own = (("_AMQ_DUPL_ID", id), *own)
    return Record(TOPIC, partition, offset, group, b"v", own, 1_000 + offset)


def source(record: Record) -> tuple[str, bytes]:
    return ("_RF_SOURCE", str(record.place).encode())


def accept(*records: Record, partition: int = 0) -> list[Record]:
    """Return the records that a faultless lane writes for these inputs, with gaps for transaction markers."""
    offsets = count(0, 2)
    return [
        record._replace(
            topic="orders.accepted",
            partition=partition,
            offset=next(offsets),
            headers=(*record.headers, source(record)),
        )
        for record in records
    ]


def observe(record: Record, verdict: bytes, offset: int) -> Record:
    """Return what a faultless lane of an address that observes writes for an input."""
    [accepted] = accept(record)
    return accepted._replace(offset=offset, headers=(*accepted.headers, ("_RF_VERDICT", verdict)))


def divert(record: Record, original: Record | bytes | None, offset: int = 0) -> Record:
    named = str(original.place).encode() if isinstance(original, Record) else original
    headers = (*record.headers, source(record), ("_RF_ORIGINAL", named))
    return record._replace(topic="orders.duplicates", offset=offset, headers=headers)


def quarantine(record: Record) -> Record:
    headers = (*record.headers, source(record), ("_RF_REASON", b"too large"))
    return record._replace(topic="orders.quarantine", offset=0, headers=headers)


def attempts(*records: Record, outcome: Outcome = Outcome.OK) -> list[Send]:
    return [Send(record.token or b"", None, record.key, outcome) for record in records]


def story(inputs: list[Record], accepted: list[Record], **more: Any) -> History:
    return replace(History(TOPIC, 2, 10, home, inputs=inputs, accepted=accepted), **more)


def found(history: History) -> dict[str, int]:
    return {name: number for name, number in counts(check(history)).items() if number}


def only(history: History) -> Finding:
    (finding,) = check(history)
    return finding
