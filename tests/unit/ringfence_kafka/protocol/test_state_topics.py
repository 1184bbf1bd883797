"""Names of state topics."""

import itertools

from ringfence_kafka.protocol.wire_names import TOPIC_CHARACTERS_MAX, is_state_topic, state_topic

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
