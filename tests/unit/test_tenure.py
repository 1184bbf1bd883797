"""Whose turn it is to do what: by hand, and in random histories of processes that compete for one partition."""

import random
from dataclasses import dataclass, field

import pytest

from ringfence_kafka.tenure import Step, Tenure

FIRST, SECOND = object(), object()


def test_from_the_first_assignment_to_the_end() -> None:
    """In order: open, work, stand over a rebalance, regain, work, end."""
    tenure: Tenure[object] = Tenure()
    steps = [tenure.step(0)]
    tenure.assigned(FIRST)
    steps.append(tenure.step(0))
    tenure.confirmed(FIRST)
    steps.append(tenure.step(0))
    tenure.revoked()
    steps.append(tenure.step(0))
    tenure.assigned(SECOND)
    steps.append(tenure.step(0))
    tenure.confirmed(SECOND)
    steps.append(tenure.step(0))
    tenure.ended()
    steps.append(tenure.step(0))

    assert steps == [Step.STAND, Step.OPEN, Step.WORK, Step.STAND, Step.REGAIN, Step.WORK, Step.END]


def test_right_that_went_while_it_was_asked_for() -> None:
    """What was confirmed under a right that is gone is confirmed again under the present one."""
    tenure: Tenure[object] = Tenure()
    tenure.assigned(FIRST)
    tenure.revoked()
    tenure.confirmed(FIRST)

    assert tenure.step(0) is Step.STAND
    tenure.assigned(SECOND)
    assert tenure.step(0) is Step.REGAIN


def test_failure_rests_then_opens_anew() -> None:
    """What failed is not gone on with; a new assignment is tried at once."""
    tenure: Tenure[object] = Tenure()
    tenure.assigned(FIRST)
    tenure.confirmed(FIRST)
    tenure.failed(until=5)

    assert (tenure.step(4.9), tenure.step(5), tenure.attempts) == (Step.REST, Step.OPEN, 1)
    tenure.failed(until=9)
    tenure.assigned(SECOND)
    assert (tenure.step(6), tenure.attempts) == (Step.OPEN, 0)


def test_unconfirmed_keeps_what_is_open() -> None:
    """The group does not say yet whether it is ours: what is open is asked about again, not opened again."""
    tenure: Tenure[object] = Tenure()
    tenure.assigned(FIRST)
    tenure.confirmed(FIRST)
    tenure.revoked()
    tenure.assigned(SECOND)
    tenure.failed(until=1, keeps=True)

    assert (tenure.open, tenure.step(0.5), tenure.step(1)) == (True, Step.REST, Step.REGAIN)


def test_no_right_no_step() -> None:
    with pytest.raises(AssertionError, match="no right"):
        Tenure().require_right()


@dataclass
class _Cluster:
    """What a broker decides: who is a member of which generation, whose writes count, and what is committed."""

    generation: int = 0
    owner: int = -1
    """Process that the generation gives the partition to."""
    epoch: int = 0
    accepted: list[tuple[int, int]] = field(default_factory=list)
    """Record and the process that accepted it."""


@dataclass
class _Process:
    """One process as a lane is one: what it knows was read behind its fence, or committed by itself."""

    number: int
    tenure: Tenure[tuple[int, int]] = field(default_factory=Tenure)
    epoch: int = -1
    next: int = -1

    def act(self, cluster: _Cluster, now: float) -> Step:
        step = self.tenure.step(now)
        if step is Step.OPEN:
            self._open(cluster, now)
        elif step is Step.REGAIN:
            right = self.tenure.require_right()
            if right[0] == cluster.generation:
                self.tenure.confirmed(right)
            else:
                self.tenure.failed(now + 1, keeps=True)
        elif step is Step.WORK:
            if self.epoch != cluster.epoch:
                self.tenure.failed(now + 1)  # fenced
            else:
                cluster.accepted.append((self.next, self.number))
                self.next += 1
                self.tenure.succeeded()
        return step

    def _open(self, cluster: _Cluster, now: float) -> None:
        right = self.tenure.require_right()
        if right[0] != cluster.generation:
            self.tenure.failed(now + 1)
            return
        cluster.epoch += 1
        self.epoch, self.next = cluster.epoch, len(cluster.accepted)
        self.tenure.confirmed(right)


@pytest.mark.parametrize("seed", range(300))
def test_competing_processes(seed: int) -> None:
    """Assignments that come late, or never; rebalances that a process sleeps through: each record is accepted once, in order.

    At the end the group decides, and whoever it is goes on, whatever was before.
    """
    chance = random.Random(seed)
    cluster, processes = _Cluster(), [_Process(each) for each in range(3)]
    untold: dict[int, list[int]] = {each: [] for each in range(3)}
    now = 0.0
    for _ in range(200):
        now += chance.random()
        event = chance.random()
        if event < 0.08:
            cluster.generation += 1
            cluster.owner = chance.randrange(3)
            for each in processes:
                if chance.random() < 0.5:
                    each.tenure.revoked()  # else it sleeps, or has not heard of it yet
                untold[each.number].append(cluster.generation)
        elif event < 0.2:
            _tell(chance.choice(processes), untold, cluster)
        else:
            chance.choice(processes).act(cluster, now)
    for each in processes:
        _tell(each, untold, cluster)
    before = len(cluster.accepted)
    cluster.generation, cluster.owner = cluster.generation + 1, 0
    for each in processes:
        untold[each.number].append(cluster.generation)
        _tell(each, untold, cluster)
    for _ in range(12):
        now += 1
        for each in processes:
            each.act(cluster, now)

    assert [record for record, _ in cluster.accepted] == list(range(len(cluster.accepted)))
    assert {process for _, process in cluster.accepted[before:]} == {0}


def _tell(process: _Process, untold: dict[int, list[int]], cluster: _Cluster) -> None:
    """The newest assignment reaches it; those before it were lost."""
    if not untold[process.number]:
        return
    generation = untold[process.number][-1]
    untold[process.number].clear()
    process.tenure.revoked()
    if generation == cluster.generation and cluster.owner == process.number:
        process.tenure.assigned((generation, process.number))
