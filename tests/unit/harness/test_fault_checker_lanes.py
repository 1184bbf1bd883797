"""Checker of the fault tests, where a lane has several partitions: one ring for all of them, and sequence numbers."""

from dataclasses import replace
from typing import Any

import pytest

from tests.harness.checker.check import Anomaly
from tests.harness.history import History, Record
from tests.support.histories import A, B, C, accept, arrive, found, only, story


def _numbered(*records: Record, first: int = 7) -> list[Record]:
    made, sequence = [], first
    for record in accept(*records):
        own = record.header("_AMQ_DUPL_ID") is not None
        told = (("_RF_SEQ", b"%d" % sequence),) if own else ()
        made.append(record._replace(headers=(*record.headers, *told)))
        sequence += own
    return made


def _of_one_lane(inputs: list[Record], accepted: list[Record], **more: Any) -> History:
    return story(inputs, accepted, lanes=1, **more)


def test_one_ring_for_the_address() -> None:
    """An ID under another group, in another partition, is a duplicate, and forgotten if it is accepted."""
    here, there = arrive(0, A, b"g0"), arrive(0, A, b"g1", partition=1)

    assert found(_of_one_lane([here, there], _numbered(here))) == {}
    assert found(_of_one_lane([here, there], _numbered(there))) == {}
    finding = only(_of_one_lane([here, there], _numbered(here, there)))
    assert finding.anomaly is Anomaly.FORGOTTEN
    assert finding.places == (there.place, here.place)
    of_two = story([here, there], [*accept(here), *accept(there, partition=1)], lanes=2)
    assert found(of_two) == {"CORRUPTED": 2, "CROSS-LANE": 1}


@pytest.mark.parametrize(
    ("age_ms", "capacity", "expected"), [(3, 10, "FORGOTTEN"), (2, 10, "OVERRUN"), (3, 2, "OVERRUN")]
)
def test_a_promise_in_time(age_ms: int, capacity: int, expected: str) -> None:
    """An ID beyond id_cache_size is forgotten if it was young enough, and the largest ring had room for it."""
    inputs = [arrive(0, A), arrive(1, B), arrive(2, C), arrive(3, A)]

    history = _of_one_lane(inputs, _numbered(*inputs), capacity=capacity, size=1, min_age_ms=age_ms)

    assert found(history) == {expected: 1}
    near = [arrive(0, A), arrive(9, A)]
    assert found(_of_one_lane(near, _numbered(*near), size=1, min_age_ms=1)) == {"FORGOTTEN": 1}


def test_a_late_message_finds_what_the_newest_record_left() -> None:
    """Ages count from the newest record of the lane, as its ring counts them."""
    inputs = [arrive(0, A), arrive(1, B)._replace(timestamp=2_000), arrive(2, A)]
    promise = {"size": 1, "min_age_ms": 500}

    assert found(_of_one_lane(inputs, _numbered(*inputs), **promise)) == {"OVERRUN": 1}
    inputs[1] = arrive(1, B)
    assert found(_of_one_lane(inputs, _numbered(*inputs), **promise)) == {"FORGOTTEN": 1}


def test_numbers_that_no_lane_writes() -> None:
    """A sequence number that is missing, used twice, or against the order of its partition is an anomaly."""
    inputs = [arrive(0, A), arrive(1, B), arrive(0, C, b"g1", partition=1)]
    good = _numbered(*inputs)

    def told(number: int, text: bytes | None) -> dict[str, int]:
        headers = [header for header in good[number].headers if header[0] != "_RF_SEQ"]
        headers += [] if text is None else [("_RF_SEQ", text)]
        accepted = [*good]
        accepted[number] = good[number]._replace(headers=tuple(headers))
        return found(_of_one_lane(inputs, accepted))

    assert told(0, b"7") == {}
    assert told(0, None) == told(0, b"x") == told(0, b"07") == {"CORRUPTED": 1}
    assert told(2, b"8") == {"FORGOTTEN": 1}
    assert told(1, b"3") == {"REORDERED": 1}
    plain = replace(_of_one_lane(inputs, good), lanes=0)
    assert found(plain) == {}
