"""Happenings of a world of lanes, made from a seed."""

import dataclasses
import random
from typing import Final

from tests.simulator.schedules import (
    CALM,
    MOST_STEPS,
    SMALL_SHARE,
    SMALL_WITHIN_S,
    STRIKES_ONE,
    Happening,
    Kind,
    Message,
    Schedule,
    belated,
    gap,
    in_its_way,
    seconds_of,
)

IDS: Final = 5
GROUPS: Final = 3
_WEIGHTS: Final = {
    Kind.CRASH: 5, Kind.STOP: 2, Kind.HELD: 2, Kind.PAUSE: 5, Kind.CLOCK: 1, Kind.CUT: 3, Kind.LOST: 4, Kind.SLOW: 4, Kind.REFUSED: 4, Kind.MARKERS: 3,
    Kind.REBALANCE: 3, Kind.RETENTION: 1, Kind.COMPACTION: 2, Kind.OFFSETS: 1, Kind.CHANGELOG: 1, Kind.RECREATED: 1, Kind.BELATED: 3,
}  # fmt: skip
EXTRAS: Final = ("", "", "", "calm", "dropped", "tail", "replaced", "eaten")
THEMES: Final = (
    ("taken over",) * 6
    + ("belated",) * 4
    + ("", "", "", "calm", "calm", "dropped", "tail", "replaced", "eaten")
)
"""Themes of small schedules; without one, faults of all kinds."""
REQUESTS: Final = (
    "produce", "produce", "offsets", "end", "initialise", "describe", "fetch", "committed", "ends", "heartbeat", "join", "_read", "_read",
)  # fmt: skip
AT_WORK: Final = ("_read", "_read", "_read", "produce", "offsets", "end")
PASSED_BY_SHARE: Final = 0.03
"""Share of small schedules about :func:`passed_by`; separate dice keep the others as they are."""
AGES: Final = 10_000
"""Callbacks that no wait reaches: its seconds decide."""
TAKEN_OVER_SHARE: Final = 0.4
KINDS: Final = tuple(_WEIGHTS)
LANES_SHARE: Final = 0.3
OBSERVED_SHARE: Final = 0.1
GROWN_SHARE: Final = 0.2
"""Share of these in which the input grows, if no group moves by it."""


def schedule(seed: int, *, faults: int | None = None) -> Schedule:
    return in_its_way(observed(in_lanes(_schedule(seed, faults))))


def observed(plan: Schedule) -> Schedule:
    """Let the address of some schedules only observe. Separate dice keep the others as they are."""
    dice = random.Random(f"observe {plan.seed}")
    return dataclasses.replace(plan, observe=dice.random() < OBSERVED_SHARE)


def in_lanes(plan: Schedule) -> Schedule:
    """Give some schedules an address that sets its lanes and has more partitions. Separate dice keep most schedules as they are."""
    dice = random.Random(f"lanes {plan.seed}")
    if dice.random() >= LANES_SHARE:
        return plan
    partitions = dice.choice((2, 2, 3, 4))
    lanes = dice.choice((1, 1, dice.randint(1, partitions)))
    # A row about one partition must stay about one.
    kinds = {happening.kind for happening in plan.happenings}
    moved = {number: dice.randrange(partitions) for number in range(plan.partitions)}
    together = Kind.EATEN in kinds or dice.random() < 0.3
    happenings = [
        dataclasses.replace(
            happening, partition=moved[happening.partition] if together else dice.randrange(partitions)
        )
        for happening in plan.happenings
    ]
    if (
        dice.random() < GROWN_SHARE
        and not kinds & {Kind.RECREATED, Kind.REPLACED}
        and (lanes == 1 or not partitions % lanes)
    ):
        grown = partitions + lanes * dice.randint(1, 2)
        row = [Happening(*gap(dice), Kind.GROWN, count=grown)]
        row += [
            dataclasses.replace(_sending(dice, grown, most=3), partition=dice.randrange(partitions, grown))
            for _ in range(dice.randint(0, 2))
        ]
        place = dice.randint(0, len(happenings))
        happenings[place:place] = row
    return dataclasses.replace(plan, partitions=partitions, lanes=lanes, happenings=tuple(happenings))


