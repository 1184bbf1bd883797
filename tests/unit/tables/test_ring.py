from collections.abc import Sequence
from itertools import permutations

import pytest

from ringfence_kafka.errors import InvariantError
from tables.ring import Checked, ResidentIndex, Ring, Verdict
from tests.support.at_once import rebuild

ACCEPTED, DUPLICATE, UNCHECKED = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED


def _ids(text: str) -> list[bytes | None]:
    """One ID a letter; a dot is a message without ID."""
    return [None if name == "." else name.encode() for name in text]


def _verdicts(text: str) -> list[Verdict]:
    """Judge letters: A = accepted, D = duplicate, U = unchecked."""
    return [{"A": ACCEPTED, "D": DUPLICATE, "U": UNCHECKED}[name] for name in text]


def _accept(ring: Ring, text: str) -> str:
    """Check and apply one batch; what was said, a letter a message."""
    checked = ring.check(_ids(text))
    ring.apply(checked)
    return "".join(verdict.name[0] for verdict in checked.verdicts)


# -- verdicts ---------------------------------------------------------------------------------------------------


def test_originals() -> None:
    """A duplicate names the sequence of its original, whether applied before or found in the same batch."""
    ring = Ring(10)
    _accept(ring, "abc")

    checked = ring.check(_ids("xb.xa"))

    assert checked.verdicts == _verdicts("ADUDD")
    assert checked.originals == [None, 1, None, 3, 0]
    assert checked.first_sequence == 3
    assert checked.new_ids == [b"x"]
    assert checked.new_times == [0]


@pytest.mark.parametrize("capacity", [1, 2, 3, 7])
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "single batches"])
def test_exactly_n_newer(capacity: int, together: bool) -> None:
    """The first ID is known while fewer than N newer were accepted, and accepted again after exactly N."""
    newer = "bcdefghijk"

    def replay(count: int) -> str:
        ring = Ring(capacity)
        text = "a" + newer[:count] + "a"
        return _accept(ring, text)[-1] if together else [_accept(ring, name) for name in text][-1]

    assert replay(capacity - 1) == "D"
    assert replay(capacity) == "A"


def test_lookup_does_not_refresh() -> None:
    """A duplicate does not get younger by being asked for: FIFO by acceptance."""
    ring = Ring(3)
    _accept(ring, "abc")
    for _ in range(5):
        assert _accept(ring, "a") == "D"
    _accept(ring, "d")

    assert _accept(ring, "a") == "A"


def test_empty_id_is_an_id() -> None:
    """Empty bytes are an ID like any other; None is none."""
    ring = Ring(2)
    ring.apply(ring.check([b"", None]))

    assert ring.check([b"", None]).verdicts == [DUPLICATE, UNCHECKED]


# -- check and apply ------------------------------------------------------------------------------------------------


def test_check_changes_nothing() -> None:
    """A check that is never applied leaves no trace: the replayed batch is not a duplicate of itself."""
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

    with pytest.raises(InvariantError, match="checked at head 0 the head is 1"):
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
    """An ID below the floor is accepted again although the ring has room for it."""
    index = rebuild([(0, b"a", 0), (1, b"b", 0), (2, b"c", 0)], 0, 3)
    ring = Ring(10, head=3, floor=2, index=index)

    checked = ring.check(_ids("abc"))

    assert checked.verdicts == _verdicts("AAD")
    assert checked.originals == [None, None, 2]


def test_floor_is_overtaken() -> None:
    """A floor holds until the ring has moved past it; then the capacity decides."""
    index = rebuild([(4, b"e", 0)], 4, 5)
    ring = Ring(3, head=5, floor=4, index=index)

    assert _accept(ring, "ab") == "AA"
    assert ring.low == 4
    assert _accept(ring, "e") == "D"
    assert _accept(ring, "c") == "A"
    assert ring.low == 5
    assert _accept(ring, "e") == "A"


# -- the resident index ----------------------------------------------------------------------------------------------


def _known(index: ResidentIndex, text: str) -> dict[str, int]:
    found = index.lookup([name.encode() for name in text])
    return {name: sequence for name, sequence in zip(text, found, strict=True) if sequence is not None}


def test_index_forgets() -> None:
    """The index holds the live IDs and no more, however long the ring runs: memory stays bounded."""
    index = ResidentIndex()
    ring = Ring(5, index=index)
    for number in range(1_000):
        ring.apply(ring.check([b"%d" % number, None, b"%d" % number]))

    assert len(index) == 5
    assert index.lookup([b"994", b"995", b"999"]) == [None, 995, 999]
    assert len(index._order) == 5


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_rebuild_in_any_order(order: Sequence[int]) -> None:
    """Entries come from RocksDB in no order; of two of one ID the later stands."""
    entries = [(10, b"a", 0), (11, b"b", 0), (12, b"a", 0), (13, b"c", 0)]

    index = rebuild([entries[number] for number in order], 10, 14)

    assert _known(index, "abc") == {"a": 12, "b": 11, "c": 13}


