import pytest

from ringfence_kafka.protocol.hop import Hop, Source, decode, decode_offset, encode

TOPIC_ID = "AbC_-67890123456789012"
HOP = Hop(Source("to-paris", TOPIC_ID, 3), 1234)
PREFIX = b"to-paris/AbC_-67890123456789012/"


@pytest.mark.parametrize(
    "hop", [HOP, Hop(Source("a.b_c", TOPIC_ID, 2**31 - 1), 2**63 - 2), Hop(HOP.source, 0)]
)
def test_round_trip(hop: Hop) -> None:
    """A hop reads back as it was written, in a form on which other programs may rely."""
    assert decode(encode(hop)) == hop
    assert encode(HOP) == PREFIX + b"3/1234"


@pytest.mark.parametrize(
    "value",
    [
        None, b"3/1234", b"to paris/" + TOPIC_ID.encode() + b"/3/1", b"to-paris/short/3/1", b"\xff" + PREFIX + b"3/1",
        *(PREFIX + end for end in (b"3/", b"03/1", b"3/01", b"3/1\n", b"2147483648/1", b"3/9223372036854775807")),
        PREFIX + "3/\N{ARABIC-INDIC DIGIT ONE}".encode(),
    ],
)  # fmt: skip
def test_nothing_else(value: bytes | None) -> None:
    assert decode(value) is None


@pytest.mark.parametrize(
    ("value", "offset"),
    [(b"0", 0), (b"17", 17), (b"9223372036854775807", 2**63 - 1), (b"9223372036854775808", None), (b"", None),
     (None, None), (b"-1", None), (b"01", None), (b"1\n", None), (b"1.0", None)],
)  # fmt: skip
def test_offset(value: bytes | None, offset: int | None) -> None:
    assert decode_offset(value) == offset
