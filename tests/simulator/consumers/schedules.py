"""Happenings of a world of consumers, made from a seed."""

import dataclasses
import random
from collections.abc import Iterable
from typing import Final

from tests.simulator.consumers.rare_schedules import APART
from tests.simulator.consumers.schedule_parts import GROUPS, OUTCOMES, Task
from tests.simulator.consumers.small_schedules import FIXED, THEMES, away, clocks
from tests.simulator.doubles.group_member import HEARTBEAT_S
from tests.simulator.kafka.groups import SESSION_S
from tests.simulator.kafka.network import LOST_S
from tests.simulator.schedules import (
    CALM,
    SMALL_SHARE,
    STRIKES_ONE,
    Happening,
    Kind,
    Schedule,
    belated,
    gap,
    in_its_way,
    seconds_of,
)

HANDLING_S: Final = (0.0,) * 8 + (0.02, 0.02, 0.5, 0.5, 2.5, 6.0)
KINDS: Final = {
    Kind.CRASH: 5, Kind.STOP: 4, Kind.HELD: 2, Kind.PAUSE: 6, Kind.CLOCK: 1, Kind.CUT: 4, Kind.LOST: 4, Kind.SLOW: 4, Kind.REFUSED: 3, Kind.MARKERS: 3,
    Kind.REBALANCE: 5, Kind.COMPACTION: 2, Kind.RETENTION: 1,
    Kind.BELATED: 3,
    Kind.RECREATED: 1,
}  # fmt: skip
REQUESTS: Final = (
    "produce", "produce", "offsets", "end", "end", "initialise", "identity", "committed", "ends", "ends", "heartbeat", "confirm", "confirm", "join", "_read",
)  # fmt: skip
CALM_HANDLING_S: Final = (0.0, 0.02, 0.5, 2.5, 6.0)
STUBBORN_S: Final = (0.5, 2.5, 6.0)
TAKEN_OVER_SHARE: Final = 0.4
HEARD: Final = frozenset({*CALM, Kind.SEND, Kind.PAUSE, Kind.EATEN})
DISTURBED: Final = frozenset({Kind.LETTERS, Kind.REFUSED, Kind.LATE})
FAULTS_SHARE: Final = 0.2
"""Share of the small schedules that are only about faults, of any kind."""
APART_SHARE: Final = 0.1
"""Share of the other small schedules that are about something rare; separate dice keep the rest of a schedule as it is."""
CALM_SHARE: Final = 0.25
"""Share of schedules in which nothing is refused, lost, late or away: only holders affect one another."""


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerSchedule(Schedule):
    """A small world of consumers."""

    concurrency: int = 1
    prefetch: int = 1
    records_max: int = 100
    lease_timeout: float = 3.0
    lease_idle: float = 0.5
    drain_timeout: float = 2.0
    handler_timeout: float = 0.0
    max_attempts: int = 3
    sends: bool = False
    batch: int = 0
    state_cache: int = 0

    @property
    def heard(self) -> bool:
        """Whether all processes that run are answered soon, whatever else happens."""
        return all(happening.kind in HEARD for happening in self.happenings)

    @property
    def quick(self) -> bool:
        return all(
            happening.kind in (Kind.SEND, Kind.CLOCK, Kind.STOP)
            or (happening.kind is Kind.LATE and happening.at == "end")
            for happening in self.happenings
        )

    @property
    def sends_fail(self) -> bool:
        """Whether topics may refuse messages that handlers send, whose runs then fail although they ended well."""
        kinds = {happening.kind for happening in self.happenings}
        alone = Kind.REFUSED in kinds and not (self.implicit and self.brokers == 1)
        return self.sends and (alone or Kind.TARGET in kinds)

    @property
    def lasting(self) -> bool:
        """Whether every holder lives, and can write often enough: in five requests, an unexpected answer leaves a transaction open."""
        kinds = {happening.kind for happening in self.happenings}
        away_s = max(
            (
                happening.seconds + happening.count * (LOST_S + HEARTBEAT_S)
                for happening in self.happenings
                if happening.kind is Kind.PAUSE
            ),
            default=0.0,
        )
        if self.sends_fail:
            return False
        writes = self.implicit and self.lease_idle >= self.lease_timeout > away_s - SESSION_S
        return kinds <= (HEARD | DISTURBED if writes else HEARD - {Kind.PAUSE}) and not any(
            task.outcome == "kill" for happening in self.happenings for task in happening.messages
        )

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: consumers, {self.partitions} partitions, {self.processes} processes, {self.concurrency} handlers, prefetch "
            f"{self.prefetch}, {self.records_max} records kept, lease of {self.lease_timeout:g} s, idle {self.lease_idle:g} s, "
            f"drained in {self.drain_timeout:g} s, runs of {self.handler_timeout:g} s at most, "
            f"{self.max_attempts} attempts, {self.way}"
        )
        head += (
            f", handlers send, batches of {self.batch}, states of {self.state_cache} bytes kept" * self.sends
        )
        return "\n".join([head, *map(str, self.happenings)])


