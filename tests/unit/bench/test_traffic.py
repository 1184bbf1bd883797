"""Properties of the benchmark's traffic, without which its count of outputs would be wrong."""

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
    """The same plan makes the same messages, because only the seed is random."""
    assert list(generate(PLAN)) == list(generate(PLAN))
    assert list(generate(PLAN)) != list(generate(Plan(messages=20_000, ring=100, groups=50, seed=2)))


def test_no_resend_comes_later_than_the_ring_remembers() -> None:
    """The largest distance of a resend equals the ring's size, so no ring may let it pass."""
    distances = _distances(PLAN)

    assert max(distances) == PLAN.ring
    assert min(distances) == 1


def test_the_share_of_resends_is_as_planned() -> None:
    """Five of a hundred messages are resends, as planned."""
    share = len(_distances(PLAN)) / PLAN.messages

    assert 0.045 < share < 0.055


def test_a_resend_is_the_original_again() -> None:
    """A resend has the ID, key, value and partition of its original."""
    originals: dict[bytes, Message] = {}
    for item in generate(PLAN):
        assert originals.setdefault(item.id, item) == item


def test_messages_go_to_their_home() -> None:
    """Every message goes to the partition that Ringfence computes from its key, so nothing needs forwarding."""
    home = Partitioner(PLAN.partitions)

    assert all(home[item.key] == item.partition for item in generate(PLAN))


def test_with_the_other_partitioner_most_messages_are_not_at_home() -> None:
    """About three of four messages are not at home with the other partitioner, so that forwarding is measured.

    No lane gets more IDs than its ring holds.
    """
    plan = Plan(messages=20_000)
    home = Partitioner(plan.partitions, "crc32")
    messages = list(generate(plan))
    away = sum(home[message.key] != message.partition for message in messages)
    lanes = Counter(home[key] for key, _ in {(message.key, message.id) for message in messages})

    assert 0.7 < away / plan.messages < 0.8
    assert max(lanes.values()) < plan.forwarded_ring
