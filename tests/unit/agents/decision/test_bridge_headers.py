"""The headers of a bridge: what is read of them, and what is not believed."""

import tracemalloc

import pytest

from agents.decision.bridge_headers import BridgeHeaders, Headers, MalformedHopError, read_headers
from ringfence_kafka.protocol.hop import Hop, Source, encode
from tables.codec import Route
from tables.hops import Arrival
from tests.unit.agents.decision.test_decide import Given

VALUE = b"to-paris/AbC_-67890123456789012/3/41"
HOP = Hop(Source("to-paris", "AbC_-67890123456789012", 3), 41)


def _read(*headers: tuple[str, bytes | None]) -> BridgeHeaders:
    return read_headers(Given(0, None, headers))


def test_read() -> None:
    """The headers give the hop, the confirmed offset, the treatment of IDs, and the trace that stays; of repeated ones the last.

    A hop header alone confirms nothing, checks IDs, and leaves no trace. The route of a forwarded record is the partition in its source,
    whichever lane it came to.
    """
    hop = ("_RF_BRIDGE_DUPL_ID", VALUE)
    trace = ("_RF_HOPS", b"berlin,paris")
    crossing = _read(
        ("a", b"1"), ("_RF_BRIDGE_DUPL_ID", None), ("_RF_BRIDGE_CONFIRMED", b"40"), ("_RF_BRIDGE_IDS", b"ignore"), trace, hop
    )  # fmt: skip

    assert crossing == BridgeHeaders(HOP, b"\x00" + VALUE, 40, True, (trace,))
    assert crossing.arrival(b"or/ders/12/7") == Arrival(Route(HOP.source, 12), 41, 40)
    assert _read(hop) == BridgeHeaders(HOP, b"\x00" + VALUE, 0, False, ())


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("_RF_BRIDGE_DUPL_ID", None)], "_RF_BRIDGE_DUPL_ID is null: a bridge writes <bridge>/"),
        ([("_RF_BRIDGE_DUPL_ID", b"x\xff")], r"_RF_BRIDGE_DUPL_ID is 'x\\\\xff': a bridge writes"),
        ([("_RF_BRIDGE_DUPL_ID", VALUE + b"/")], "no other producer may set it"),
        ([("_RF_BRIDGE_DUPL_ID", VALUE), ("_RF_BRIDGE_CONFIRMED", b"-1")], "_RF_BRIDGE_CONFIRMED is '-1'"),
        ([("_RF_BRIDGE_DUPL_ID", VALUE), ("_RF_BRIDGE_CONFIRMED", None)], "_RF_BRIDGE_CONFIRMED is null"),
        (
            [("_RF_BRIDGE_DUPL_ID", VALUE), ("_RF_BRIDGE_CONFIRMED", b"42")],
            "_RF_BRIDGE_CONFIRMED is 42, and _RF_BRIDGE_DUPL_ID has offset 41",
        ),
        ([("_RF_BRIDGE_DUPL_ID", VALUE), ("_RF_BRIDGE_IDS", b"check")], "_RF_BRIDGE_IDS is 'check': .* knows ignore"),
        ([("_RF_BRIDGE_DUPL_ID", VALUE), ("_RF_BRIDGE_IDS", None)], "_RF_BRIDGE_IDS is null"),
    ],
)  # fmt: skip
def test_malformed(headers: Headers, reason: str) -> None:
    """A header that no bridge writes is not believed. The reason fits into a header, however long the value is."""
    with pytest.raises(MalformedHopError, match=reason) as error:
        _read(*headers)

    assert len(str(error.value)) < 300


def test_long_headers_are_not_remembered() -> None:
    """A value too long for a bridge is refused before it is cached, so forged headers cannot fill a worker's memory."""
    long = [b"x" * 100_000 + b"%d" % index for index in range(200)]
    tracemalloc.start()
    try:
        for data in long:
            hop, digits = b"%b/7" % data, b"1" * 100_000 + data[-3:]
            for headers in (
                [("_RF_BRIDGE_DUPL_ID", hop)],
                [("_RF_BRIDGE_DUPL_ID", VALUE), ("_RF_BRIDGE_CONFIRMED", digits)],
            ):
                with pytest.raises(MalformedHopError):
                    _read(*headers)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 1_000_000
    longest, last = Hop(Source("b" * 200, "A" * 22, 2**31 - 1), 2**63 - 2), b"%d" % (2**63 - 2)
    read_back = _read(("_RF_BRIDGE_DUPL_ID", encode(longest)), ("_RF_BRIDGE_CONFIRMED", last))
    assert (read_back.hop, read_back.confirmed) == (longest, 2**63 - 2)
