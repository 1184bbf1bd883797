import weakref

import pytest

from agents.decision import partitioner
from agents.decision.partitioner import GroupCache, Partitioner, murmur2

LIBRDKAFKA_KEYS = {
    b"23456": (0xB1B451D7, 0x058D780F),
    b"this is another string with more length to it perhaps": (0xB0150DF7, 0x4F7703DA),
    b"hejsan": (0xD077037E, 0x5EC19395),
    b"": (0, 0x106E08D9),
}
"""Keys of librdkafka's own test of its partitioners (0048-partitioner.c), with its hashes: crc32, and murmur2 without sign."""


@pytest.mark.parametrize("key", LIBRDKAFKA_KEYS)
def test_vectors_of_librdkafka(key: bytes) -> None:
    """Keys lie in the partitions that librdkafka's own test expects, for both partitioners, with 7 and 17 partitions."""
    crc, murmur = LIBRDKAFKA_KEYS[key]

    for partitions in (7, 17):
        assert Partitioner(partitions, "crc32")[key] == crc % partitions
        assert Partitioner(partitions, "murmur2")[key] == murmur % partitions


def test_sign_of_the_hash() -> None:
    """A hash with its top bit set loses it under murmur2 and keeps it under crc32, as the clients do it."""
    assert (murmur2(b"21"), murmur2(b"abc")) == (
        0xC5F2F8EC,
        479470107,
    )  # vectors of the Java client's own test
    assert Partitioner(1_000_003)[b"21"] == 0x45F2F8EC % 1_000_003
    assert Partitioner(1_000_003, "crc32")[b"a"] == 0xE8B7BE43 % 1_000_003


@pytest.mark.parametrize("partitions", [1, 4, 7, 100])
def test_empty_key(partitions: int) -> None:
    """An empty key has one home: partition 0 under crc32, whose producers spread it, and its hash's under murmur2."""
    assert Partitioner(partitions, "crc32")[b""] == 0
    assert Partitioner(partitions, "murmur2")[b""] == 0x106E08D9 % partitions


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory for homes stays within its limit, whatever the number of groups, and every home stays right."""
    monkeypatch.setattr(partitioner, "MEMO_BYTES_MIN", 0)
    monkeypatch.setattr(partitioner, "MEMO_BYTES_MAX", 10 * (partitioner.KEY_BYTES + 2))
    monkeypatch.setattr(GroupCache, "_living", weakref.WeakValueDictionary())
    homes = Partitioner(7)
    keys = [b"%d" % index for index in range(95)]
    sizes = []

    for _ in range(2):
        for key in keys:
            assert homes[key] == (murmur2(key) & 0x7FFFFFFF) % 7
            sizes.append(len(homes))

    assert max(sizes) == 10
    homes[b"x" * 10 * partitioner.KEY_BYTES]
    assert len(homes) == 1
    other = Partitioner(7)
    for key in keys:
        assert len(homes) <= 5
        assert homes[key] == other[key]
