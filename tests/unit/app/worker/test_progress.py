"""The worker's line each minute: work since the last line, waiting records, and the address of its page."""

from app.worker.faust_app import ProgressLine


def test_line() -> None:
    """Counts are those since the last line; what is nought and unusual is left out."""
    line = ProgressLine("http://w1:6066")

    first = line.line(
        {"accepted": 1_200, "unchecked": 34, "duplicates": 5, "forwarded": 2}, 60.2, (4, 4), [0, 7, 0, 0]
    )
    second = line.line(
        {"accepted": 1_300, "unchecked": 34, "duplicates": 5, "forwarded": 2}, 60, (3, 4), [1, None, 0, 0]
    )

    assert (
        first
        == "in 60 s 1,234 accepted, 5 duplicates, 2 forwarded; lag 7; 4 of 4 lanes open; http://w1:6066/"
    )
    assert (
        second
        == "in 60 s 100 accepted, 0 duplicates; lag 1 and unknown of 1 lanes; 3 of 4 lanes open; http://w1:6066/"
    )
