import random
from collections.abc import Sequence
from itertools import permutations

import pytest

from tables.ring import ResidentIndex, Ring, Verdict

ACCEPTED, DUPLICATE, UNCHECKED = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED


def _ids(text: str) -> list[bytes | None]:
    """One ID a letter; a dot is a message without ID."""
    return [None if each == "." else each.encode() for each in text]


def _verdicts(text: str) -> list[Verdict]:
    """A = accepted, D = duplicate, U = unchecked."""
    return [{"A": ACCEPTED, "D": DUPLICATE, "U": UNCHECKED}[each] for each in text]


def _accept(ring: Ring, text: str) -> str:
    """Check and apply one batch; what was said, a letter a message."""
    checked = ring.check(_ids(text))
    ring.apply(checked)
    return "".join(each.name[0] for each in checked.verdicts)


# -- verdicts ---------------------------------------------------------------------------------------------------


def test_first_time_and_again() -> None:
    """An ID is accepted once and a duplicate from then on."""
    ring = Ring(10)

    assert _accept(ring, "a") == "A"
    assert _accept(ring, "a") == "D"
    assert _accept(ring, "ba") == "AD"


def test_originals() -> None:
    """A duplicate names the sequence of its original, whether applied before or found in the same batch."""
    ring = Ring(10)
    _accept(ring, "abc")

    checked = ring.check(_ids("xb.xa"))

    assert checked.verdicts == _verdicts("ADUDD")
    assert checked.originals == [None, 1, None, 3, 0]
    assert checked.first_sequence == 3
    assert checked.new_ids == [b"x"]


@pytest.mark.parametrize("capacity", [1, 2, 3, 7])
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "single batches"])
def test_exactly_n_newer(capacity: int, together: bool) -> None:
    """The first ID is known while fewer than N newer were accepted, and accepted again after exactly N."""
    newer = "bcdefghijk"

    def replay(count: int) -> str:
        ring = Ring(capacity)
        text = "a" + newer[:count] + "a"
        return _accept(ring, text)[-1] if together else [_accept(ring, each) for each in text][-1]

    assert replay(capacity - 1) == "D"
    assert replay(capacity) == "A"


def test_overwrites_the_oldest_only() -> None:
    """The N+1st overwrites the 0th and no other."""
    ring = Ring(3)
    _accept(ring, "abcd")

    assert ring.check(_ids("bcd")).verdicts == _verdicts("DDD")
    assert ring.check(_ids("a")).verdicts == _verdicts("A")
    assert len(ring) == 3


def test_lookup_does_not_refresh() -> None:
    """A duplicate does not get younger by being asked for: FIFO by acceptance."""
    ring = Ring(3)
    _accept(ring, "abc")
    for _ in range(5):
        assert _accept(ring, "a") == "D"
    _accept(ring, "d")

    assert _accept(ring, "a") == "A"


def test_known_id_is_not_added_twice() -> None:
    """A duplicate takes no slot, across batches and within one: nothing is evicted by it."""
    ring = Ring(3)

    assert _accept(ring, "aabab") == "ADADD"
    assert ring.head == 2
    assert _accept(ring, "abab") == "DDDD"
    assert ring.head == 2
    assert _accept(ring, "c") == "A"
    assert _accept(ring, "abc") == "DDD"


def test_no_id_burns_no_slot() -> None:
    """Messages without ID pass unchecked, any number of them, and evict nothing."""
    ring = Ring(2)
    _accept(ring, "ab")

    assert _accept(ring, "....") == "UUUU"
    assert ring.head == 2
    assert _accept(ring, "a.b") == "DUD"


def test_empty_id_is_an_id() -> None:
    """Empty bytes are an ID like any other; None is none."""
    ring = Ring(2)
    ring.apply(ring.check([b"", None]))

    assert ring.check([b"", None]).verdicts == [DUPLICATE, UNCHECKED]


@pytest.mark.parametrize("capacity", [0, 1])
def test_empty_batch(capacity: int) -> None:
    """A batch without messages is nothing, and may be applied."""
    ring = Ring(capacity)

    assert _accept(ring, "") == ""
    assert ring.head == 0


def test_size_0_is_off() -> None:
    """With size 0 everything passes unchecked and nothing is remembered."""
    ring = Ring(0)

    assert _accept(ring, "aa.a") == "UUUU"
    assert _accept(ring, "a") == "U"
    assert (ring.head, ring.low, len(ring)) == (0, 0, 0)


def test_size_1() -> None:
    """With size 1 the last accepted ID is known, and only that one."""
    ring = Ring(1)

    assert _accept(ring, "aabba") == "ADADA"
    assert _accept(ring, "ab") == "DA"


