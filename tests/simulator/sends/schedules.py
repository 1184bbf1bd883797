"""Schedules of consumers whose handlers send: those of consumers, with more messages of a group, batches, and topics that refuse sends."""

import dataclasses
import random
from typing import Final

from tests.simulator.consumers.schedule_parts import GROUPS, Task
from tests.simulator.consumers.schedules import ConsumerSchedule, consumer_schedule
from tests.simulator.schedules import Happening, Kind, gap
from tests.simulator.sends.handlers import LEDGER, PLAIN
from tests.simulator.sends.world import STATE

LEFT_OUT: Final = frozenset({Kind.RECREATED, Kind.TAIL})
"""Kinds that are left out: if another topic replaces the accepted one, messages may be handled twice, and states are of both."""
REFUSED_SHARE: Final = 0.2
MORE_SHARE: Final = 0.6
MORE_S: Final = (0.0, 0.0, 0.02, 0.3)
MORE_OUTCOMES: Final = ("ok",) * 8 + ("fail", "release", "retry", "reject", "unsendable")
LONGEST_IN_BATCH_S: Final = 3.0
"""Seconds of the longest handler in a batch. A batch takes as long as all of its messages, twice if it fails."""
TINY_CACHE_BYTES: Final = 300
LARGE_CACHE_BYTES: Final = 2**20


def sends_schedule(seed: int) -> ConsumerSchedule:
    plan, dice = consumer_schedule(seed), random.Random(f"sends {seed}")
    happenings = [item for item in plan.happenings if item.kind not in LEFT_OUT]
    if dice.random() < MORE_SHARE:
        for _ in range(dice.randint(1, 2)):
            happenings.insert(dice.randint(0, len(happenings)), _more(dice, plan.partitions))
    if dice.random() < REFUSED_SHARE:
        topic = dice.choice((PLAIN, LEDGER, STATE))
        refused = Happening(*gap(dice), Kind.TARGET, request=topic, seconds=dice.choice((0.5, 3.0, 8.0)))
        happenings.insert(dice.randint(0, len(happenings)), refused)
    batch = dice.choice((0, 0, 2, 4))
    if any(task.seconds > LONGEST_IN_BATCH_S for happening in happenings for task in happening.messages):
        batch = 0
    return dataclasses.replace(
        plan,
        happenings=tuple(happenings),
        sends=True,
        batch=batch,
        prefetch=dice.choice((plan.prefetch, 4)),
        state_cache=dice.choice((TINY_CACHE_BYTES, LARGE_CACHE_BYTES)),
    )


def _more(dice: random.Random, partitions: int) -> Happening:
    tasks = tuple(
        Task(b"g%d" % dice.randrange(GROUPS - 1), dice.choice(MORE_S), dice.choice(MORE_OUTCOMES))
        for _ in range(dice.randint(3, 8))
    )
    return Happening(*gap(dice), Kind.SEND, partition=dice.randrange(partitions), messages=tasks)
