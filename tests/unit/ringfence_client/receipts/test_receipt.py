"""Receipts, and the errors that take their place."""

from ringfence_client import Receipt, ReceiptTimeoutError, Verdict


def test_accepted_source() -> None:
    """The message that counts: the same for the call that was accepted and for all later ones."""
    known = {"source": "orders/0/7", "original": "orders/0/3", "original_time": 1_000}

    assert Receipt(verdict=Verdict.ACCEPTED, source="orders/0/3").accepted_source == "orders/0/3"
    assert Receipt(verdict=Verdict.DUPLICATE, **known).accepted_source == "orders/0/3"  # type: ignore[arg-type]
    assert Receipt(verdict=Verdict.UNCHECKED, source="orders/0/3").accepted_source == "orders/0/3"
    assert Receipt(verdict=Verdict.QUARANTINED, source="orders/0/3").accepted_source is None


def test_time_out() -> None:
    """It says where the message is, and what a second call does."""
    error = ReceiptTimeoutError("orders/0/7", 30, has_id=True)

    assert error.source == "orders/0/7"
    assert str(error).startswith("orders/0/7 is sent, and no lane has judged it within 30 s: call send again")
    assert "do not send it again" in str(ReceiptTimeoutError("orders/0/7", 30, has_id=False))
