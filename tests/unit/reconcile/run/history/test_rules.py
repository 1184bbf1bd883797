"""Rules that a run keeps of an address, and doubts of the next run: pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reconcile.anomalies.names import Anomaly, Doubt
from reconcile.run.history import rules
from reconcile.run.history.cut import AddressCut, Lost, Position, Recorded, Span, TopicCut
from reconcile.run.history.history import Run
from reconcile.run.history.rings import Regrouped, Rings, regroups
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings

RINGS = Rings.from_settings(0, 2)


def _address(**keys: Any) -> AddressSettings:
    (found,) = validate({"addresses": [{"name": "a", **keys}]}).addresses
    return found


def _run(number: int, accepted: dict[int, int], **keys: Any) -> Run:
    run = Run(number, number - 1 or None, "2026-11-21", "clean", accepted={"a": accepted})
    run.rules = {"a": rules.kept(_address(**keys))}
    return Run.from_json(run.to_json(), acknowledged=False)


def test_a_size_that_no_worker_was_started_with_promises_nothing() -> None:
    """A size promises nothing until the journal records it: lane 0 had IDs under another size, lane 1 had none.

    A run that kept no size does not count.
    """
    small, large = _run(1, {0: 5}, id_cache_size=10), _run(2, {0: 5}, id_cache_size=20)
    old = Run(1, None, "2026-11-21", "clean", accepted={"a": {0: 5}})

    def promised(size: int, *chain: Run) -> dict[int, int]:
        (found,) = rules.promised([_address(id_cache_size=size)], {"a": _cut()}, chain, [RINGS])
        return found

    assert promised(20, small) == {0: 10, 1: 10}
    assert promised(20, large, small) == {0: 10, 1: 20}
    assert promised(5, large, small) == {0: 5, 1: 5}
    assert promised(20, old) == {0: 20, 1: 20}
    # Once a lane has turned over since that run.
    later = [_run(number, {0: 10}, id_cache_size=20) for number in (4, 3)]
    assert promised(20, *later, small) == {0: 20, 1: 20}
    assert promised(21, *later, small) == {0: 10, 1: 20}
    assert promised(5, _run(2, {}, id_cache_size=0)) == {0: 0, 1: 0}


def test_lanes_that_go_by_other_rules_than_this_file() -> None:
    """Lanes under other rules than the file's make verdicts uncertain. A ring promises its recorded size, not that of the file."""
    own = _address(id_cache_size=20, duplicate_id_from="key", id_max_age=1.5)
    alike = Recorded({"duplicate_id_from": "key", "group_header": "", "b: group_header": "x"}, 20, 1_500)
    older = Recorded({"duplicate_id_from": "value", "a: group_header": "x"}, 10, 0)

    def doubts(*recorded: Recorded) -> list[Doubt]:
        return rules.doubts([own], {"a": _cut(recorded=recorded)}, None, [RINGS])

    assert doubts() == doubts(alike, alike) == []
    assert len(doubts(alike, older)) == 1
    (doubt,) = doubts(alike, older)
    assert doubt.why.startswith(
        "lanes 1 of a have another a: group_header and duplicate_id_from and id_max_age than this file"
    )
    assert {Anomaly.LOST, Anomaly.FORGOTTEN, Anomaly.TORN} <= doubt.anomalies
    assert Anomaly.PHANTOM not in doubt.anomalies
    cut = replace(_cut(), recorded={1: older})
    assert rules.promised([own], {"a": cut}, [], [RINGS]) == [{0: 20, 1: 10}]


def test_a_promise_in_time() -> None:
    """A changed promise makes verdicts uncertain, in the run that sees it and in lanes that go by another one; its largest size counts."""
    plain = _address(id_cache_size=20)
    hour, day = (_address(id_cache_size=20, id_cache_size_max=90, id_min_age=age) for age in ("1h", "1d"))
    said = Recorded({}, 90, 0, min_age_ms=3_600_000, size=20)

    def why(address: AddressSettings, before: AddressSettings, *recorded: Recorded) -> list[str]:
        run = replace(_run(1, {}), rules={"a": rules.kept(before)})
        found = rules.doubts([address], {"a": _cut(recorded=recorded)}, run, [RINGS])
        return [doubt.why for doubt in found]

    assert why(hour, hour, said) == why(plain, plain) == []
    assert why(hour, plain) == why(plain, hour) == why(hour, day) == ["id_min_age changed since the last run"]
    assert why(hour, hour.model_copy(update={"id_cache_size": 9}))
    assert why(day, day, said)[0].startswith("lanes 0 of a have another id_min_age than this file")
    assert rules.promised([hour], {"a": _cut()}, [], [RINGS]) == [{0: 90, 1: 90}]
    assert [rules.size_kept(rules.kept(address)) for address in (plain, hour)] == [20, 90]
    assert rules.size_kept({}) is None


