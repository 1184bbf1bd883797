"""Records of changelog and RocksDB are read as they were written, and foreign bytes are refused."""

from collections.abc import Callable
from hashlib import blake2b

from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_kafka.protocol import stored_ids
from tables import codec
from tables.codec import FormatError, Meta, Origin
from tests.property import examples

fixed = settings(max_examples=examples(200))

ids = st.one_of(st.binary(max_size=40), st.binary(min_size=250, max_size=270))
capacities = st.integers(1, 2**31 - 1)
sequences = st.one_of(st.integers(0, 100), st.integers(0, 2**64 - 1))
origins = st.builds(
    Origin,
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp=st.integers(-1, 2**63 - 1),
)
counts = st.dictionaries(st.text(max_size=20), st.integers(0, 2**63 - 1), max_size=4)
metas = st.builds(
    Meta,
    capacity=st.integers(0, 2**31 - 1),
    head=sequences,
    floor=sequences,
    next_offsets=counts,
    partition_counts=counts,
    incarnation=st.text(max_size=20),
    older=st.lists(
        st.tuples(st.integers(1, 2**31 - 1), sequences, st.integers(0, 2**31 - 1)).map(list), max_size=3
    ),
    persistent=st.booleans(),
    topic_ids=st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=2),
    max_age_ms=st.none() | st.integers(0, 2**53),
    rules=st.dictionaries(
        st.text(max_size=20), st.text(max_size=20) | st.lists(st.text(max_size=9), max_size=3), max_size=3
    ),
)


@fixed
@given(sequence=sequences, value=ids, origin=origins, cut=st.integers(0, 60), version=st.integers(0, 255))
def test_check_agrees_with_decoding(
    sequence: int, value: bytes, origin: Origin, cut: int, version: int
) -> None:
    key = codec.ring_key(7, sequence)
    record = bytes([version]) + codec.ring_value(sequence, value, origin)[1:]
    for item in (
        (key, record[:cut]),
        (key, record),
        (key[: cut % 9], codec.ring_value(sequence, value, origin)),
    ):
        assert _readable(codec.check_ring, item) == _readable(codec.decode_ring, item)


def _readable(read: Callable[[bytes, bytes], object], record: tuple[bytes, bytes]) -> bool:
    try:
        read(*record)
    except FormatError:
        return False
    return True


@fixed
@given(value=ids, other=ids)
def test_ids_stay_apart(value: bytes, other: bytes) -> None:
    """Two IDs have one stored form exactly when they are the same bytes. An ID's stored form or digest is another ID."""
    encoded = stored_ids.encode_id(value)

    assert (encoded == stored_ids.encode_id(other)) == (value == other)
    assert stored_ids.encode_id(encoded) != encoded
    assert (stored_ids.encode_id(blake2b(value, digest_size=32).digest()) == encoded) is False
    assert len(encoded) <= 257


@fixed
@given(
    key=st.one_of(st.binary(max_size=12), st.binary(min_size=9, max_size=9)),
    value=st.one_of(
        st.binary(max_size=60), st.binary(min_size=25, max_size=40).map(lambda item: b"\x01" + item)
    ),
)
def test_any_bytes_as_ring_record(key: bytes, value: bytes) -> None:
    try:
        slot = codec.decode_ring(key, value)
    except FormatError:
        return

    assert codec.ring_value(slot.sequence, slot.id, slot.origin) == value


@fixed
@given(
    value=st.one_of(st.binary(max_size=60), metas.map(codec.encode_meta).map(lambda item: item[:-2] + b"}"))
)
def test_any_bytes_as_meta_record(value: bytes) -> None:
    try:
        meta = codec.decode_meta(value)
    except FormatError:
        return

    assert codec.decode_meta(codec.encode_meta(meta)) == meta
