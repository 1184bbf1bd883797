from types import SimpleNamespace

import pytest

from agents.decision import frequent_ids
from agents.lane import forwarding_hint


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the clock of hints by one that moves only by hand. It begins near zero, as on a machine that has just booted."""
    clock = SimpleNamespace(now=0.001)
    clock.monotonic = lambda: clock.now
    for module in (frequent_ids, forwarding_hint):
        monkeypatch.setattr(module, "time", clock)
    return clock
