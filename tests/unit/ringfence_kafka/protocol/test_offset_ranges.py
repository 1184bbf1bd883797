from ringfence_kafka.protocol import offset_ranges


def test_offsets_in_a_line() -> None:
    assert offset_ranges.shown([3]) == "1 offset: 3"
    assert offset_ranges.shown([9, 1, 2, 3]) == "4 offsets: 1-3, 9"
    assert offset_ranges.shown(range(0, 40, 2), 2) == "20 offsets: 0, 2, …"
