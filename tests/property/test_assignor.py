"""The assignor distributes partitions evenly, and moves no more of them than necessary."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.consumer.assignor import _said, share


@st.composite
def _groups(draw: st.DrawFn) -> tuple[int, dict[str, dict[int, int]]]:
    """Draw a number of partitions, and the ownership that each member claims, which may be contested or of missing partitions."""
    partitions = draw(st.integers(0, 30))
    members = draw(st.lists(st.sampled_from("abcdefghijkl"), min_size=1, unique=True))
    had = st.dictionaries(st.integers(0, partitions + 3), st.integers(0, 3))
    return partitions, {member: draw(had) for member in members}


def _owners(owned: dict[str, dict[int, int]]) -> dict[int, str]:
    everyone = [(number, token, member) for member, had in owned.items() for number, token in had.items()]
    return {number: member for number, _, member in sorted(everyone)}


@given(_groups())
def test_even_and_as_few_moves_as_can_be(group: tuple[int, dict[str, dict[int, int]]]) -> None:
    """Each partition has one member, no member has two more than another, and no even assignment moves fewer."""
    partitions, owned = group
    found = share(range(partitions), owned)
    sizes = [len(value) for value in found.values()]
    owners = {number: member for number, member in _owners(owned).items() if number < partitions}
    kept = sum(member == owners.get(number) for member, items in found.items() for number in items)
    least, more = divmod(partitions, len(owned))
    had = sorted(Counter(owners.values()).values(), reverse=True)
    most = sum(min(item, least + (number < more)) for number, item in enumerate(had))

    assert sorted(number for value in found.values() for number in value) == list(range(partitions))
    assert found.keys() == owned.keys()
    assert max(sizes) - min(sizes) <= 1
    assert kept == most


def test_who_had_it_last() -> None:
    """The newer token counts when two members claim a partition, and a member first gives away partitions that it does not hold yet."""
    woken = {"a": {0: 1, 1: 1}, "b": {0: 2, 1: 2, 2: 1, 3: 1}}

    assert share(range(4), woken) == {"a": [2, 3], "b": [0, 1]}
    assert share(range(4), {"a": {0: 0, 1: 3, 2: 0, 3: 3}, "b": {}}) == {"a": [1, 3], "b": [0, 2]}


@pytest.mark.parametrize("said", [b"", b"\xff", b"[]", b'{"T": 7}', b'{"T": {"x": 1}}'], ids=repr)
def test_what_a_member_says_cannot_be_read(said: bytes) -> None:
    """A member whose claim cannot be read gets partitions as if it had nothing."""
    assert _said(said.replace(b"T", b"topic"), "topic") == {}