def test_lanes_of_which_all_ids_are_known() -> None:
    """All IDs of a lane are known once it has turned over since evidence was missing, even if a quiet lane has not.

    Evidence gone in this run affects all lanes. Lost inputs came before those of the run; when lost outputs came is not
    known.
    """
    base = _run(3, {})
    base.whole_since = {"a": 2}
    assert rules.whole_since("a", _cut(), None, 4) == 0
    gone = (("forward",), ("input",), ("input", "accepted"))
    assert [rules.whole_since("a", _cut(*roles), base, 4) for roles in gone] == [2, 4, 5]
    base.known = {"a": {0: 5, 1: 4}}

    assert rules.lanes_whole("a", _cut(), base, 5) == [0]
    assert rules.lanes_whole("a", _cut(), base, 4) == [0, 1]
    assert [rules.lanes_whole("a", _cut(role), base, 4) for role in ("input", "accepted")] == [[], []]
    assert rules.lanes_whole("a", _cut(), None, 0) == rules.lanes_whole("b", _cut(), base, 0) == []
    (rule,) = rules.rules_of([_address()], {"a": _cut()}, [base], 2, [5], {0}, (), {0}, {"a": False})
    assert (rule["evidence_deleted"], rule["lanes_whole"]) == (True, [0])


def test_since_when_homes_are_where_they_are() -> None:
    """The run that sees another partitioner first has judged by both; one without the address has judged by none."""
    first, second = (_run(number, {}, partitioner="crc32") for number in (1, 2))
    third = _run(3, {}, partitioner="murmur2")
    old = Run(1, None, "2026-11-21", "clean")
    now = _address()

    assert rules.moved(now, [third, second, first], 4) == 3
    assert rules.moved(now, [second, first], 3) == 3
    assert rules.moved(now, [third, old], 4) == rules.moved(now, [], 1) == 0
    assert Anomaly.FORGOTTEN in _doubted(now, second, _cut())
    assert _doubted(now, third, _cut()) == set()


def test_a_ring_that_was_switched_off_is_on_until_it_is_told() -> None:
    """The IDs of a ring that was switched off count as long as it may have known them.

    That holds if only the configuration, or the journal too, switched it off.
    """
    off, before = _address(id_cache_size=0), _run(1, {})
    before.summary = {"addresses": {"a": {"ring": {"capacity": 9}}}}

    assert rules.detects([off], {}, None) == set()
    assert rules.detects([off], {}, before) == {0}
    assert rules.detects([off], {0}, None) == {0}
    assert rules.detects([_address()], {}, None) == {0}


def test_lanes_that_are_not_those_of_this_file() -> None:
    """Lanes that do not match the file raise a doubt, by their own records or by the last run.

    A change in the journal, or the record of a former lane, raises none.
    """
    own, changed = _address(lanes=1), regroups([Regrouped(3, 0, 2, 1, (0, 0), 0, 1)])
    one, each = Recorded({}, 20_000, 0, lanes=1), Recorded({}, 20_000, 0)

    def doubts(rings: Rings, base: Run | None, *recorded: Recorded) -> list[str]:
        found = rules.doubts([own], {"a": _cut(recorded=recorded)}, base, [rings])
        return [doubt.why for doubt in found]

    assert doubts(Rings.from_settings(1, 2), None, one, each) == []
    [why] = doubts(Rings.from_settings(1, 2), None, each)
    assert why.startswith("lanes 0 of a have another lanes tha")
    assert doubts(Rings.from_settings(1, 2), _run(1, {}), one) == ["lanes changed since the last run"]
    assert doubts(Rings.from_settings(1, 2, changed), _run(1, {}), one) == []
    assert doubts(Rings.from_settings(1, 2), _run(1, {}, lanes=1), one) == []
    promised = rules.promised([own], {"a": _cut()}, [], [Rings.from_settings(1, 2, changed)])
    assert promised == [{0: 20_000, 1: 20_000, 2: 20_000}]


