"""Shorten a failing schedule as far as it still fails in the same way."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from tests.simulator.runner import Result, Runner
from tests.simulator.schedules import Schedule

RESEEDED: Final = 6
"""Runs of each shorter schedule: with something left out, answers come at other times, and may miss the failure."""
TRIES_MAX: Final = 1_500


def shrunk(plan: Schedule, runner: Runner) -> Schedule:
    wanted = kind_of(runner.run(plan))
    tries = 0

    def fails(shorter: Schedule) -> Schedule | None:
        nonlocal tries
        for number in range(RESEEDED):
            tries += 1
            tried = replace(shorter, seed=shorter.seed + number * 1_000_003)
            if kind_of(runner.run(tried)) == wanted:
                return tried
        return None

    while tries < TRIES_MAX:
        shorter = _one_shorter(plan, fails)
        if shorter is None:
            break
        plan = shorter
    return plan


def kind_of(result: Result) -> str:
    return result.faults[0].split(" ", 1)[0].split(":")[0].split("/")[0] if result.faults else ""


def _one_shorter(plan: Schedule, fails: Callable[[Schedule], Schedule | None]) -> Schedule | None:
    for schedule in _shorter(plan):
        found = fails(schedule)
        if found is not None:
            return found
    return None


def _shorter(plan: Schedule) -> Iterator[Schedule]:
    happenings = plan.happenings
    for number in reversed(range(len(happenings))):
        yield replace(plan, happenings=(*happenings[:number], *happenings[number + 1 :]))
    for number, happening in enumerate(happenings):
        for left_out in range(len(happening.messages) if len(happening.messages) > 1 else 0):
            messages = (*happening.messages[:left_out], *happening.messages[left_out + 1 :])
            less = replace(happening, messages=messages)
            yield replace(plan, happenings=(*happenings[:number], less, *happenings[number + 1 :]))
    used = max((happening.process for happening in happenings), default=0) + 1
    if plan.processes > max(used, 1):
        yield replace(plan, processes=plan.processes - 1)
