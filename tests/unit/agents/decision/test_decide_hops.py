"""Records that came over bridges, on the path: at home by what counts, judged by their hop first, emitted without it."""

from typing import Any

import pytest

from agents.decision.item import RESENT
from agents.decision.partitioner import Partitioner
from agents.output.topic_batches import TooLargeError
from ringfence_kafka.protocol.hop import Hop, Source, encode
from tables.ring import Verdict
from tests.unit.agents.decision.test_decide import Given, homes, offsets
from tests.unit.agents.decision.test_decide_envelopes import (
    AT_HOME,
    AWAY,
    LANES,
    Lane,
    emitted,
    envelope,
    part,
)

ACCEPTED, DUPLICATE, UNCHECKED = Verdict.ACCEPTED, Verdict.DUPLICATE, Verdict.UNCHECKED
SOURCE = Source("to-paris", "AbC_-67890123456789012", 3)
IGNORE = ("_RF_BRIDGE_IDS", b"ignore")
PARTS = part(), part()


def _hop(offset: int) -> bytes:
    return encode(Hop(SOURCE, offset))


def crossed(
    offset: int,
    step: int,
    confirmed: int = 0,
    key: bytes | None = AT_HOME,
    user_id: bytes | None = None,
    *more: tuple[str, bytes | None],
) -> Given:
    """Return a record at ``offset`` of the input that stands at ``step`` of its source."""
    headers: list[tuple[str, bytes | None]] = [("a", b"1")]
    if user_id is not None:
        headers.append(("_AMQ_DUPL_ID", user_id))
    headers += [("_RF_BRIDGE_DUPL_ID", _hop(step)), ("_RF_BRIDGE_CONFIRMED", b"%d" % confirmed), *more]
    return Given(offset, key, headers)


def plain(offset: int, user_id: bytes, key: bytes | None = AT_HOME) -> Given:
    return Given(offset, key, [("_AMQ_DUPL_ID", user_id)])


def _accepted(lane: Lane, *records: Given) -> list[Any]:
    return [item for item in emitted(lane, lane.decide(*records)) if item.topic.endswith(".accepted")]


def _led(number: int, lane: int) -> int:
    home = Partitioner(LANES)
    return [index for index in range(1_000) if home[_hop(index)] == lane][number]


def test_home_by_the_hop() -> None:
    """The hop decides the home of a record without a group and without an ID that counts, because a resend has it too."""
    here, away = _led(0, 1), _led(0, 2)
    user_id = next(data for data in (b"%d" % index for index in range(100)) if Partitioner(LANES)[data] == 3)
    outcome = Lane().decide(
        crossed(0, here, 0, None), crossed(1, away, 0, None), crossed(2, here + 1_000, 0, AWAY),
        crossed(3, away, 0, None, user_id, IGNORE), crossed(4, here, 0, None, user_id),
    )  # fmt: skip

    assert offsets(outcome.here) == [0]
    assert homes(outcome) == [(2, 1), (2, 2), (2, 3), (3, 4)]


def test_accepted_without_hops() -> None:
    """The bridge's headers go; the members that it has passed stay, and so does all that is the producer's, but for forged members."""
    members = ("_RF_HOPS", b"berlin,paris")
    forged = [("_AMQ_DUPL_ID", b"j"), members, IGNORE, ("_RF_BRIDGE_CONFIRMED", b"x")]
    outs = _accepted(Lane(), crossed(0, 7, 5, AT_HOME, b"i", IGNORE, members), Given(1, AT_HOME, forged))

    assert [out.headers for out in outs] == [
        {"a": b"1", "_AMQ_DUPL_ID": b"i", "_RF_HOPS": b"berlin,paris", "_RF_SOURCE": b"transfers/1/0"},
        {"_AMQ_DUPL_ID": b"j", "_RF_SOURCE": b"transfers/1/1"},
    ]


def test_observed() -> None:
    """If the address observes, a copy that a bridge sent again is still dropped; a duplicate by its ID passes."""
    lane = Lane(mode="observe")
    lane.verdicts(crossed(0, 7), plain(1, b"a"))
    outs = emitted(lane, lane.decide(crossed(2, 7), crossed(3, 8, 0, AT_HOME, b"a"), crossed(4, 9)))

    assert [(out.topic, out.headers["_RF_SOURCE"], out.headers["_RF_VERDICT"]) for out in outs] == [
        ("transfers.accepted", b"transfers/1/3", b"DUPLICATE transfers/1/1"),
        ("transfers.accepted", b"transfers/1/4", b"UNCHECKED"),
    ]


def _over(record: Given, step: int, *more: tuple[str, bytes | None], confirmed: int = 0) -> Given:
    headers = [*record.headers, *crossed(0, step, confirmed, None, None, *more).headers[1:]]
    return Given(record.offset, record.key, headers, record.value, record.timestamp)


def test_envelope_is_one_hop() -> None:
    """An envelope is one hop: it is a duplicate as a whole, and none of its parts' IDs is added."""
    lane = Lane()
    assert lane.verdicts(_over(envelope(0, part(ID="a"), part(ID="b")), 7)) == [ACCEPTED]

    again = _over(envelope(1, part(ID="c"), part(ID="d")), 7)
    assert lane.verdicts(again) == [DUPLICATE]
    assert lane.verdicts(plain(2, b"c"), plain(3, b"a")) == [ACCEPTED, DUPLICATE]