def _cut(*gone: str, recreated: bool = False, recorded: Sequence[Recorded] = ()) -> AddressCut:
    topics = {
        role: TopicCut(role, "id", lost=[Lost(role, 0, 0, 1, "why")] if role in gone else [])
        for role in ("input", "accepted", "forward")
    }
    topics["input"].recreated = recreated
    topics["input"].spans = [Span(0, 0, 0, 1, 1)] * 2
    quarantine, lanes = TopicCut("q", "id"), dict(enumerate(recorded))
    return AddressCut(
        topics["input"], topics["forward"], topics["accepted"], quarantine, None, (), recorded=lanes
    )


def _doubted(now: AddressSettings, base: Run | None, cut: AddressCut) -> set[Anomaly]:
    return {name for doubt in rules.doubts([now], {"a": cut}, base, [RINGS]) for name in doubt.anomalies}


def test_a_changed_rule_leaves_open_what_was_lost() -> None:
    """A changed rule leaves losses unknown for a run, since either of two workers may have decided.

    Anomalies that do not depend on it stay known. A new input leaves open whose output it is, because outputs of a
    deleted one name places in the one that has its name.
    """
    before = _run(1, {})
    of_input = _doubted(_address(), before, _cut(recreated=True))

    assert of_input >= {Anomaly.DOUBLED, Anomaly.PHANTOM, Anomaly.CORRUPTED, Anomaly.REORDERED}
    assert Anomaly.LOST not in of_input

    assert Anomaly.LOST in _doubted(_address(accepted_topic="b"), before, _cut())
    assert Anomaly.FORGOTTEN in _doubted(_address(duplicate_id_headers=["x"]), before, _cut())
    assert Anomaly.FORGOTTEN in _doubted(_address(id_max_age=1.0), before, _cut())
    assert Anomaly.DOUBLED not in _doubted(_address(group_header="x"), before, _cut())
    assert _doubted(_address(id_cache_size=1, duplicates="divert"), before, _cut()) == set()
    assert _doubted(_address(accepted_topic="b"), None, _cut()) == set()


def test_a_mode_and_topics_hold_from_the_run_on_that_saw_them() -> None:
    """A duplicate that passed, or was dropped, before the change breaks no rule, nor does a conflict from before its topic."""
    plain, observed = _run(1, {}), _run(1, {}, mode="observe")
    diverting = _run(1, {}, duplicates="divert")
    with_topic = replace(plain, positions={"a.duplicates": Position("t", (0,), (0,))})
    enforcing, conflicts, divert = _address(), _address(on_conflict="divert"), _address(duplicates="divert")

    assert [rules.enforces(enforcing, base) for base in (None, plain, observed)] == [False, True, False]
    assert not rules.enforces(_address(mode="observe"), plain)
    assert rules.diverts_conflicts(conflicts, None)
    assert [rules.diverts_conflicts(conflicts, base) for base in (with_topic, plain)] == [True, False]
    assert not rules.diverts_conflicts(enforcing, with_topic)
    assert [rules.diverts(divert, base) for base in (None, diverting, plain)] == [True, True, False]
    assert not rules.diverts(enforcing, diverting)


def test_what_others_leave_unknown_of_transactions() -> None:
    """Rules of an address that parts are for, and a run in which the envelopes' own address was not configured."""

    def addresses(listed: tuple[str, ...], **payments: Any) -> tuple[AddressSettings, ...]:
        entries = [
            {"name": "transfers", "transaction_addresses": [*listed]},
            {"name": "payments", **payments},
        ]
        return validate({"addresses": entries}).addresses

    def doubts(base: Run, *listed: str, **payments: Any) -> list[tuple[int, str, bool]]:
        found = rules.doubts(addresses(listed, **payments), dict.fromkeys(kept, _cut()), base, [RINGS] * 2)
        return [(item.address, item.why, Anomaly.TORN in item.anomalies) for item in found]

    kept = {address.name: rules.kept(address) for address in addresses(("payments",))}
    base = Run(2, 1, "2026-11-21", "clean", rules=kept)

    assert doubts(base, "payments") == []
    assert doubts(base, "payments", group_header="account") == [
        (0, "group_header of payments changed since the last run", True),
        (1, "group_header changed since the last run", False),
    ]
    assert doubts(replace(base, left={"transfers": 1}), "payments") == [
        (0, "transfers was not configured in the last run, which has read payments", True)
    ]
    assert doubts(base) == [
        (0, "transaction_addresses changed since the last run", True),
        (1, "transaction_addresses of transfers changed since the last run", False),
    ]
