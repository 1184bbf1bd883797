import random

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka

from agents import home
from agents.home import Home, murmur2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_vectors_of_the_java_client(data: bytes, expected: int) -> None:
    """The hash is the Java client's: these are the vectors of its own test, as signed numbers."""
    assert int.from_bytes(murmur2(data).to_bytes(4, "big"), "big", signed=True) == expected


def test_agrees_with_aiokafka() -> None:
    """aiokafka, an implementation that is not ours, has the same hash of any bytes of any length."""
    source = random.Random(20)
    keys = [b"", b"\x00", b"\xff" * 7, *(source.randbytes(source.randint(0, 40)) for _ in range(5_000))]

    assert [murmur2(each) for each in keys] == [murmur2_of_aiokafka(each) & 0xFFFFFFFF for each in keys]


@pytest.mark.parametrize("partitions", [1, 2, 4, 7, 100])
def test_home(partitions: int) -> None:
    """The home is the hash without its sign, modulo the partitions; asked again, it is the same."""
    source = random.Random(partitions)
    keys = [b"%d" % source.randint(0, 10**9) for _ in range(500)]
    homes = Home(partitions)

    expected = [(murmur2_of_aiokafka(each) & 0x7FFFFFFF) % partitions for each in keys]
    assert [homes[each] for each in keys] == expected
    assert [homes[each] for each in keys] == expected
    assert set(expected) == set(range(partitions))


def test_hash_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups repeat: a key that is remembered is not hashed again."""
    asked: list[bytes] = []

    def counting(data: bytes) -> int:
        asked.append(data)
        return murmur2(data)

    monkeypatch.setattr(home, "murmur2", counting)
    homes = Home(4)

    for _ in range(3):
        homes[b"a"], homes[b"b"]

    assert asked == [b"a", b"b"]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many groups there are, no more than the limit is remembered, and every home stays right."""
    monkeypatch.setattr(home, "MEMO_MAX", 10)
    homes = Home(7)
    keys = [b"%d" % each for each in range(95)]
    sizes = []

    for _ in range(2):
        for each in keys:
            assert homes[each] == (murmur2(each) & 0x7FFFFFFF) % 7
            sizes.append(len(homes))

    assert max(sizes) == 10
