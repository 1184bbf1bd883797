"""The traffic of the group tests is what its parameters say."""

from collections import Counter

import pytest

from tests.harness.workloads.message_groups import GroupMessage, Shape, generate, sizes

SHAPES = [
    Shape(),
    Shape(messages=101, group_size=101, interleave=1),
    Shape(messages=499, group_size=7, interleave=499),
    Shape(randomized=True, ungrouped=0.3),
    Shape(group_size=211, interleave=97, zipf=1.1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_each_group_is_whole(shape: Shape) -> None:
    """A group's messages count from 0, only the last has the mark, and all there are is what was asked for."""
    groups: dict[str, list[GroupMessage]] = {}
    for item in (made := generate(shape, 5)):
        groups.setdefault(item.label, []).append(item)

    assert len(made) == shape.messages
    for messages in groups.values():
        assert [message.sequence for message in messages] == list(range(len(messages)))
        assert [message.last for message in messages] == [False] * (len(messages) - 1) + [True]
        assert len(messages) <= shape.group_size


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_interleave_bounds_open_groups(shape: Shape) -> None:
    """No more groups are open at once than it says, and most of them at some time where there are so many."""
    opened: set[str] = set()
    most = 0
    for item in (made := generate(shape, 5)):
        opened.add(item.label)
        most = max(most, sum(other.startswith("g") and "none" not in other for other in opened))
        if item.last:
            opened.remove(item.label)

    groups = len({item.label for item in made if item.grouped})
    assert min(shape.interleave, groups) * 0.6 <= most <= shape.interleave


def test_zipf_makes_few_large_and_many_small() -> None:
    """The first group is as large as asked for, and most have less than a tenth of it."""
    found = Counter(sizes(generate(Shape(group_size=211, interleave=97, zipf=1.1), 5)))
    ranked = [size for _, size in found.most_common()]

    assert ranked[0] == 211
    assert ranked[len(ranked) // 2] < 21


def test_seed_repeats_and_another_differs() -> None:
    """The same seed makes the same traffic."""
    shape = Shape(randomized=True)

    assert generate(shape, 1) == generate(shape, 1)
    assert generate(shape, 1) != generate(shape, 2)
