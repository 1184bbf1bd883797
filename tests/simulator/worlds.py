"""Worlds by name, each with the schedule of a seed."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.simulator.consumers.schedules import consumer_schedule
from tests.simulator.lanes.envelopes import envelope_schedule
from tests.simulator.lanes.schedules import schedule
from tests.simulator.schedules import Schedule
from tests.simulator.sends.schedules import sends_schedule

WORLDS: Final[Mapping[str, Callable[[int], Schedule]]] = {
    "lanes": schedule,
    "envelopes": envelope_schedule,
    "consumers": consumer_schedule,
    "sends": sends_schedule,
}
