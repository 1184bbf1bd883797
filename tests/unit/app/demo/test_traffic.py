"""The plan of the demo's traffic has the shares that the demo speaks of."""

import json
from itertools import islice

import pytest

from app.demo.traffic import (
    ID_HEADER,
    KILL_FIRST,
    KILL_LAST,
    MESSAGES_MIN,
    PLAIN,
    TRANSFERS,
    Message,
    Plan,
)
from ringfence_kafka.errors import ConfigurationError

SIZES = (MESSAGES_MIN, 60_000)


def _id(message: Message) -> object:
    """Return the ID of a transaction: its own, or the one that a part has."""
    found = dict(message.headers).get(ID_HEADER)
    if found is None and message.address == TRANSFERS:
        for part in json.loads(message.value or b"")["parts"]:
            found = next(
                (item["value"] for item in part.get("headers", ()) if item["name"] == ID_HEADER), found
            )
    return found


@pytest.fixture(scope="module", params=SIZES)
def plan(request: pytest.FixtureRequest) -> Plan:
    return Plan(request.param, seed=5)


def _resends(plan: Plan) -> list[Message]:
    return [item for item in plan if item.original != item.position]


def test_some_straddle_the_kill(plan: Plan) -> None:
    """Resends from the last stretch whose original lies in the first: the worker died in between."""
    straddling = 0
    for resend in _resends(plan):
        count = plan.messages_of(resend.address)
        straddling += resend.original < KILL_FIRST * count and resend.position >= KILL_LAST * count

    assert straddling > plan.messages / 500


def test_a_resend_repeats_its_original(plan: Plan) -> None:
    """A resend has the same group, value, headers and ID in the same address; no other message has that ID."""
    originals: dict[tuple[str, int], Message] = {}
    ids = set()
    for item in plan:
        if item.original == item.position:
            originals[item.address, item.position] = item
            assert _id(item) is None or (item.address, _id(item)) not in ids
            ids.add((item.address, _id(item)))
        else:
            assert originals[item.address, item.original]._replace(position=item.position) == item
            assert _id(item) is not None


def test_addresses_share_ids(plan: Plan) -> None:
    """An ID occurs in both addresses for different messages, so a shared ring would be noticed."""
    first, second = ({_id(item) for item in plan.stream(address)} for address in PLAIN)

    assert len(first & second) > plan.messages / 4


def test_the_seed_reproduces_it() -> None:
    """The same seed gives the same messages and the same kill within its window; another seed gives others."""
    assert list(Plan(MESSAGES_MIN, 1)) == list(Plan(MESSAGES_MIN, 1))
    assert list(islice(Plan(MESSAGES_MIN, 1), 100)) != list(islice(Plan(MESSAGES_MIN, 2), 100))
    kills = [Plan(MESSAGES_MIN, seed).kill_at for seed in range(50)]
    assert Plan(MESSAGES_MIN, 7).kill_at == kills[7]
    assert len(set(kills)) > 40
    assert all(KILL_FIRST * MESSAGES_MIN <= kill <= KILL_LAST * MESSAGES_MIN for kill in kills)
    assert max(kills) <= Plan(MESSAGES_MIN, 1).hold_at


def test_too_few() -> None:
    """Fewer messages than late resends need are refused with the number that is enough."""
    with pytest.raises(ConfigurationError, match=f"999 messages are too few .* use {MESSAGES_MIN} or more"):
        Plan(999, 1)
