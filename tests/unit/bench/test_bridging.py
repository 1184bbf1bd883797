"""How the benchmark of bridges judges and compares runs."""

from dataclasses import replace

import pytest

from bench.bridging import BRIDGE, FAR_BRIDGE, FAR_MIRROR, LANE, MIRROR, Found
from bench.job import Run
from bench.traffic import Expected, Plan

RUN = Run(
    BRIDGE, measured=100, seconds=2.0, cpu_s=1.0, broker_cpu_s=1.0, life_cpu_s=9.0, peak_rss_bytes=2**20, outputs=100,
    distinct_outputs=95,
)  # fmt: skip


def _found(*rounds: dict[str, Run]) -> Found:
    return Found(Plan(100), 0.05, Expected(100, 95), list(rounds))


@pytest.mark.parametrize(
    ("contender", "run", "exact"),
    [
        (BRIDGE, RUN, True),
        (FAR_MIRROR, RUN, True),
        (BRIDGE, replace(RUN, outputs=101), False),
        (MIRROR, replace(RUN, outputs=101), False),
        (FAR_BRIDGE, replace(RUN, distinct_outputs=94), False),
        (BRIDGE, replace(RUN, out_of_order=1), False),
        (LANE, RUN, False),
        (LANE, replace(RUN, outputs=95), True),
    ],
)
def test_exact(contender: str, run: Run, *, exact: bool) -> None:
    """A lane lets each ID pass once; what crosses brings every message, resends included."""
    assert _found({contender: run}).exact(contender) == exact


def test_ratios_are_of_one_round() -> None:
    """A ratio compares one round, and a round in which one of the two failed has none."""
    found = _found({BRIDGE: RUN, LANE: replace(RUN, cpu_s=2.0)}, {BRIDGE: RUN})

    assert found.ratios(BRIDGE, LANE) == {"messages/s": [1.0], "CPU s / million": [0.5], "peak RSS": [1.0]}
    assert found.ratios(BRIDGE, MIRROR) == {}
