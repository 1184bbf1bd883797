import pytest

from ringfence_kafka.protocol import varints


@pytest.mark.parametrize(
    ("number", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**63 - 1, "ffffffffffffffff7f")],
)
def test_numbers(number: int, data: str) -> None:
    """A number has seven bits a byte, the lowest first, and ends at a byte below 128. Signed ones are small in few bytes."""
    assert varints.encode(number).hex() == data
    assert varints.decode(b"x" + bytes.fromhex(data) + b"y", 1) == (number, 1 + len(data) // 2)
    for signed in (number // 2, ~(number // 2)):
        assert varints.signed(varints.decode(varints.encode_signed(signed), 0)[0]) == signed
    assert varints.encode_signed(-64).hex() == "7f"


def test_numbers_that_are_none() -> None:
    """A truncated number, or one with more bits than the reader takes, is an error."""
    with pytest.raises(IndexError):
        varints.decode(b"\x80", 0)
    with pytest.raises(ValueError, match="more than 35 bits"):
        varints.decode(b"\xff" * 6, 0, 35)
