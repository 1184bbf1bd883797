import pytest

from app.commands.topics import growth_plan
from app.commands.topics.growth_plan import Growth, GrowthError, Work, needs_stop, plan, plan_input
from ringfence_kafka.config.settings import AddressSettings
from tables.codec import Meta

ADDRESS = AddressSettings.model_validate({"name": "orders"})


def _metas(*counts: int) -> dict[int, Meta]:
    return {
        lane: Meta(10, 5, 0, {"orders": 3}, {"orders": count, "orders.accepted": 4}, "i")
        for lane, count in enumerate(counts)
    }


def test_growth() -> None:
    """A growth starts from the counts with which the lanes began, whatever the topic has now."""
    for now, counts, wanted, growth in (
        (4, (4,), 12, Growth(4, 12)),  # other lanes have judged nothing yet
        (6, (4, 4), 8, Growth(4, 8)),  # somebody gave it some
        (8, (8, 4, 4, 4), 8, Growth(4, 8)),  # it ended in the middle
        (8, (8, 8), 8, Growth(8, 8)),
        (3, (), 6, Growth(3, 6)),
    ):
        assert plan(ADDRESS, now, _metas(*counts), wanted) == growth


def test_refused() -> None:
    for now, counts, wanted, said in (
        (4, (4,), 6, "Choose 8, 12, 16"), (9, (4,), 9, "Choose 12, 16, 20"), (8, (4,), 4, "Kafka cannot remove any"),
        (8, (4, 8), 16, "--partitions 8"),
    ):  # fmt: skip
        with pytest.raises(GrowthError, match=said):
            plan(ADDRESS, now, _metas(*counts), wanted)


def test_successors_are_where_groups_move() -> None:
    """A group has its home in its former lane or in one of that lane's successors, for every hash."""
    growth = Growth(3, 12)
    for digest in range(1_000):
        assert digest % 12 in {digest % 3, *growth.successors(digest % 3)}
    assert [*growth.successors(2)] == [5, 8, 11]


def test_lines_that_can_be_read() -> None:
    """A line names some of a lane's successors and counts the others; the document lists all."""
    work = Work(Growth(2, 100_000), {"orders": 2}, {}, [0, 1])
    said: list[str] = []
    growth_plan.print_plan(ADDRESS, work, [], said.append)

    assert max(map(len, said)) < 300
    assert said[1].startswith("would copy  IDs of orders-0 to orders-2, orders-4, ")
    assert said[1].endswith("orders-32 and 49,983 more")
    assert len(growth_plan.document(ADDRESS, work, [], dry_run=True)["lanes"][0]["heirs"]) == 49_999
    assert growth_plan.named_successors(ADDRESS, Growth(2, 6), 0) == "orders-2, orders-4"


def _grown(lanes: int, now: int, counts: tuple[int, ...], wanted: int) -> Growth:
    meta = Meta(10, 5, 0, {}, {}, "i", lanes=lanes)
    metas = {lane: meta._replace(partition_counts={"orders": count}) for lane, count in enumerate(counts)}
    return plan_input(ADDRESS.model_copy(update={"lanes": lanes}), now, metas, wanted)


def test_growth_of_the_input_alone() -> None:
    """The input alone grows if each group and ID keeps its lane, or if the lanes have judged nothing.

    Workers must not run if homes move and no record shows that nothing is in flight.
    """
    address = ADDRESS.model_copy(update={"lanes": 2})
    begun = {0: Meta(10, 5, 0, {}, {"orders": 4}, "i", lanes=2)}
    assert [needs_stop(address, Growth(4, 8), metas) for metas in (begun, {})] == [False, False]
    assert needs_stop(address, Growth(4, 7), {})
    for lanes, now, counts, wanted in (
        (1, 4, (4,), 5),
        (1, 5, (4,), 7),  # it grew before, and the lane has not recorded it
        (2, 4, (4, 4), 6),
        (2, 4, (8, 8), 8),  # it was created again with fewer
        (3, 4, (), 5),
    ):
        assert _grown(lanes, now, counts, wanted) == Growth(now, wanted)


def test_growth_of_the_input_refused() -> None:
    """A refused growth of the input names counts that work, or the verb that makes every count work."""
    for lanes, now, counts, wanted, said in (
        (2, 4, (4, 4), 7, "Choose 6, 8, 10, …"), (4, 6, (4,), 7, "Choose 8, 12, 16, …"),
        (2, 5, (5,), 6, "rings regroup orders --lanes 1' first"), (2, 4, (4,), 3, "choose 4 or more"),
        (2, 4, (8,), 6, "choose 8 or more"), (6, 4, (), 5, "choose 6 or more, for lanes = 6"),
    ):  # fmt: skip
        with pytest.raises(GrowthError, match=said):
            _grown(lanes, now, counts, wanted)
