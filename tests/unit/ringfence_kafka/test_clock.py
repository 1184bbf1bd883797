"""The clock of leases."""

import time
from types import SimpleNamespace

import pytest

from ringfence_kafka import clock


def test_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is Linux's boot time, which includes sleep of the machine.

    Python and asyncio use another clock, which does not.
    """
    clocks = {time.CLOCK_BOOTTIME: 42.0, time.CLOCK_MONOTONIC: 17.0}
    machine = SimpleNamespace(
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME, clock_gettime=clocks.__getitem__, monotonic=lambda: 17.0
    )
    monkeypatch.setattr(clock, "time", machine)

    assert clock.now() == 42.0


def test_where_there_is_no_such_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems have no boot time by that name: their monotonic clock has to do."""
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: 17.0))

    assert clock.now() == 17.0
