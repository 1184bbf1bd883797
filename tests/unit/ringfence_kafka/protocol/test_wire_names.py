import itertools

import pytest

from ringfence_kafka.protocol.wire_names import (
    TOPIC_CHARACTERS_MAX,
    bridge_group,
    group_owner,
    is_state_topic,
    repair_group,
    run_group,
    state_topic,
)


@pytest.mark.parametrize(
    ("group", "owner"),
    [
        ("app", "the workers (app.id)"),
        (repair_group("app"), "the redrive commands"),
        (run_group("app"), "the reconciliation run"),
        (bridge_group("app", "west"), "a bridge"),
        ("billing", ""),
        ("app-billing", ""),
    ],
)
def test_group_owner(group: str, owner: str) -> None:
    """A consumer in such a group would move the offsets of workers, of a bridge or of a run."""
    assert group_owner("app", group) == owner


NAMES = ("a", "a-b", "b", "b-a", "a b", "a_b", "x" * 240)
TOPICS = ("orders.accepted", "eu-orders.accepted", "a-orders.accepted")


def test_each_has_its_own() -> None:
    """Each group and topic has its own state topic, because shared ones would mix their totals."""
    found = {state_topic(*parts) for parts in itertools.product(NAMES, NAMES, TOPICS)}

    assert state_topic("shop", "billing", "orders.accepted") == "shop-billing-orders.accepted-state"
    assert len(found) == len(NAMES) ** 2 * len(TOPICS)
    assert max(map(len, found)) <= TOPIC_CHARACTERS_MAX


def test_names_are_recognised() -> None:
    """State topics of any consumer group are recognized, because handlers may not write them."""
    for group, topic in itertools.product(("billing", "eu-billing", "b c"), TOPICS):
        assert is_state_topic(state_topic("shop", group, topic), "shop", [topic])
    for name in ("machine-state", "shop-machine-state", "other-billing-orders.accepted-state", "shop-orders"):
        assert not is_state_topic(name, "shop", TOPICS)
