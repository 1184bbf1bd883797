"""A few rounds of what the soak does for hours."""

import pytest

from tests.harness import rounds
from tests.harness.nemeses.catalogue import NEMESES

KILLS = [name for name in NEMESES if name.startswith("kill-at-")]
"""Kills at each point of a lane."""
STATE = ["state-damaged", "state-sealed", "disk-full"]


@pytest.mark.parametrize(
    ("seed", "nemeses", "workload", "observe"),
    [
        (1, ["kill", "kill-at-re-slotting", "link-blackhole"], "transfers", False),
        pytest.param(
            4,
            ["bridge-link-cuts", "bridge-kill-at-after-send", "kill", "kill-broker", "bridge-freeze"],
            "bridged",
            False,
            marks=pytest.mark.long,
        ),
        pytest.param(2, ["freeze-in-transaction", "storm", "state-lost"], "", False, marks=pytest.mark.long),
        pytest.param(
            3,
            ["storm", "kill-producers", "storm", "output-small"],
            "transfers",
            False,
            marks=pytest.mark.long,
        ),
        # One of its addresses has a promise in time.
        pytest.param(5, ["kill", "storm", "state-lost"], "promised", False, marks=pytest.mark.long),
        # One of its addresses accepts each value of an ID once.
        pytest.param(7, ["kill", "storm", "state-lost"], "conflicting", False, marks=pytest.mark.long),
        # Two of its addresses have one lane.
        pytest.param(
            11,
            ["kill-at-after-fetch", "kill-at-before-store", "storm", "state-lost"],
            "transfers",
            False,
            marks=pytest.mark.long,
        ),
        pytest.param(
            12, ["kill", "kill-at-before-store", "state-lost"], "transfers", True, marks=pytest.mark.long
        ),
        pytest.param(13, ["bridge-link-cuts", "kill"], "bridged", True, marks=pytest.mark.long),
        *(pytest.param(14 + n, KILLS[n::4], "transfers", False, marks=pytest.mark.long) for n in range(4)),
        pytest.param(18, ["freeze-in-transaction"], "transfers", False, marks=pytest.mark.long),
        pytest.param(19, STATE, "", False, marks=pytest.mark.long),
    ],
)
def test_round(seed: int, nemeses: list[str], workload: str, *, observe: bool) -> None:
    """A round loses, doubles, tears, reorders or forgets nothing, and every fault really struck."""
    verdict = rounds.run(seed, nemeses, workload=workload, observe=observe, light=seed == 1)

    assert not verdict.faults, verdict.report()
    assert set(verdict.strikes) == set(nemeses)