def consumer_schedule(seed: int, *, faults: int | None = None) -> ConsumerSchedule:
    dice = random.Random(f"consumers {seed}")
    if faults is None and dice.random() < SMALL_SHARE:
        return in_its_way(small_schedule(seed, dice))
    partitions, processes = dice.choice((1, 1, 2)), dice.choice((2, 2, 3))
    calm = dice.random() < CALM_SHARE
    happenings = [sending(dice, partitions, calm=calm) for _ in range(dice.randint(2, 5))]
    count = dice.choice((1, 2, 3, 4, 6)) if faults is None else faults
    if not calm and dice.random() < TAKEN_OVER_SHARE and faults is None:
        happenings += [away(dice), *clocks(dice)]
        count = min(count, 2)
    happenings += [fault(dice, partitions, processes, calm=calm) for _ in range(count)]
    dice.shuffle(happenings)
    return in_its_way(planned(seed, dice, partitions, processes, happenings))


def small_schedule(seed: int, dice: random.Random) -> ConsumerSchedule:
    if dice.random() < FAULTS_SHARE:
        partitions = 1
        happenings = [sending(dice, partitions, calm=False), *(fault(dice, partitions, 2) for _ in range(2))]
        dice.shuffle(happenings)
    else:
        partitions = dice.choice((1, 1, 1, 2))
        theme = dice.choices(list(THEMES), list(THEMES.values()))[0]
        apart = random.Random(f"apart {seed}")
        if apart.random() < APART_SHARE:
            theme = apart.choice(tuple(APART))
        happenings = theme(dice)
        fixed = APART.get(theme) or FIXED.get(theme)
        if fixed is not None:
            return dataclasses.replace(planned(seed, dice, partitions, 2, happenings, small=True), **fixed)
        places = [dice.randrange(partitions) for _ in happenings]
        happenings = [
            dataclasses.replace(happening, partition=place)
            for happening, place in zip(happenings, places, strict=True)
        ]
    return planned(seed, dice, partitions, 2, happenings, small=True)


def planned(
    seed: int,
    dice: random.Random,
    partitions: int,
    processes: int,
    happenings: Iterable[Happening],
    *,
    small: bool = False,
) -> ConsumerSchedule:
    return ConsumerSchedule(
        seed, partitions, processes, capacity=8, divert=False, happenings=tuple(happenings), small=small,
        concurrency=dice.choice((1, 2, 3)), prefetch=dice.choice((1, 1, 3)),
        records_max=dice.choice((3, 100, 100)), lease_timeout=dice.choice((3.0, 5.0)),
        lease_idle=dice.choice((0.3, 1.0)), drain_timeout=dice.choice((0.5, 2.0, 10.0)),
        handler_timeout=dice.choice((0.0, 0.0, 0.4, 1.0)), max_attempts=dice.choice((1, 2, 3, 3)),
    )  # fmt: skip


def _task(dice: random.Random, *, calm: bool) -> Task:
    group = None if dice.random() < 0.1 else b"g%d" % dice.randrange(GROUPS)
    outcome = dice.choice(OUTCOMES)
    lasting = STUBBORN_S if outcome == "stubborn" else CALM_HANDLING_S if calm else HANDLING_S
    return Task(group, dice.choice(lasting), outcome)


def sending(dice: random.Random, partitions: int, *, calm: bool) -> Happening:
    tasks = tuple(_task(dice, calm=calm) for _ in range(dice.randint(1, 5)))
    return Happening(
        *gap(dice),
        Kind.SEND,
        partition=dice.randrange(partitions),
        seconds=dice.random(),
        messages=tasks,
        transaction=dice.choice(("", "", "", "committed", "aborted")),
    )


def fault(dice: random.Random, partitions: int, processes: int, *, calm: bool = False) -> Happening:
    kind = dice.choice(CALM) if calm else dice.choices(list(KINDS), list(KINDS.values()))[0]
    if kind is Kind.BELATED:
        return belated(dice)
    pinned = kind in (Kind.PAUSE, Kind.CUT, Kind.HELD) and dice.random() < 0.5
    at = dice.choice(REQUESTS) if kind in STRIKES_ONE and dice.random() < 0.6 else ""
    steps, within = gap(dice, at)
    return Happening(
        steps, within, kind, at, process=dice.randrange(processes),
        seconds=30.0 if pinned else seconds_of(kind, dice), partition=dice.randrange(partitions),
        count=dice.randint(1, 3), pinned=pinned,
    )  # fmt: skip
