"""The fault tests' checker on runs with bridges, as the real path makes them: silent on each.

A lane's knowledge of hops and the checker's expectation agree, although they share no code.
"""

from typing import Final

from tests.harness.checker.check import Anomaly, check
from tests.property import examples
from tests.support.bridges.lane_runs import BridgedRun

RUNS: Final = examples(600)
_ALLOWED: Final = {Anomaly.CROSS_LANE, Anomaly.OVERRUN}
"""Anomalies that producers and small rings cause."""


def test_silent_on_correct_runs() -> None:
    """The checker is silent on correct runs, for any traffic over any route, and for any turns of lanes."""
    fates: set[str] = set()
    for seed in range(RUNS):
        run = BridgedRun("orders", seed)
        run.run()
        findings = [str(finding) for finding in check(run.history) if finding.anomaly not in _ALLOWED]
        assert findings == [], seed
        for name in ("accepted", "diverted", "quarantined"):
            fates |= {name} if getattr(run.history, name) else set()

    assert fates == {"accepted", "diverted", "quarantined"}
