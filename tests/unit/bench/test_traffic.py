"""What the benchmark's traffic promises, and without which its count of outputs would judge wrongly."""

from collections import Counter, defaultdict

from agents.decision.partitioner import Partitioner
from bench.traffic import Message, Plan, generate

PLAN = Plan(messages=20_000, ring=100, groups=50)


def _distances(plan: Plan) -> list[int]:
    """For each resend: how many accepted messages of its lane ago its original was, the newest being 1."""
    accepted: dict[int, list[Message]] = defaultdict(list)
    places: dict[bytes, int] = {}
    distances = []
    for item in generate(plan):
        lane = accepted[item.partition]
        if item.id in places:
            distances.append(len(lane) - places[item.id])
        else:
            places[item.id] = len(lane)
            lane.append(item)
    return distances


def test_the_same_plan_makes_the_same_messages() -> None:
    """The seed is all the chance there is."""
    assert list(generate(PLAN)) == list(generate(PLAN))
    assert list(generate(PLAN)) != list(generate(Plan(messages=20_000, ring=100, groups=50, seed=2)))


def test_no_resend_comes_later_than_the_ring_remembers() -> None:
    """Else the ring would rightly let it pass; and the whole ring is used."""
    distances = _distances(PLAN)

    assert max(distances) == PLAN.ring
    assert min(distances) == 1


def test_the_share_of_resends_is_as_planned() -> None:
    """Five in a hundred."""
    share = len(_distances(PLAN)) / PLAN.messages

    assert 0.045 < share < 0.055


def test_a_resend_is_the_original_again() -> None:
    """ID, key, value and partition are the same."""
    originals: dict[bytes, Message] = {}
    for item in generate(PLAN):
        assert originals.setdefault(item.id, item) == item


def test_messages_go_to_their_home() -> None:
    """Nothing needs forwarding: the partition is the one that Ringfence computes from the key."""
    home = Partitioner(PLAN.partitions)

    assert all(home[item.key] == item.partition for item in generate(PLAN))


def test_with_the_other_partitioner_most_messages_are_not_at_home() -> None:
    """About three of four, so that forwarding is what is measured; and no lane gets more IDs than its ring holds."""
    plan = Plan(messages=20_000)
    home = Partitioner(plan.partitions, "crc32")
    messages = list(generate(plan))
    away = sum(home[message.key] != message.partition for message in messages)
    lanes = Counter(home[key] for key, _ in {(message.key, message.id) for message in messages})

    assert 0.7 < away / plan.messages < 0.8
    assert max(lanes.values()) < plan.forwarded_ring