@pytest.mark.parametrize("parts", [[part(ID="a")], [part(ID="a"), part(ID="b")]])
def test_envelope_whose_ids_are_ignored(parts: list[Any]) -> None:
    """The IDs of an envelope whose bridge ignores IDs are neither checked nor added."""
    lane = Lane()
    lane.verdicts(plain(0, b"a"))

    assert lane.verdicts(_over(envelope(1, *parts, ID=b"own"), 7, IGNORE)) == [UNCHECKED]
    assert lane.verdicts(plain(2, b"own"), plain(3, b"b")) == [ACCEPTED, ACCEPTED]


def test_envelope_without_a_key() -> None:
    """An envelope without a key has its home by its first ID, or by its hop if IDs are ignored."""
    home = Partitioner(LANES)
    identifier = next(name for name in (f"{index}" for index in range(100)) if home[name.encode()] == 3)
    step = _led(0, 2)
    envelopes = [
        _over(envelope(0, part(ID=identifier), key=None), step),
        _over(envelope(1, part(ID=identifier), key=None), step, IGNORE),
        _over(envelope(2, part(), key=None), step),
    ]
    outcome = Lane().decide(*envelopes)

    assert homes(outcome) == [(3, 0), (2, 1), (2, 2)]


def test_parts_have_the_members() -> None:
    outs = _accepted(Lane(), _over(envelope(0, part(), part("payments")), 7, ("_RF_HOPS", b"berlin")))

    assert [out.headers["_RF_HOPS"] for out in outs] == [b"berlin"] * 2
    assert not any(name.startswith("_RF_BRIDGE") for out in outs for name in out.headers)


def test_cut_off_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is left for the next transaction does not count as arrived."""
    monkeypatch.setattr("agents.decision.decide.BATCH_PARTS_MAX", 2)
    lane = Lane()
    outcome = lane.decide(_over(envelope(0, *PARTS), 7), _over(envelope(1, *PARTS), 8), crossed(2, 9))

    assert outcome.ends[0] == 1
    assert outcome.judged.known == [False]
    lane.table.apply(outcome)
    assert lane.verdicts(_over(envelope(1, *PARTS), 8), crossed(2, 9)) == [UNCHECKED, UNCHECKED]


LARGE = "too large"


def _refuse(lane: Lane, *records: Given, refused: dict[int, str], topic: str = "transfers") -> list[int]:
    """One batch, which is applied; the offsets of what goes to quarantine."""
    outcome = lane.decide(*records, refused=refused, topic=topic)
    lane.table.apply(outcome)
    return offsets(outcome.quarantined)


def test_refused_is_noted() -> None:
    """A quarantined record counts as arrived, with the offset that it confirms: otherwise its resend would be accepted or kept again."""
    lane = Lane()
    sent = crossed(0, 6), crossed(1, 9, 7), crossed(2, 9, 7), crossed(3, 10)

    assert _refuse(lane, *sent, refused={1: LARGE, 2: LARGE}) == [1]
    assert _refuse(lane, crossed(4, 9), refused={4: LARGE}) == []
    assert lane.verdicts(crossed(5, 9), crossed(6, 5), crossed(7, 8)) == [DUPLICATE, DUPLICATE, UNCHECKED]


def _malformed(offset: int, step: int, key: bytes | None) -> Given:
    return Given(offset, key, [("_RF_TX", b"json/1"), *crossed(offset, step).headers], b"{")


def test_malformed_envelope() -> None:
    """A malformed envelope counts as one hop as well. Without a key it is refused at the home of its hop, so its resend meets it."""
    lane, away = Lane(), _led(0, 2)

    assert _refuse(lane, *(_malformed(at, 7, AT_HOME) for at in range(2)), refused={}) == [0]
    assert _refuse(lane, _malformed(1, 7, AT_HOME), refused={}) == []
    for refused in ({}, {1: LARGE}):
        outcome = lane.decide(_malformed(0, away, None), plain(1, b"a"), refused=dict(refused))
        assert homes(outcome) == [(2, 0)]
        assert offsets(outcome.quarantined) == list(refused)


def test_duplicate_that_does_not_fit() -> None:
    """A duplicate that the duplicates topic refuses is quarantined as a duplicate: publishing it again would process it twice."""
    lane = Lane()
    lane.verdicts(crossed(0, 7))
    lane.emitter._outputs.bytes_max["transfers.duplicates"] = 500
    records = Given(1, AT_HOME, crossed(1, 7).headers, b"v" * 1_000), crossed(2, 7)
    with pytest.raises(TooLargeError) as error:
        emitted(lane, lane.decide(*records))
    outcome = lane.decide(*records, refused={at: reason for (_, at), reason in error.value.reasons.items()})

    assert [(out.topic, "_RF_ORIGINAL" in out.headers) for out in emitted(lane, outcome)] == [
        ("transfers.duplicates", True), ("transfers.quarantine", False),
    ]  # fmt: skip
    assert [item.reason.startswith(f"{RESENT}: ") for item in outcome.quarantined] == [True]
    assert outcome.judged.known == [True, True]


def test_ids_that_are_ignored_are_not_needed() -> None:
    """A message needs no ID if its bridge ignores IDs. Another one is refused if IDs are needed, and its hop is noted."""
    lane = Lane(duplicate_id_missing="quarantine")
    outcome = lane.decide(crossed(0, 7, 0, AT_HOME, None, IGNORE), crossed(1, 8))
    lane.table.apply(outcome)

    assert [item.record.offset for item in outcome.here] == [0]
    assert [item.record.offset for item in outcome.quarantined] == [1]
    assert lane.verdicts(crossed(2, 8, 0, AT_HOME, None, IGNORE)) == [DUPLICATE]
