from ringfence_kafka.page import formats


def test_ages() -> None:
    """An age is shown in the largest unit of which there are two."""
    seconds = (None, 0.0, 9.96, 119.0, 120.0, 200_000.0)
    assert [formats.age(item) for item in seconds] == ["", "0.0 s", "10.0 s", "119 s", "2 minutes", "2 days"]


def test_sizes_and_moments() -> None:
    assert [formats.mebibytes(size) for size in (None, 3 * 2**29)] == ["", "1,536 MiB"]
    moment = '<time datetime="2026-01-01T00:00:00Z">2026-01-01 00:00:00 UTC</time>'
    assert formats.moment(1_767_225_600.9) == moment
