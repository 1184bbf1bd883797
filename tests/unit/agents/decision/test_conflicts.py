"""An ID that is known with another value."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.decision.verdicts import Originals, add_values, check_with_values
from ringfence_kafka.protocol.stored_ids import encode_id
from ringfence_kafka.protocol.value_digest import slot_digest
from tables.codec import Origin, Slot
from tables.ring import Checked, Ring, Verdict

ACCEPTED, DUPLICATE, UNCHECKED, CONFLICT = Verdict


class Lane:
    """A ring with its slots, which judges messages by ID and value."""

    def __init__(self, capacity: int = 10, *, by_value: bool = False) -> None:
        self.ring = Ring(capacity)
        self.slots: dict[int, Slot] = {}
        self._by_value = by_value

    def find(self, sequences: Sequence[int]) -> list[Slot | None]:
        return [self.slots.get(sequence) for sequence in sequences]

    def judge(self, *messages: tuple[bytes | None, bytes]) -> Checked:
        ids = [None if id_ is None else encode_id(id_) for id_, _ in messages]
        digests = [slot_digest(value) for _, value in messages]
        if self._by_value:
            units = [[] if id_ is None else [id_] for id_ in ids]
            checked = check_with_values(self.ring, units, [0] * len(ids), digests, Originals(self.find))
        else:
            checked = add_values(self.ring.check(ids), digests, Originals(self.find))
        self.apply(checked)
        return checked

    def apply(self, checked: Checked) -> None:
        new = zip(checked.new_ids, checked.new_digests, strict=True)
        for sequence, (id_, digest) in enumerate(new, checked.first_sequence):
            self.slots[sequence] = Slot(10, sequence, id_, Origin(0, sequence, 0), digest)
        self.ring.apply(checked)


def test_digest() -> None:
    """The digest is XXH64 with seed 42, as Spark's; null counts as empty."""
    assert slot_digest(None) == slot_digest(b"") == 0x98B1582B0977E704
    assert slot_digest(b"a") != slot_digest(b"b")


def test_another_value_is_a_conflict() -> None:
    """A known ID with another value is a conflict, in one batch and later; with the same value it is a duplicate."""
    lane = Lane()

    assert lane.judge((b"1", b"a"), (b"1", b"a"), (b"1", b"b"), (None, b"b")).verdicts == [
        ACCEPTED, DUPLICATE, CONFLICT, UNCHECKED,
    ]  # fmt: skip
    assert lane.judge((b"1", b"a"), (b"1", b"c"), (b"2", b"c")).verdicts == [DUPLICATE, CONFLICT, ACCEPTED]
    assert len(lane.ring) == 2


def test_slot_without_a_digest() -> None:
    """A slot that an earlier release wrote conflicts with nothing."""
    lane = Lane()
    lane.apply(lane.ring.check([encode_id(b"1")])._replace(new_digests=[0]))

    assert lane.judge((b"1", b"b")).verdicts == [DUPLICATE]


def test_each_value_is_accepted_once() -> None:
    """By value, each of an ID's values is accepted once, in any order and over batches."""
    lane = Lane(by_value=True)

    first = lane.judge((b"1", b"a"), (b"1", b"b"), (b"1", b"a"), (b"1", b"b"))
    assert first.verdicts == [ACCEPTED, ACCEPTED, DUPLICATE, DUPLICATE]
    assert first.originals == [None, None, 0, 1]
    assert first.conflicts_accepted == 1
    assert lane.judge((b"1", b"b"), (b"1", b"c"), (b"1", b"a")).verdicts == [DUPLICATE, ACCEPTED, DUPLICATE]


MESSAGES = st.tuples(st.sampled_from([b"1", b"2", None]), st.sampled_from([b"a", b"b", b"c"]))


@pytest.mark.parametrize("capacity", [0, 1, 3, 100])
@settings(derandomize=True, deadline=None, max_examples=60)
@given(batches=st.lists(st.lists(MESSAGES, max_size=8), max_size=6))
def test_by_value_is_a_ring_of_pairs(capacity: int, batches: list[list[tuple[bytes | None, bytes]]]) -> None:
    """By value, the verdicts are those of a ring in which ID and value together are the ID."""
    lane, pairs = Lane(capacity, by_value=True), Ring(capacity)
    for batch in batches:
        expected = pairs.check([None if id_ is None else id_ + value for id_, value in batch])
        pairs.apply(expected)

        checked = lane.judge(*batch)

        assert checked.verdicts == expected.verdicts
        assert checked.originals == expected.originals
