"""Times, ages and sizes as people read them."""

import pytest

from ringfence_kafka.page import formats


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (0.0, "0.0 s"),
        (9.96, "10.0 s"),
        (119.0, "119 s"),
        (120.0, "2 minutes"),
        (200_000.0, "2 days"),
    ],
)
def test_ages(seconds: float | None, shown: str) -> None:
    """An age is shown in the largest unit of which there are two."""
    assert formats.age(seconds) == shown


def test_sizes_and_moments() -> None:
    assert [formats.mebibytes(size) for size in (None, 3 * 2**29)] == ["", "1,536 MiB"]
    moment = '<time datetime="2026-01-01T00:00:00Z">2026-01-01 00:00:00 UTC</time>'
    assert formats.moment(1_767_225_600.9) == moment
