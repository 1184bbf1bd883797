import random
from itertools import pairwise

import pytest

from reconcile.run.history.rings import Regrouped, Rings, regroups

FOUR_TO_ONE = Regrouped(7, 0, 4, 1, (10, 20, 30, 40), 0, 1)
ONE_TO_TWO = [Regrouped(9, 0, 1, 2, (50, 0, 70, 0), 0, 2), Regrouped(10, 1, 1, 2, (0, 60, 0, 80), 5, 2)]


def test_without_a_regroup_the_ring_is_the_lane() -> None:
    """The ring is the lane if no regrouping happened, with and without the key `lanes`. More partitions of the same lanes add no ring."""
    each, one, two = Rings.from_settings(0, 4), Rings.from_settings(1, 4), Rings.from_settings(2, 8)

    assert ([*each.all], [*one.all], [*two.all]) == ([0, 1, 2, 3], [0], [0, 1])
    assert [each.of_partition(3), one.of_partition(3), two.of_partition(5)] == [3, 0, 1]
    assert [*two.partitions_of(1)] == [1, 3, 5, 7]
    assert (each.fixed, one.fixed) == (False, True)
    assert [item.heirs(0) for item in (each, one, two)] == [[0], [0], [0]]


def test_new_rings_have_new_numbers() -> None:
    """Four lanes, one, and two: each new ring knows the IDs of those whose partitions its lane has, of all before them too.

    The journal takes precedence over the file, which may name lanes that no verb has made yet. A return to one lane
    for each partition is recorded as 0.
    """
    back = Regrouped(11, 0, 2, 4, (9, 9, 9, 9), 0, 0)
    assert [*Rings.from_settings(0, 4, regroups([FOUR_TO_ONE])).now] == [4]
    assert [*Rings.from_settings(2, 4, regroups([FOUR_TO_ONE, *ONE_TO_TWO, back])).now] == [7, 8, 9, 10]
    rings = Rings.from_settings(2, 4, regroups([*ONE_TO_TWO, FOUR_TO_ONE]))

    assert (rings.starts, rings.lanes, rings.now) == ([0, 4, 5], [4, 1, 2], range(5, 7))
    assert rings.ancestors[4] == {0, 1, 2, 3}
    assert rings.ancestors[5] == rings.ancestors[6] == {0, 1, 2, 3, 4}
    assert (rings.heirs(4), rings.heirs(5), rings.settled(4), rings.settled(6)) == ([5, 6], [5], 4, 6)
    assert Rings.from_settings(1, 4, regroups([FOUR_TO_ONE])).settled(3) == 4
    assert [change.nexts for change in rings.regroups] == [
        {0: 10, 1: 20, 2: 30, 3: 40},
        {0: 50, 1: 60, 2: 70, 3: 80},
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_partition_keeps_its_ids(seed: int) -> None:
    """The ring of a partition holds the IDs of all its former rings, whatever the lanes were."""
    dice = random.Random(seed)
    partitions = dice.randint(1, 12)
    counts = [dice.randint(1, partitions) for _ in range(dice.randint(1, 4))]
    changes = [
        Regrouped(10 * step + lane, lane, before, after, (0,) * partitions, 0, after)
        for step, (before, after) in enumerate(pairwise(counts))
        for lane in range(after)
        if before != after
    ]
    rings = Rings.from_settings(counts[-1], partitions, regroups(changes))

    for partition in range(partitions):
        former = [start + partition % lanes for start, lanes in zip(rings.starts, rings.lanes, strict=True)]
        assert former[-1] == rings.of_partition(partition)
        assert rings.ancestors[former[-1]] >= {*former[:-1]}
        assert all(former[-1] in rings.heirs(ring) for ring in former)
