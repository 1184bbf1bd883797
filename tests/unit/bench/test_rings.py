"""The IDs of the benchmark of a large ring."""

from bench import rings


def test_ids_of_a_large_ring() -> None:
    """IDs of a large ring differ, and are as long as a UUID's text."""
    found = {rings.identity(index) for index in range(1_000)} | {rings.identity(10**9)}

    assert len(found) == 1_001
    assert {len(data) for data in found} == {36}