def test_batch_larger_than_the_ring() -> None:
    """The running head decides within a batch too: what the batch itself evicted is accepted again."""
    ring = Ring(3)

    # a0 b1 c2 d3 e4 a5 b6 c7 e8 d9: each comes back after three or more newer ones; the last e follows one.
    assert _accept(ring, "abcdeabcede") == "AAAAAAAAAAD"
    assert ring.head == 10
    assert ring.check(_ids("ced")).verdicts == _verdicts("DDD")
    assert ring.check(_ids("ab")).verdicts == _verdicts("AA")


def test_one_batch_or_many() -> None:
    """How messages are cut into batches changes no verdict."""
    source = random.Random(7)
    text = "".join(source.choice("abcdefgh.") for _ in range(2_000))
    for capacity in (0, 1, 3, 7, 8, 50):
        singly, whole, cut = Ring(capacity), Ring(capacity), Ring(capacity)
        expected = "".join(_accept(singly, each) for each in text)
        pieces, at = [], 0
        while at < len(text):
            size = source.randint(0, 40)
            pieces.append(_accept(cut, text[at : at + size]))
            at += size

        assert _accept(whole, text) == expected
        assert "".join(pieces) == expected
        assert (cut.head, cut.low) == (singly.head, singly.low)


def test_accepted_again_in_the_batch_that_evicts_it() -> None:
    """The newer entry of an ID survives when the slot of the older one is forgotten."""
    ring = Ring(3)
    _accept(ring, "abc")

    assert _accept(ring, "da") == "AA"  # d3 evicts a0, so a4; only then is a0 forgotten
    assert _accept(ring, "a") == "D"
    assert _accept(ring, "efa") == "AAD"
    assert _accept(ring, "ga") == "AA"


def test_accepted_again_after_eviction() -> None:
    """An ID that comes back after its eviction is remembered for N newer ones from its new acceptance."""
    ring = Ring(3)
    for each in "abcd":
        _accept(ring, each)

    assert [_accept(ring, each) for each in "aefaga"] == ["A", "A", "A", "D", "A", "A"]


# -- check and apply ------------------------------------------------------------------------------------------------


def test_check_changes_nothing() -> None:
    """A check that is never applied leaves no trace: the replayed batch is no duplicate of itself."""
    ring = Ring(3)
    _accept(ring, "ab")
    before = (ring.head, ring.low, len(ring), ring.index.lookup([b"a", b"b", b"c", b"d", b"e"]))

    first = ring.check(_ids("cdea.b"))
    second = ring.check(_ids("cdea.b"))

    assert second == first
    assert first.verdicts == _verdicts("AAAAUA")
    after = (ring.head, ring.low, len(ring), ring.index.lookup([b"a", b"b", b"c", b"d", b"e"]))
    assert after == before


def test_apply_at_the_wrong_head() -> None:
    """An outcome is applied to the ring that it was checked against; anything else is a programmer error."""
    ring = Ring(3)
    first, second = ring.check(_ids("a")), ring.check(_ids("b"))
    ring.apply(first)

    with pytest.raises(AssertionError, match="checked at head 0, but the head is 1"):
        ring.apply(second)

    assert ring.head == 1
    assert ring.check(_ids("ab")).verdicts == _verdicts("DA")


# -- floor and low ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "head", "floor", "low"),
    [
        (10, 0, 0, 0),
        (10, 4, 0, 0),
        (10, 10, 0, 0),
        (10, 11, 0, 1),
        (10, 15, 3, 5),
        (10, 15, 7, 7),
        (10, 15, 15, 15),
        (0, 15, 3, 15),
        (10, 4, -6, 0),
    ],
)
def test_low(capacity: int, head: int, floor: int, low: int) -> None:
    """The lowest live sequence is the larger of floor and head - capacity, and never negative."""
    ring = Ring(capacity, head, floor)

    assert ring.low == low
    assert len(ring) == head - low


def test_below_the_floor_is_dead() -> None:
    """What lies below the floor is accepted again although the ring has room for it."""
    index = ResidentIndex.rebuild(enumerate([b"a", b"b", b"c"]), 0, 3)
    ring = Ring(10, head=3, floor=2, index=index)

    checked = ring.check(_ids("abc"))

    assert checked.verdicts == _verdicts("AAD")
    assert checked.originals == [None, None, 2]


def test_floor_is_overtaken() -> None:
    """A floor holds until the ring has moved past it; then the capacity decides."""
    index = ResidentIndex.rebuild([(4, b"e")], 4, 5)
    ring = Ring(3, head=5, floor=4, index=index)

    assert _accept(ring, "ab") == "AA"
    assert ring.low == 4
    assert _accept(ring, "e") == "D"
    assert _accept(ring, "c") == "A"
    assert ring.low == 5
    assert _accept(ring, "e") == "A"


