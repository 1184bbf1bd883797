"""A changelog's fetches are taken as the core reads them, and what it leaves is aiokafka's."""

import pytest

import native
from tables import native_changelog
from tables.native_changelog import take_records
from tests.support.records.stored_batches import TRANSACTIONAL, Stored, marker, stored
from tests.unit.app.worker.fetch.test_raw_fetch import TP, Fetched, log_of

pytestmark = pytest.mark.skipif(native.core is None, reason=native.spoken)


def _offsets(fetched: Fetched) -> list[int]:
    """Return the offsets taken until nothing is left or aiokafka has to read."""
    found = []
    while (records := take_records(fetched, TP)) is not None:
        assert [record.offset for record in records] == [records[n].offset for n in range(len(records))]
        found += [record.offset for record in records]
    return found


@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_a_fetch_is_taken_at_once(codec: int) -> None:
    """A fetch is taken at once with the position behind it. Nothing is left in the fetcher, so the next one may be asked for."""
    fetched = Fetched(log_of(4, 50, codec=codec))

    records = take_records(fetched, TP)

    assert records is not None
    assert (len(records), records[199].key, fetched.position) == (200, b"group", 200)
    assert TP not in fetched._records
    assert take_records(fetched, TP) is None


async def test_a_large_one_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large fetch is taken in parts, in order, without loss or repetition, and the position follows them."""
    monkeypatch.setattr(native_changelog, "RECORDS_AT_ONCE", 60)
    fetched = Fetched(log_of(6, 50))

    first = take_records(fetched, TP)

    assert first is not None
    assert (len(first), fetched.position) == (100, 100)
    assert TP in fetched._records
    assert _offsets(fetched) == list(range(100, 300))
    assert (fetched.position, fetched._records) == (300, {})


async def test_what_was_aborted_is_left_out() -> None:
    data = (
        stored([Stored(0), Stored(1)], 0, 7, TRANSACTIONAL)
        + marker(2, 7, abort=True)
        + stored([Stored(3)], 0, 7, TRANSACTIONAL)
        + marker(4, 7, abort=False)
    )
    fetched = Fetched(data, aborted=[(7, 0)])

    assert _offsets(fetched) == [3]
    assert fetched.position == 5


async def test_from_within_a_batch() -> None:
    """A fetch that begins within a batch, after compaction or at a position, yields only the wanted half."""
    assert _offsets(Fetched(log_of(2, 50), begin=30)) == list(range(30, 100))


async def test_what_the_core_cannot_read_is_left() -> None:
    """Damage, or a header name that is not ASCII, leaves the fetch to aiokafka. After parts that were taken, the rest is fetched again."""
    broken = bytearray(log_of(4, 50))
    broken[-3] ^= 1
    fetched = Fetched(bytes(broken))

    assert take_records(fetched, TP) is None
    assert (fetched.position, TP in fetched._records) == (0, True)
    assert take_records(fetched, TP) is None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native_changelog, "RECORDS_AT_ONCE", 60)
        fetched = Fetched(bytes(broken))
        assert _offsets(fetched) == list(range(100))
        assert (fetched.position, fetched._records) == (100, {})
        patched.setattr(native_changelog, "BYTES_AT_ONCE", 100_000)
        names = ["e"] * 50 + ["\u00e9"] + ["e"] * 9
        records = [Stored(n, value=b"v" * 40_000, headers=[(name, b"")]) for n, name in enumerate(names)]
        fetched = Fetched(stored(records, 4))
        assert _offsets(fetched) == list(range(fetched.position))
    assert (10 < fetched.position <= 50, fetched._records) == (True, {})


async def test_another_position_means_another_fetch() -> None:
    """Records that were fetched for a position other than the reader's are not taken."""
    fetched = Fetched(log_of(1, 50))
    fetched.assignment.state_value(TP).consumed_to(20)

    assert take_records(fetched, TP) is None