def _schedule(seed: int, faults: int | None) -> Schedule:
    dice = random.Random(seed)
    if faults is None and dice.random() < SMALL_SHARE:
        return _small(seed, dice)
    partitions, processes = dice.choice((1, 1, 2)), dice.choice((2, 2, 3))
    happenings = [_sending(dice, partitions) for _ in range(dice.randint(3, 7))]
    count = dice.choice((1, 2, 3, 4, 6, 8)) if faults is None else faults
    excluded = _ONCE - {dice.choice((Kind.OFFSETS, Kind.CHANGELOG, Kind.RECREATED))}
    taken_over = dice.random() < TAKEN_OVER_SHARE and faults is None
    faults_drawn = [
        _fault(dice, partitions, processes) for _ in range(min(count, 2) if taken_over else count)
    ]
    faults_drawn += [_awakening(dice)] if taken_over else []
    happenings += [fault for fault in faults_drawn if fault.kind not in excluded]
    dice.shuffle(happenings)
    capacity, divert = dice.choice((3, 8, 8, 8)), dice.random() < 0.5
    if faults is None:
        happenings = _with_extra(random.Random(f"extra {seed}"), happenings, partitions, processes)
    return Schedule(seed, partitions, processes, capacity, divert, tuple(happenings))


def _small(seed: int, dice: random.Random) -> Schedule:
    apart = random.Random(f"passed {seed}")
    if apart.random() < PASSED_BY_SHARE:
        return Schedule(seed, 1, 2, 8, divert=False, happenings=tuple(passed_by(apart)), small=True)
    partitions, theme = dice.choice((1, 1, 1, 2)), dice.choice(THEMES)
    happenings = [_sending(dice, partitions, most=3) for _ in range(dice.randint(1, 3))]
    capacity, divert = dice.choice((3, 8, 8, 8)), dice.random() < 0.5
    if theme == "taken over":
        happenings.insert(1, _awakening(dice))
        if dice.random() < 0.3:
            happenings.append(_fault(dice, partitions, 2))
    elif theme == "belated":
        happenings = _with_belated(dice, partitions)
    elif theme == "calm":
        happenings += [_fault(dice, partitions, 2, kind=dice.choice(CALM)) for _ in range(dice.randint(1, 2))]
        dice.shuffle(happenings)
    elif theme:
        happenings = _with_row(dice, happenings, Kind(theme), partitions, 2)
    else:
        happenings += [_fault(dice, partitions, 2) for _ in range(dice.randint(1, 2))]
        dice.shuffle(happenings)
    shortened = tuple(
        dataclasses.replace(happening, within=min(happening.within, SMALL_WITHIN_S))
        for happening in happenings
    )
    return Schedule(seed, partitions, 2, capacity, divert, shortened, small=True)


def passed_by(dice: random.Random) -> list[Happening]:
    """A process is away for longer than a session, while another processes records that are deleted; new ones come when it returns."""
    away = Happening(
        MOST_STEPS, 2.0, Kind.PAUSE, dice.choice(("_read", "_read", "end")),
        seconds=dice.uniform(5.0, 8.0), count=dice.randint(1, 3),
    )  # fmt: skip
    waits = [Happening(AGES, 2.0, Kind.CLOCK) for _ in range(2)]
    then = dataclasses.replace(_sending(dice, 1, most=2), steps=AGES, within=dice.uniform(0.0, 2.0))
    deleted = Happening(AGES, dice.uniform(0.1, 1.0), Kind.RETENTION)
    last = dataclasses.replace(_sending(dice, 1, most=2), steps=0, within=0.0)
    return [_sending(dice, 1, most=3), away, *waits, then, deleted, last]