# -- the resident index ----------------------------------------------------------------------------------------------


def _known(index: ResidentIndex, text: str) -> dict[str, int]:
    found = index.lookup([each.encode() for each in text])
    return {each: sequence for each, sequence in zip(text, found, strict=True) if sequence is not None}


def test_index_forgets() -> None:
    """The index holds the live IDs and no more, however long the ring runs: memory stays bounded."""
    index = ResidentIndex()
    ring = Ring(5, index=index)
    for number in range(1_000):
        ring.apply(ring.check([b"%d" % number, None, b"%d" % number]))

    assert len(index) == 5
    assert index.lookup([b"994", b"995", b"999"]) == [None, 995, 999]
    assert len(index._order) == 5


def test_index_forgets_within_one_batch() -> None:
    """A batch larger than the ring leaves no more than the ring's size behind."""
    index = ResidentIndex()
    ring = Ring(3, index=index)
    _accept(ring, "abcdeabcede")

    assert _known(index, "abcde") == {"c": 7, "e": 8, "d": 9}
    assert len(index) == len(index._order) == 3


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_rebuild_in_any_order(order: Sequence[int]) -> None:
    """Entries come from RocksDB in no order; of two of one ID the later stands."""
    entries = [(10, b"a"), (11, b"b"), (12, b"a"), (13, b"c")]

    index = ResidentIndex.rebuild([entries[each] for each in order], 10, 14)

    assert _known(index, "abc") == {"a": 12, "b": 11, "c": 13}


def test_rebuild_forgets_in_order() -> None:
    """A rebuilt index forgets by sequence, and keeps an ID whose older sequence goes."""
    index = ResidentIndex.rebuild([(13, b"c"), (12, b"a"), (10, b"a"), (11, b"b")], 10, 14)

    index.add(14, [b"d"], 11)
    assert _known(index, "abcd") == {"a": 12, "b": 11, "c": 13, "d": 14}
    index.add(15, [b"e"], 13)
    assert _known(index, "abcde") == {"c": 13, "d": 14, "e": 15}


def test_rebuild_with_missing_sequences() -> None:
    """Sequences that nobody knows any more are gaps: what follows them is forgotten at its own time."""
    index = ResidentIndex.rebuild([(12, b"c"), (15, b"f")], 10, 17)

    index.add(17, [b"h"], 12)
    assert _known(index, "cfh") == {"c": 12, "f": 15, "h": 17}
    index.add(18, [], 13)
    assert _known(index, "cfh") == {"f": 15, "h": 17}
    index.add(18, [], 17)
    assert _known(index, "cfh") == {"h": 17}


def test_rebuild_leaves_out_the_dead() -> None:
    """Entries below low or from head on are dead, also where they name an ID that lives."""
    entries = [(9, b"x"), (10, b"a"), (11, b"b"), (9, b"b"), (12, b"a"), (12, b"y"), (99, b"z"), (-1, b"w")]

    index = ResidentIndex.rebuild(entries, 10, 12)

    assert _known(index, "abwxyz") == {"a": 10, "b": 11}
    assert len(index) == 2


def test_rebuild_of_nothing() -> None:
    """An empty index is one that forgets properly from where it begins."""
    index = ResidentIndex.rebuild([], 5, 5)
    ring = Ring(2, head=5, floor=5, index=index)

    assert _accept(ring, "abcab") == "AAAAA"
    assert _known(index, "abc") == {"a": 8, "b": 9}


@pytest.mark.parametrize("cut", [0, 1, 5, 50])
def test_rebuilt_ring_goes_on_the_same(cut: int) -> None:
    """A ring over a rebuilt index says what the ring that never stopped says, for as long as both run."""
    source = random.Random(cut)

    def batch() -> list[bytes | None]:
        return _ids("".join(source.choice("abcdefgh.") for _ in range(source.randint(0, 12))))

    running = Ring(6)
    for _ in range(cut):
        running.apply(running.check(batch()))
    letters = [b"%c" % each for each in b"abcdefgh"]
    found = zip(running.index.lookup(letters), letters, strict=True)
    entries = [(sequence, each) for sequence, each in found if sequence is not None]
    index = ResidentIndex.rebuild(entries, running.low, running.head)
    rebuilt = Ring(6, running.head, running.floor, index)

    for _ in range(200):
        ids = batch()
        checked = running.check(ids)
        assert rebuilt.check(ids) == checked
        running.apply(checked)
        rebuilt.apply(checked)
    assert len(index) == 6
