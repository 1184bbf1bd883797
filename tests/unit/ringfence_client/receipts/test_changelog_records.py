"""The outbox reads the changelog as :mod:`tables` writes it."""

import pytest

from ringfence_client.receipts import lane_memory as changelog_records
from ringfence_client.receipts.lane_memory import Place, id_of, place_of, read_state
from ringfence_kafka.protocol import stored_ids
from tables import codec
from tables.codec import Meta, Origin


@pytest.mark.parametrize("identity", [b"a", b"x" * 256, b"x" * 257], ids=["short", "longest", "digest"])
def test_ring_record(identity: bytes) -> None:
    """Format 2 holds a digest of the value, and an ID may be stored with that of a second value."""
    stored, digest = stored_ids.encode_id(identity), 2**63 + 5
    variant = stored_ids.variant_of(stored, digest)
    for id_, value_digest in ((stored, 0), (variant, digest)):
        value = codec.ring_value(7, id_, Origin(3, 2**40, 1_700_000_000_000), value_digest)

        assert id_of(value) == id_
        assert stored_ids.without_value(id_) == stored
        assert place_of(value) == Place(3, 2**40, 1_700_000_000_000)
        assert changelog_records.sequence_of(value) == 7
        assert changelog_records.digest_of(value) == value_digest
    assert codec.ring_key(20, 7)[:1] == changelog_records.RING_KIND


@pytest.mark.parametrize(("lanes", "key"), [(0, "in"), (2, "in/3")])
def test_meta_record(lanes: int, key: str) -> None:
    """In each format: by topic, and by partition."""
    meta = Meta(20, 8, 0, {key: 5}, {"in": 4}, "i", persistent=False, topic_ids={"in": "T"}, lanes=lanes)
    state = read_state(codec.encode_meta(meta))

    assert codec.META_KEY == changelog_records.META_KEY
    assert (state.capacity, state.head, state.persistent, state.lanes) == (20, 8, False, lanes)
    assert (state.partition_counts, state.topic_ids) == ({"in": 4}, {"in": "T"})
    assert state.next_of("in", 3) == 5
    assert state.next_of("other", 3) == 0


@pytest.mark.parametrize("value", [b"", b"\x01", b"\xff" * 40])
def test_unknown_formats(value: bytes) -> None:
    with pytest.raises(
        changelog_records.ChangelogFormatError, match="install the ringfence-client of the workers' version"
    ):
        id_of(value)
    with pytest.raises(changelog_records.ChangelogFormatError, match="a meta record"):
        read_state(value)


def test_follows() -> None:
    """Offsets count in one partition, and not where the topic was created again."""
    place = Place(0, 5, 1_000)

    assert Place(0, 6, 1_000).follows(place)
    assert not Place(0, 4, 2_000).follows(place)
    assert not Place(1, 6, 2_000).follows(place)
    assert not Place(0, 6, 999).follows(place)
