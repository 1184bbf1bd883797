from ringfence_kafka.wording import counted, first_of


def test_counted() -> None:
    assert [counted(number, "message") for number in (0, 1, 300_000)] == [
        "0 messages", "1 message", "300,000 messages",
    ]  # fmt: skip
    assert counted(2, "address", "addresses") == "2 addresses"


def test_first_of() -> None:
    """A short list is shown whole, and a long one by its first names and the number of the others."""
    assert first_of(["a", "b"], 2) == "a, b"
    assert first_of(["a", "b", *"c" * 1_000], 2) == "a, b and 1,000 more"