def _with_belated(dice: random.Random, partitions: int) -> list[Happening]:
    """Transactions follow one another, and late requests of one arrive in the midst of the next, perhaps under another owner."""
    partition = dice.randrange(partitions)
    several = [_sending(dice, partitions, most=2, partition=partition) for _ in range(dice.randint(2, 4))]
    several.insert(dice.randint(0, 2), belated(dice))
    if dice.random() < 0.3:
        several.insert(dice.randint(1, 3), belated(dice))
    if dice.random() < 0.5:
        kind = dice.choice((Kind.CRASH, Kind.REBALANCE, Kind.PAUSE, Kind.STOP, Kind.REFUSED, Kind.MARKERS))
        several.insert(dice.randint(1, len(several)), _fault(dice, partitions, 2, kind=kind))
    return several


def _with_extra(
    dice: random.Random, happenings: list[Happening], partitions: int, processes: int
) -> list[Happening]:
    extra = dice.choice(EXTRAS)
    if extra == "calm":
        return [
            happening
            if happening.kind is Kind.SEND
            else _fault(dice, partitions, processes, kind=dice.choice(CALM))
            for happening in happenings
        ]
    return _with_row(dice, happenings, Kind(extra), partitions, processes) if extra else happenings


def _with_row(
    dice: random.Random, happenings: list[Happening], kind: Kind, partitions: int, processes: int
) -> list[Happening]:
    partition, process = dice.randrange(partitions), dice.randrange(processes)
    steps, within = gap(dice)
    row = [Happening(steps, within, kind, process=process, partition=partition)]
    if kind is Kind.TAIL:
        refused = Happening(
            MOST_STEPS, 5.0, Kind.REFUSED, dice.choice(("produce", "end")), count=dice.randint(1, 3)
        )
        row = [
            _sending(dice, partitions),
            refused,
            dataclasses.replace(row[0], steps=dice.randrange(40)),
            _sending(dice, partitions),
        ]
    if kind is Kind.EATEN:
        eaten = dataclasses.replace(row[0], steps=dice.choice((0, 0, 3, 10)))
        row = [_sending(dice, partitions, partition=partition), eaten]
    if kind in {Kind.REPLACED, Kind.EATEN}:
        happenings = [happening for happening in happenings if happening.kind not in _ONCE]
    place = dice.randint(0, len(happenings))
    return [*happenings[:place], *row, *happenings[place:]]


_ONCE: Final = frozenset({Kind.OFFSETS, Kind.CHANGELOG, Kind.RECREATED})
"""Kinds of which a schedule has one at most: after two, nobody knows what was processed."""


def _awakening(dice: random.Random) -> Happening:
    """A process is away in the middle of its work, and returns while another one opens the lane."""
    kind = dice.choice((Kind.PAUSE, Kind.HELD, Kind.CUT))
    return Happening(
        MOST_STEPS, 5.0, kind, dice.choice(AT_WORK), seconds=30.0, count=dice.randrange(3), pinned=True
    )


def _sending(
    dice: random.Random, partitions: int, most: int = 4, *, partition: int | None = None
) -> Happening:
    messages = tuple(
        Message(
            None if dice.random() < 0.1 else b"i%d" % dice.randrange(IDS),
            None if dice.random() < 0.2 else b"g%d" % dice.randrange(GROUPS),
        )
        for _ in range(dice.randint(1, most))
    )
    return Happening(
        *gap(dice),
        Kind.SEND,
        partition=dice.randrange(partitions) if partition is None else partition,
        seconds=dice.random(),
        messages=messages,
        transaction=dice.choice(("", "", "", "committed", "aborted")),
    )


def _fault(dice: random.Random, partitions: int, processes: int, *, kind: Kind | None = None) -> Happening:
    kind = kind or dice.choices(KINDS, list(_WEIGHTS.values()))[0]
    if kind is Kind.BELATED:
        return belated(dice)
    pinned = kind in (Kind.PAUSE, Kind.CUT, Kind.HELD) and dice.random() < 0.6
    seconds = 30.0 if pinned else seconds_of(kind, dice)
    at = dice.choice(REQUESTS) if kind in STRIKES_ONE and dice.random() < 0.6 else ""
    steps, within = gap(dice, at)
    return Happening(
        steps, within, kind, at, process=dice.randrange(processes), seconds=seconds,
        partition=dice.randrange(partitions), count=dice.randint(1, 3),
        disk_lost=kind is Kind.CRASH and dice.random() < 0.3, pinned=pinned,
    )  # fmt: skip