def test_rebuild_forgets_in_order() -> None:
    """A rebuilt index forgets by sequence, and keeps an ID whose older sequence goes."""
    index = rebuild([(13, b"c", 0), (12, b"a", 0), (10, b"a", 0), (11, b"b", 0)], 10, 14)

    index.add(Checked([], [], 14, [b"d"], [0]), 11)
    assert _known(index, "abcd") == {"a": 12, "b": 11, "c": 13, "d": 14}
    index.add(Checked([], [], 15, [b"e"], [0]), 13)
    assert _known(index, "abcde") == {"c": 13, "d": 14, "e": 15}


def test_rebuild_with_missing_sequences() -> None:
    """Sequences that nobody knows any more are gaps: what follows them is forgotten at its own time."""
    index = rebuild([(12, b"c", 0), (15, b"f", 0)], 10, 17)

    index.add(Checked([], [], 17, [b"h"], [0]), 12)
    assert _known(index, "cfh") == {"c": 12, "f": 15, "h": 17}
    index.add(Checked([], [], 18, [], []), 13)
    assert _known(index, "cfh") == {"f": 15, "h": 17}
    index.add(Checked([], [], 18, [], []), 17)
    assert _known(index, "cfh") == {"h": 17}


def test_rebuild_leaves_out_the_dead() -> None:
    """Entries below low or from head on are dead, also where they name an ID that lives."""
    entries = [(9, b"x"), (10, b"a"), (11, b"b"), (9, b"b"), (12, b"a"), (12, b"y"), (99, b"z"), (-1, b"w")]

    index = rebuild([(*entry, 0) for entry in entries], 10, 12)

    assert _known(index, "abwxyz") == {"a": 10, "b": 11}
    assert len(index) == 2


def test_index_may_forget_more_than_it_has() -> None:
    """An index whose low position passes its end, as after a clearing, continues from there."""
    index = rebuild([(3, b"a", 0)], 3, 4)

    index.add(Checked([], [], 4, [], []), 9)
    index.add(Checked([], [], 9, [b"b", b"c"], [0, 0]), 9)
    assert _known(index, "abc") == {"b": 9, "c": 10}

    index.add(Checked([], [], 11, [], []), 10)
    assert _known(index, "abc") == {"c": 10}


# -- maximum age ----------------------------------------------------------------------------------------------------


def _aged(capacity: int = 10, max_age_ms: int = 1_000) -> Ring:
    return Ring(capacity, max_age_ms=max_age_ms)


def _accept_at(ring: Ring, *messages: tuple[str, int]) -> str:
    """Check and apply one batch of (ID, timestamp); what was said, a letter a message."""
    ids, times = [_ids(name)[0] for name, _ in messages], [time for _, time in messages]
    checked = ring.check(ids, times)
    ring.apply(checked)
    return "".join(verdict.name[0] for verdict in checked.verdicts)


together = pytest.mark.parametrize("together", [True, False], ids=["one batch", "single batches"])


def _both(ring: Ring, together: bool, *messages: tuple[str, int]) -> str:
    if together:
        return _accept_at(ring, *messages)
    return "".join(_accept_at(ring, message) for message in messages)


@together
def test_age(together: bool) -> None:
    """An ID exactly as old as the limit counts still; one millisecond more and it is accepted again."""
    assert _both(_aged(), together, ("a", 5_000), ("a", 6_000)) == "AD"
    assert _both(_aged(), together, ("a", 5_000), ("a", 6_001)) == "AA"


def test_age_in_new_times() -> None:
    """The outcome names the record time of each new ID, of no other message, in order."""
    ring = _aged()

    checked = ring.check(_ids("a.ab"), [7, 8, 9, 5])

    expected = Checked(
        [ACCEPTED, UNCHECKED, DUPLICATE, ACCEPTED], [None, None, 0, None], 0, [b"a", b"b"], [7, 5]
    )
    assert checked == expected


def test_age_after_rebuild() -> None:
    """A rebuilt index knows the time of each live sequence, in whatever order they come."""
    entries = [
        (12, b"c", 300),
        (10, b"a", 100),
        (13, b"a", 900),
        (11, b"b", 0),
        (9, b"x", 900),
        (14, b"y", 900),
    ]
    index = rebuild(entries, 10, 14, capacity=5)
    ring = Ring(5, head=14, floor=10, index=index, max_age_ms=1_000)

    assert [index.time(b"", number) for number in (10, 11, 12, 13)] == [100, 0, 300, 900]
    assert ring.check(_ids("abcxy"), [1_300] * 5).verdicts == _verdicts("DADAA")
    assert ring.check(_ids("a"), [1_901]).verdicts == _verdicts("A")


def test_age_takes_little_memory() -> None:
    """Times take 8 bytes a slot however long the ring runs, and none where IDs have no maximum age."""
    aged, plain = ResidentIndex(0, 5), ResidentIndex()
    rings = Ring(5, index=aged, max_age_ms=10), Ring(5, index=plain)
    for number in range(100):
        for ring in rings:
            ring.apply(ring.check([b"%d" % number], [number]))

    assert len(aged._times) == 5
    assert [aged.time(b"", number) for number in (95, 99)] == [95, 99]
    assert len(plain._times) == 0
