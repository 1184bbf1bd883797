import pytest

from ringfence_kafka.errors import InvariantError
from tables.ring import Ring, Verdict

ACCEPTED, DUPLICATE, UNCHECKED = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED


def _ids(text: str) -> list[bytes | None]:
    """One ID a letter; a dot is a message without ID."""
    return [None if name == "." else name.encode() for name in text]


def _verdicts(text: str) -> list[Verdict]:
    """Judge letters: A = accepted, D = duplicate, U = unchecked."""
    return [{"A": ACCEPTED, "D": DUPLICATE, "U": UNCHECKED}[name] for name in text]


def _accept(ring: Ring, text: str) -> str:
    checked = ring.check(_ids(text))
    ring.apply(checked)
    return "".join(verdict.name[0] for verdict in checked.verdicts)


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


def test_below_the_floor_is_dead() -> None:
    """An ID below the floor is accepted again although the ring has room for it."""
    ring = Ring(10)
    _accept(ring, "abc")
    ring = Ring(10, head=3, floor=2, index=ring.index)

    checked = ring.check(_ids("abc"))

    assert checked.verdicts == _verdicts("AAD")
    assert checked.originals == [None, None, 2]


def _accept_at(ring: Ring, *messages: tuple[str, int]) -> str:
    checked = ring.check([name.encode() for name, _ in messages], [time for _, time in messages])
    ring.apply(checked)
    return "".join(verdict.name[0] for verdict in checked.verdicts)


@pytest.mark.parametrize(("later", "verdict"), [(6_000, "D"), (6_001, "A")])
def test_age(later: int, verdict: str) -> None:
    """An ID exactly as old as the limit counts still; one millisecond more and it is accepted again."""
    one, two = Ring(10, max_age_ms=1_000), Ring(10, max_age_ms=1_000)

    assert _accept_at(one, ("a", 5_000), ("a", later)) == "A" + verdict
    assert _accept_at(two, ("a", 5_000)) + _accept_at(two, ("a", later)) == "A" + verdict


def _units(*texts: str) -> list[list[bytes]]:
    """Messages with several IDs: transactions. One ID a letter."""
    return [[letter.encode() for letter in text] for text in texts]


@pytest.mark.parametrize("together", [True, False])
def test_one_known_id_is_enough(together: bool) -> None:
    """A unit with one known ID is a duplicate of it, and its other IDs are not added."""
    ring, verdicts, originals = Ring(10), [], []
    batches = [["x", "abx", "b", "xab"]] if together else [["x"], ["abx"], ["b"], ["xab"]]
    for batch in batches:
        checked = ring.check_units(_units(*batch), [0] * len(batch))
        ring.apply(checked)
        verdicts += checked.verdicts
        originals += checked.originals

    assert verdicts == _verdicts("ADAD")
    assert originals == [None, 0, None, 0]
    assert len(ring) == 2
