"""A round: a system under load, faults that a seed chooses, and the judgement of the outputs."""

import contextlib
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.harness.checker.check import check, counts
from tests.harness.checker.order import apart
from tests.harness.history import History, attributed
from tests.harness.nemeses.catalogue import NEMESES
from tests.harness.source_cluster import crossed
from tests.harness.system import System
from tests.harness.workloads.catalogue import FORWARDING, KINDS, ON_REQUEST, Workload, transfers
from tests.harness.workloads.plan import Plan

PAUSE_S: Final = (0.5, 3.0)
LANES_SHARE: Final = 0.5
LIGHT_PRODUCERS: Final = 3
LIGHT_RATE: Final = 100
_WANT_PROGRESS: Final = ("kill-at-", "bridge-kill-at-", "freeze-in-", "output-", "right-")
"""Nemeses that strike at an action of a worker, and so wait until one does it."""


@dataclass
class Verdict:
    """Result of a round."""

    seed: int
    nemeses: list[str]
    workloads: list[str]
    strikes: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    accepted: int = 0
    kills: int = 0
    anomalies: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def line(self) -> str:
        struck = ", ".join(f"{name} x{count}" for name, count in self.strikes.items())
        faults = "; ".join(fault.partition("\n")[0] for fault in self.faults)
        verdict = f"FAILED: {faults}" if faults else "exact"
        allowed = "".join(f", {count} {name} (allowed)" for name, count in self.anomalies.items())
        return (
            f"seed {self.seed}: {struck} | {', '.join(self.workloads)} | {self.sent:,} sent, "
            f"{self.accepted:,} accepted{allowed}, {self.kills} kills, {self.seconds:.0f} s: {verdict}"
        )

    def report(self) -> str:
        return "\n".join([self.line(), *self.faults])


def workloads(rng: random.Random, wanted: str = "") -> list[Workload]:
    """Return three addresses, of which one forwards; in every second round transactions of the third, or of kind ``wanted``, have parts for all."""
    forwarding = rng.choice(FORWARDING)
    others = [kind for kind in KINDS if kind not in {forwarding, wanted, *ON_REQUEST}]
    kinds = [forwarding, *rng.sample(others, 2)]
    seeds = [rng.random() for _ in kinds]
    kinds[-1] = wanted or rng.choice(["transfers", kinds[-1]])
    *plain, last = ((kind, random.Random(seed)) for kind, seed in zip(kinds, seeds, strict=True))
    loads = [KINDS[name](name, dice) for name, dice in plain]
    if last[0] == "transfers":
        return [*loads, transfers(*last, tuple(load.name for load in loads))]
    return [*loads, KINDS[last[0]](*last)]


def in_lanes(loads: Sequence[Workload], partitions: int, dice: random.Random) -> list[Workload]:
    """Return the workloads with addresses that set their lanes, but for the one that forwards: half of them, to one lane most often."""
    return [
        replace(load, lanes=dice.choice((1, 1, dice.randint(1, partitions))))
        if load.name not in FORWARDING and dice.random() < LANES_SHARE
        else load
        for load in loads
    ]


def _lighter(load: Workload) -> list[Plan]:
    return [replace(plan, rate=min(plan.rate, LIGHT_RATE)) for plan in load.plans[:LIGHT_PRODUCERS]]


def run(
    seed: int,
    nemeses: Sequence[str],
    keep: Path | None = None,
    workload: str = "",
    brokers: int = 1,
    *,
    observe: bool = False,
    light: bool = False,
) -> Verdict:
    """Run a round, in which ``seed`` chooses everything except the timing of the processes; ``light``: few and slow producers."""
    rng = random.Random(seed)
    loads = workloads(rng, workload)
    partitions, workers = rng.choice([(4, 2), (3, 3)])
    loads = in_lanes(loads, partitions, random.Random(f"lanes {seed}"))
    loads = [replace(load, observe=observe, plans=_lighter(load) if light else load.plans) for load in loads]
    verdict = Verdict(seed, list(nemeses), [load.shown for load in loads])
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ringfence-round-"))
    try:
        with System(folder, loads, partitions=partitions, workers=workers, brokers=brokers) as system:
            system.start()
            _strike(system, nemeses, rng, verdict)
            system.stop_producers()
            _judge(system, verdict)
            verdict.kills = system.kills
    except Exception as error:
        verdict.faults.append(f"{type(error).__name__}: {error}")
    finally:
        if verdict.faults and keep is not None:
            kept = keep / f"seed-{seed}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.move(folder, kept)
            (kept / "faults.txt").write_text("\n\n".join(verdict.faults))
        shutil.rmtree(folder, ignore_errors=True)
    verdict.seconds = time.monotonic() - began
    return verdict


def _strike(system: System, names: Sequence[str], rng: random.Random, verdict: Verdict) -> None:
    left = list(names)
    while left:
        together = [left.pop(0) for _ in range(min(len(left), rng.choice([1, 1, 2])))]
        # Nemeses that wait for progress strike before those that prevent it.
        together.sort(key=lambda name: (not name.startswith(_WANT_PROGRESS), "broker" in name))
        with contextlib.ExitStack() as healing:
            for name in together:
                nemesis = NEMESES[name](system, rng)
                healing.callback(nemesis.heal)
                nemesis.strike()
                verdict.strikes[name] += nemesis.struck
                if not nemesis.struck:
                    verdict.faults.append(f"{name} struck nothing")
        system.supervise()
        time.sleep(rng.uniform(*PAUSE_S))  # the pace of a round


def _judge(system: System, verdict: Verdict) -> None:
    histories = attributed(system.drain())
    for workload, history in zip(system.workloads, histories, strict=True):
        findings = check(history)
        verdict.sent += len(history.sends)
        verdict.accepted += len(history.accepted)
        found = {name: count for name, count in counts(findings).items() if count}
        verdict.anomalies.update({name: number for name, number in found.items() if name in workload.allowed})
        if bad := {name: number for name, number in found.items() if name not in workload.allowed}:
            first = next(finding for finding in findings if finding.anomaly.value in bad)
            verdict.faults.append(f"{workload.name}: {bad}, such as {first}")
        if workload.user_ids:
            _judge_crossing(system, history, verdict)
        if not history.accepted:
            verdict.faults.append(f"{workload.name}: nothing was accepted")
    verdict.faults += [str(history) for history in apart(histories)]


def _judge_crossing(system: System, history: History, verdict: Verdict) -> None:
    origin = system.origin
    assert origin is not None
    findings = crossed(system.source, history, ids_ignored=origin.user_ids == "ignore")
    if findings:
        verdict.faults.append(f"from the source: {len(findings)} findings, such as {findings[0]}")
