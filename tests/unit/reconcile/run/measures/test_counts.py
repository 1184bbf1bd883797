"""Which addresses a run takes for observing or dropping."""

from reconcile.run.measures.counts import Judgement

LANE = {"dropped": 2}


def test_modes() -> None:
    """An address observes if it is configured so and each accepted record names its verdict; else duplicates may be dropped."""
    for marked, configured, observing, dropping, dropped in (
        (5, [0], {0}, set(), 0),
        (5, [], set(), {0}, 2),
        (4, [0], set(), {0}, 2),
        (0, [0], set(), {0}, 2),
    ):
        counts = {"accepted": 3, "observed": 2, "marked": marked, "dropped": 2}
        found = Judgement(counts={"a": counts}, lanes={"a": {0: dict(LANE)}}, dropping=frozenset({0}))

        found.set_modes({0: "a"}, configured)

        assert (set(found.observing), set(found.dropping)) == (observing, dropping)
        assert (found.counts["a"]["dropped"], found.lanes["a"][0]["dropped"]) == (dropped, dropped)


def test_an_address_that_observed_before_has_to_observe_all_the_time() -> None:
    """One accepted record without a verdict does not make missing duplicates dropped ones; but it is in doubt what they are.

    An address that diverts, and observed at times, drops copies of hops. Missing messages may be such copies.
    """
    counts = {"accepted": 3, "observed": 2, "marked": 4, "dropped": 2}
    found = Judgement(counts={"a": counts, "b": {**counts, "marked": 0}}, lanes={"a": {}, "b": {}})

    found.set_modes({0: "a", 1: "b"}, [0, 1], [0, 1])

    assert (set(found.observing), set(found.partly)) == ({0}, {0})
    assert found.counts["a"]["dropped"] == 0
    counts |= {"marked": 1, "dropped": 0}
    found = Judgement(counts={"a": counts, "b": {**counts, "marked": 0}}, lanes={"a": {}, "b": {}})
    found.set_modes({0: "a", 1: "b"}, [])
    assert (set(found.observing), set(found.dropping)) == (set(), {0})
