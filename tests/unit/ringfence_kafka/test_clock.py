import time
from types import SimpleNamespace

import pytest

from ringfence_kafka import clock


def test_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is Linux's boot time, which includes sleep of the machine. Other systems have none by that name."""
    clocks = {time.CLOCK_BOOTTIME: 42.0, time.CLOCK_MONOTONIC: 17.0}
    linux = SimpleNamespace(CLOCK_BOOTTIME=time.CLOCK_BOOTTIME, clock_gettime=clocks.__getitem__)
    monkeypatch.setattr(clock, "time", linux)
    assert clock.now() == 42.0
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: 17.0))
    assert clock.now() == 17.0
