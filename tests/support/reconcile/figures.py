"""Figures of a run: a day of traffic with its curve, duplicate sends with a long tail, some anomalies. Seeded."""

import datetime as dt
import math
import random
from typing import Final

from reconcile.anomalies.names import Anomaly
from reconcile.page.report_data import (
    AddressFigures,
    Bin,
    Figures,
    Finding,
    GroupBin,
    Lane,
    LargeGroup,
    Moment,
    PastRun,
    Ring,
)

BEGIN: Final = 1_795_219_200_000
STEP_MS: Final = 15 * 60 * 1000
ANOMALIES: Final = tuple(anomaly.value for anomaly in Anomaly)
NO_RING: Final = Ring(0, 0, 0.999, 0, 0, 1, 0, 0, 0)


def run(addresses: int = 2, verdict: str = "anomalies", seed: int = 1) -> Figures:
    chance = random.Random(seed)
    made = [
        address(_name(at), chance, scale=1 / (at + 1), faulty=verdict == "anomalies" and at == 0)
        for at in range(addresses)
    ]
    first = made[0].ring
    advice = (
        f"{made[0].name}: set id_cache_size = {first.recommended} (it has {first.capacity}): 99.9 % of the "
        f"resends needed {first.needed:,} in 7 d, and 50 % headroom is for traffic that was not seen"
    )
    return Figures(
        "Night of 21 November 2026",
        "From 21 Nov 2026 00:00 to 22 Nov 2026 00:00 UTC: night 12, which follows night 11",
        verdict,
        "kafka-1:9092,kafka-2:9092",
        made,
        [advice],
        past(12, verdict),
    )


def past(number: int, verdict: str = "clean") -> list[PastRun]:
    chance = random.Random(number)
    verdicts = {number: verdict, number - 4: "gap", number - 7: "anomalies"}
    made = []
    for run in range(1, number + 1):
        messages, said = round(3_000_000 * chance.uniform(0.6, 1.2)), verdicts.get(run, "clean")
        anomalies = {"clean": 0, "gap": 400, "anomalies": 16}[said]
        began = dt.datetime.fromtimestamp(BEGIN / 1000 + 7_204, dt.UTC) - dt.timedelta(days=number - run)
        duplicates = round(messages * chance.uniform(0.004, 0.02))
        seconds = round(messages / 40_000, 1) if run > 2 else None
        made.append(PastRun(run, began.isoformat(), said, messages, duplicates, anomalies, seconds))
    return made


def _name(at: int) -> str:
    return ("orders", "payments")[at] if at < 2 else f"address-{at}"


def address(name: str, chance: random.Random, *, scale: float = 1.0, faulty: bool = False) -> AddressFigures:
    moments = [_moment(at, chance, scale) for at in range(96)]
    records, duplicates, accepted = (
        sum(getattr(moment, key) for moment in moments) for key in ("records", "duplicates", "accepted")
    )
    distances = _distances(duplicates)
    anomalies = dict.fromkeys(ANOMALIES, 0) | ({"LOST": 2, "CROSS-LANE": 3, "OVERRUN": 11} if faulty else {})
    findings = [
        finding(item, at, chance, name)
        for item, count in anomalies.items()
        for at in range(count)
    ]  # fmt: skip
    return AddressFigures(
        name,
        {"input": records, "accepted": accepted, "duplicates": duplicates, "quarantined": 3, "unchecked": 240,
         "forwarded": records // 50, "in_flight": 118},
        Ring(2000, 5900, 0.999, duplicates, anomalies["OVERRUN"], 7, 9, 352, 61_440, 3914, 7 * 86_400_000),
        STEP_MS,
        moments,
        distances,
        [Bin(2.0**at / 8, round(duplicates * math.exp(-((at - 7) ** 2) / 9) / 5)) for at in range(20)],
        _groups(records - 240),
        [LargeGroup(f"customer-{chance.randrange(10**6):06}", 40_000 // (at + 2)) for at in range(8)],
        [Lane(at, records // 4 + (at - 2) * 900, accepted // 4, duplicates // 4, (0, 118, 0, 0)[at],
              (2000, 2000, 1764, 1911)[at]) for at in range(4)],
        anomalies,
        findings,
    )  # fmt: skip


def _moment(at: int, chance: random.Random, scale: float) -> Moment:
    hour = at / 4
    curve = 0.12 + math.exp(-((hour - 10.5) ** 2) / 8) * 0.7 + math.exp(-((hour - 19.5) ** 2) / 5)
    records = round(46_000 * scale * curve * chance.uniform(0.93, 1.07))
    burst = 0.09 if 13.5 <= hour < 14.25 else 0.006
    duplicates = round(records * burst * chance.uniform(0.6, 1.4))
    return Moment(BEGIN + at * STEP_MS, records, records - duplicates, duplicates)


def _distances(total: int) -> list[Bin]:
    weights = [math.exp(-((at - 3.5) ** 2) / 10) + 0.0012 * (at > 8) for at in range(17)]
    return [Bin(2.0**at, round(total * weight / sum(weights))) for at, weight in enumerate(weights)]


def _groups(records: int) -> list[GroupBin]:
    weights = [1.24**at for at in range(16)]
    shares = [round(records * weight / sum(weights)) for weight in weights]
    return [GroupBin(2**at, math.ceil(share / (0.75 * 2**at)), share) for at, share in enumerate(shares)]


def finding(anomaly: str, at: int, chance: random.Random, topic: str = "orders") -> Finding:
    lost = anomaly in {"LOST", "GAP"}
    return Finding(
        anomaly, topic, chance.randrange(4), 30_000 + at, None if lost else f"{topic}.accepted",
        None if lost else chance.randrange(4), None if lost else 29_000 + at, None if lost else chance.randrange(4),
        None if lost else 12_000 + at, f"order-{chance.randrange(10**9):09}-{at}", f"customer-{chance.randrange(10**6):06}",
        "neither accepted, in quarantine, nor known as a duplicate" if lost else "accepted in another lane too",
        timestamp=BEGIN + at * 60_000,
    )  # fmt: skip


def nothing(verdict: str = "clean") -> Figures:
    empty = AddressFigures("empty", {"input": 0, "accepted": 0}, NO_RING, STEP_MS)
    return Figures("Night of 21 November 2026", "nothing came", verdict, "kafka-1:9092", [empty])
