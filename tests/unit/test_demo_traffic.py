"""The plan of the demo's traffic has the shares that the demo speaks of."""

import json
from collections import Counter
from itertools import islice

import pytest

from app.demo.traffic import (
    ADDRESSES,
    GROUPS,
    ID_HEADER,
    KILL_FIRST,
    KILL_LAST,
    MESSAGES_MIN,
    PLAIN,
    TRANSACTION_HEADER,
    TRANSFERS,
    TURNS,
    Message,
    Plan,
)
from ringfence_kafka.errors import ConfigurationError

SIZES = (MESSAGES_MIN, 60_000)


def _id(message: Message) -> object:
    """Of a transaction its own, or the one that a part has."""
    found = dict(message.headers).get(ID_HEADER)
    if found is None and message.address == TRANSFERS:
        for part in json.loads(message.value or b"")["parts"]:
            found = next(
                (each["value"] for each in part.get("headers", ()) if each["name"] == ID_HEADER), found
            )
    return found


@pytest.fixture(scope="module", params=SIZES)
def plan(request: pytest.FixtureRequest) -> Plan:
    return Plan(request.param, seed=5)


def _resends(plan: Plan) -> list[Message]:
    return [each for each in plan if each.original != each.position]


def test_a_tenth_is_sent_again(plan: Plan) -> None:
    """About 10 % of the messages are resends, and half of those repeat something long past."""
    resends = _resends(plan)
    late = sum(each.position - each.original > plan.far(each.address) for each in resends)

    assert len(resends) / plan.messages == pytest.approx(0.10, abs=0.01)
    assert late / len(resends) == pytest.approx(0.5, abs=0.05)


def test_some_straddle_the_kill(plan: Plan) -> None:
    """Resends from the last stretch whose original lies in the first: the worker died in between."""
    straddling = 0
    for each in _resends(plan):
        count = plan.messages_of(each.address)
        straddling += each.original < KILL_FIRST * count and each.position >= KILL_LAST * count

    assert straddling > plan.messages / 500


def test_a_resend_repeats_its_original(plan: Plan) -> None:
    """The same group, value, headers and ID, in the same address; and no other message has that ID."""
    originals: dict[tuple[str, int], Message] = {}
    ids = set()
    for each in plan:
        if each.original == each.position:
            originals[each.address, each.position] = each
            assert _id(each) is None or (each.address, _id(each)) not in ids
            ids.add((each.address, _id(each)))
        else:
            assert originals[each.address, each.original]._replace(position=each.position) == each
            assert _id(each) is not None


def test_some_have_no_id(plan: Plan) -> None:
    """A few messages carry no ID, with and without a group; every group and both addresses have traffic."""
    without = [each for each in plan if _id(each) is None]

    assert 10 < len(without) < plan.messages / 100
    assert {each.group is None for each in without} == {True, False}
    assert len({each.group for each in plan if each.group is not None}) == GROUPS
    assert Counter(each.address for each in plan) == {each: plan.messages_of(each) for each in ADDRESSES}


def test_addresses_share_ids(plan: Plan) -> None:
    """One ID stands in both addresses for different messages: a ring that both shared would show."""
    first, second = ({_id(each) for each in plan.stream(address)} for address in PLAIN)

    assert len(first & second) > plan.messages / 4


def test_the_seed_reproduces_it() -> None:
    """Same seed, same messages and same kill; another seed, others; the kill lies in its window."""
    assert list(Plan(MESSAGES_MIN, 1)) == list(Plan(MESSAGES_MIN, 1))
    assert list(islice(Plan(MESSAGES_MIN, 1), 100)) != list(islice(Plan(MESSAGES_MIN, 2), 100))
    kills = [Plan(MESSAGES_MIN, seed).kill_at for seed in range(50)]
    assert Plan(MESSAGES_MIN, 7).kill_at == kills[7]
    assert len(set(kills)) > 40
    assert all(KILL_FIRST * MESSAGES_MIN <= each <= KILL_LAST * MESSAGES_MIN for each in kills)
    assert max(kills) <= Plan(MESSAGES_MIN, 1).hold_at


def test_unequal_turns() -> None:
    """Whatever number of messages: the addresses take turns, and all are sent."""
    for messages in range(MESSAGES_MIN, MESSAGES_MIN + len(TURNS)):
        plan = Plan(messages, 3)
        counts = [plan.messages_of(each) for each in ADDRESSES]
        assert sum(counts) == plan.messages
        assert counts[0] >= counts[1] >= counts[0] - 1
        assert counts[2] == messages // len(TURNS)


def test_transfers(plan: Plan) -> None:
    """Two parts or three, over the other addresses, all groups; the ID is the transaction's or one part's."""
    kinds: Counter[tuple[int, bool]] = Counter()
    for each in plan.stream(TRANSFERS):
        parts = json.loads(each.value or b"")["parts"]
        kinds[len(parts), dict(each.headers).get(ID_HEADER) is None] += 1
        assert {part["address"] for part in parts} <= set(PLAIN)
        assert dict(each.headers)[TRANSACTION_HEADER] == b"json/1"

    assert set(kinds) == {(2, True), (2, False), (3, True), (3, False)}
    assert min(kinds.values()) > plan.messages_of(TRANSFERS) / 50


def test_too_few() -> None:
    """Fewer messages than late resends need are refused with the number that is enough."""
    with pytest.raises(ConfigurationError, match=f"999 messages are too few .* use {MESSAGES_MIN} or more"):
        Plan(999, 1)
