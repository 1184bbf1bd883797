"""Steps of a partition: in scripted order, and in random histories of processes that compete for one partition."""

import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from ringfence_kafka.ownership.partition_state import Action, PartitionState

FIRST, SECOND = object(), object()
LEASE_S = 3.0


def _steps(tenure: PartitionState[object], *events: tuple[str, object]) -> list[Action]:
    """Return the step due after each event."""
    steps = []
    for name, assignment in events:
        getattr(tenure, name)(*[assignment] if assignment is not None else [])
        steps.append(tenure.step(0))
    return steps


def test_from_the_first_assignment_to_the_end() -> None:
    """A partition goes through open, work, pause in a rebalance, resume, work, drain, close and end."""
    tenure: PartitionState[object] = PartitionState()
    assert tenure.step(0) is Action.STAND
    events = [
        ("assigned", FIRST), ("confirmed", FIRST), ("revoked", None), ("assigned", SECOND), ("confirmed", SECOND),
        ("ended", None), ("drained", None), ("given_up", None),
    ]  # fmt: skip

    assert _steps(tenure, *events) == [
        Action.OPEN, Action.WORK, Action.STAND, Action.REGAIN, Action.WORK, Action.DRAIN, Action.CLOSE, Action.END,
    ]  # fmt: skip


def test_right_that_went_while_it_was_asked_for() -> None:
    """A confirmation under a former assignment is repeated under the present one."""
    events = [("assigned", FIRST), ("revoked", None), ("confirmed", FIRST), ("assigned", SECOND)]

    assert _steps(PartitionState(), *events)[2:] == [Action.STAND, Action.REGAIN]


def test_failure_rests_then_opens_anew() -> None:
    """A failed partition is dropped, and opened again after a rest; a new assignment is tried at once."""
    tenure = _held()
    tenure.failed(until=5)

    assert tenure.step(0) is Action.DROP
    tenure.given_up()
    assert (tenure.step(4.9), tenure.step(5), tenure.attempts) == (Action.REST, Action.OPEN, 1)
    tenure.failed(until=9)
    tenure.assigned(SECOND)
    assert (tenure.step(6), tenure.attempts) == (Action.OPEN, 0)


def test_unconfirmed_keeps_what_is_open() -> None:
    """An unconfirmed partition stays open and is asked about again, while the group gives no answer."""
    tenure = _held()
    tenure.revoked()
    tenure.assigned(SECOND)
    tenure.failed(until=1, keeps=True)

    assert (tenure.step(0.5), tenure.step(1)) == (Action.REST, Action.REGAIN)


def _held() -> PartitionState[object]:
    tenure: PartitionState[object] = PartitionState()
    tenure.assigned(FIRST)
    tenure.confirmed(FIRST)
    return tenure


@pytest.mark.parametrize("again", [False, True], ids=["it went away", "and another rebalance began"])
def test_comes_back_while_it_is_drained(again: bool) -> None:
    """A partition that is assigned again while it drains resumes."""
    tenure = _held()
    tenure.revoked()
    tenure.ended()
    if again:
        tenure.revoked()

    assert (tenure.step(0), tenure.right) == (Action.DRAIN, None)
    tenure.assigned(SECOND)
    assert tenure.step(0) is Action.REGAIN


def test_comes_back_too_late() -> None:
    """A partition assigned again after its drain is closed, and opened from the start."""
    tenure = _held()
    tenure.ended()
    assert tenure.right is None
    tenure.drained()
    tenure.assigned(SECOND)

    assert tenure.step(0) is Action.CLOSE
    tenure.given_up()
    assert tenure.step(0) is Action.OPEN


@pytest.mark.parametrize("when", ["assigned", "revoked", "assigned again", "ended"])
def test_broken_never_goes_on(when: str) -> None:
    """A broken partition is drained and closed, whatever the group decides, and opened again if it is still assigned."""
    tenure = _held()
    if when != "assigned":
        tenure.revoked()
    if when == "assigned again":
        tenure.assigned(SECOND)
    if when == "ended":
        tenure.ended()
    tenure.broke(until=5)

    assert tenure.step(0) is Action.DRAIN
    events = [("assigned", SECOND), ("drained", None), ("given_up", None)]  # what rests is tried at once
    assert _steps(tenure, *events) == [Action.DRAIN, Action.CLOSE, Action.OPEN]


@pytest.mark.parametrize("when", ["at work", "in a rebalance", "drained", "broken"])
def test_lost_is_dropped(when: str) -> None:
    """A lost partition is dropped at once in any state, and opened after a rest if it is still assigned."""
    tenure = _held()
    if when == "in a rebalance":
        tenure.revoked()
    if when == "drained":
        tenure.ended()
    if when == "broken":
        tenure.broke(until=1)
    tenure.failed(until=5)
    steps = [tenure.step(0)]
    tenure.given_up()
    steps += [tenure.step(0), tenure.step(5)]

    assert steps[0] is Action.DROP
    assert steps[1:] == {
        "in a rebalance": [Action.STAND, Action.STAND],
        "drained": [Action.END, Action.END],
    }.get(when, [Action.REST, Action.OPEN])


def test_failed_with_nothing_open() -> None:
    """A failure without an open partition leaves nothing to drop, then or later."""
    tenure: PartitionState[object] = PartitionState()
    tenure.assigned(FIRST)
    tenure.failed(until=1)

    assert tenure.step(1) is Action.OPEN
    tenure.confirmed(FIRST)
    assert tenure.step(1) is Action.WORK


def test_latest_right() -> None:
    """The latest assignment stays valid for a partition that is being given away."""
    tenure = _held()
    seen = [tenure.latest]
    tenure.revoked()
    seen.append(tenure.latest)
    tenure.assigned(SECOND)
    seen.append(tenure.latest)

    assert seen == [FIRST, FIRST, SECOND]


# -- processes that compete ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lease:
    """As its record says."""

    token: int = 0
    released: bool = True
    next: int = 0
    at: float = -math.inf
    """When it was written."""


@dataclass
class _Cluster:
    """The state of a broker: members of each generation, the valid writer, and the committed records."""

    chance: random.Random
    generation: int = 0
    owner: int = -1
    """Process that the generation gives the partition to."""
    epoch: int = 0
    accepted: list[tuple[int, int]] = field(default_factory=list)
    """Record and the process that accepted it."""
    lease: _Lease = _Lease()
    processes: "list[_Process]" = field(default_factory=list)
    steps: Counter[tuple[Action, Action]] = field(default_factory=Counter)
    """How often one process did these after one another."""


@dataclass
class _Process(ABC):
    """A process whose knowledge was read behind its fence, or committed by itself."""

    number: int
    tenure: PartitionState[tuple[int, int]] = field(default_factory=PartitionState)
    epoch: int = -1
    next: int = -1
    last: Action = Action.END

    def act(self, cluster: _Cluster, now: float) -> Action:
        """One step; None of those that begin something without a right."""
        step = self.tenure.step(now)
        cluster.steps[self.last, step] += 1
        self.last = step
        if step in {Action.OPEN, Action.REGAIN, Action.WORK}:
            assert self.tenure.right is not None
            self.begin(step, self.tenure.right, cluster, now)
        elif step in {Action.DRAIN, Action.CLOSE, Action.DROP}:
            self.go(step, cluster, now)
        return step

    @abstractmethod
    def begin(self, step: Action, right: tuple[int, int], cluster: _Cluster, now: float) -> None: ...

    @abstractmethod
    def go(self, step: Action, cluster: _Cluster, now: float) -> None: ...


class _Lane(_Process):
    """As a lane is one."""

    def begin(self, step: Action, right: tuple[int, int], cluster: _Cluster, now: float) -> None:
        if step is not Action.WORK and right[0] != cluster.generation:
            self.tenure.failed(now + 1, keeps=step is Action.REGAIN)
        elif step is Action.OPEN:
            cluster.epoch += 1
            self.epoch, self.next = cluster.epoch, len(cluster.accepted)
            self.tenure.confirmed(right)
        elif step is Action.REGAIN:
            self.tenure.confirmed(right)
        elif self.epoch != cluster.epoch:
            self.tenure.failed(now + 1)  # fenced
        else:
            cluster.accepted.append((self.next, self.number))
            self.next += 1
            self.tenure.succeeded()

    def go(self, step: Action, cluster: _Cluster, now: float) -> None:
        if step is Action.DRAIN:
            self.tenure.drained()
        else:
            self.tenure.given_up()


@dataclass
class _Consumer(_Process):
    """As a group consumer's partition is one: what runs outlasts a rebalance, and is announced before it begins."""

    token: int = -1
    running: int | None = None
    covered_until: float = -math.inf
    seen: tuple[_Lease, float] = (_Lease(), -math.inf)
    closed: bool = False

    def begin(self, step: Action, right: tuple[int, int], cluster: _Cluster, now: float) -> None:
        if step is Action.OPEN:
            self._open(right, cluster, now)
        elif step is Action.REGAIN:
            assert not self.closed
            if self._write(cluster, now):
                self.tenure.confirmed(right)
        elif self.running is not None:
            self._finish(cluster, now)
        elif cluster.chance.random() < 0.1:
            self.tenure.broke(now + 1)
        elif now < self.covered_until or self._write(cluster, now):
            self._run(cluster, now)

    def go(self, step: Action, cluster: _Cluster, now: float) -> None:
        if step is Action.DRAIN:
            if self.running is not None and cluster.chance.random() < 0.7:
                return  # it takes its time
            if self.running is None or self._finish(cluster, now):
                self.tenure.drained()
                self.closed = True
            return
        if step is Action.CLOSE:
            self._write(cluster, now, released=True)
        self.running = None
        self.tenure.given_up()

    def _open(self, right: tuple[int, int], cluster: _Cluster, now: float) -> None:
        if cluster.lease != self.seen[0]:
            self.seen = (cluster.lease, now)
        free = cluster.lease.released or now >= self.seen[1] + LEASE_S
        if right[0] != cluster.generation or not free:
            self.tenure.failed(now + 0.1)
            return
        cluster.epoch += 1
        if cluster.chance.random() < 0.2:
            self.tenure.failed(now + 1)  # no member behind the fence: it has written nothing
            return
        self.epoch, self.token, self.next = cluster.epoch, cluster.lease.token + 1, cluster.lease.next
        self.closed = False
        cluster.lease = _Lease(self.token, released=False, next=self.next, at=now)
        self.covered_until = now + LEASE_S / 2
        self.tenure.confirmed(right)

    def _run(self, cluster: _Cluster, now: float) -> None:
        """Nobody else runs it, but who has written nothing for as long as a lease lasts."""
        for process in cluster.processes:
            if isinstance(process, _Consumer) and process.running == self.next:
                assert now >= process.covered_until + LEASE_S / 2
        self.running = self.next

    def _finish(self, cluster: _Cluster, now: float) -> bool:
        self.running = None
        self.next += 1
        return self._write(cluster, now)

    def _write(self, cluster: _Cluster, now: float, *, released: bool = False) -> bool:
        """Refused: fence back, if the lease is ours, and we are a member or nobody asks for that any more."""
        if self.epoch != cluster.epoch:
            right = self.tenure.right
            if cluster.lease.token != self.token or (right is not None and right[0] != cluster.generation):
                self.tenure.failed(now + 1)
                return False
            cluster.epoch += 1
            self.epoch = cluster.epoch
        before = cluster.lease
        assert before.token == self.token
        cluster.accepted += ((index, self.number) for index in range(before.next, self.next))
        cluster.lease = replace(before, released=released, next=self.next, at=now)
        self.covered_until = now + LEASE_S / 2
        return True


def _compete(kind: type[_Process], seed: int) -> _Cluster:
    """Draw late and lost assignments, and rebalances that a process sleeps through. The group decides for the first at the end."""
    chance = random.Random(seed)
    cluster, processes = _Cluster(chance), [kind(index) for index in range(3)]
    cluster.processes = processes
    untold: dict[int, list[int]] = {index: [] for index in range(3)}
    now = 0.0
    for _ in range(300):
        now += chance.random() / 2
        event = chance.random()
        if event < 0.06:
            cluster.generation += 1
            cluster.owner = chance.randrange(3)
            for item in processes:
                if chance.random() < 0.5:
                    item.tenure.revoked()  # else it sleeps, or has not heard of it yet
                untold[item.number].append(cluster.generation)
        elif event < 0.2:
            _tell(chance.choice(processes), untold, cluster)
        else:
            chance.choice(processes).act(cluster, now)
    for entry in processes:
        _tell(entry, untold, cluster)
    before = len(cluster.accepted)
    cluster.generation, cluster.owner = cluster.generation + 1, 0
    for element in processes:
        untold[element.number].append(cluster.generation)
        _tell(element, untold, cluster)
    for _ in range(60):
        now += 0.5
        for each in processes:
            each.act(cluster, now)

    assert [record for record, _ in cluster.accepted] == list(range(len(cluster.accepted)))
    assert {process for _, process in cluster.accepted[-5:]} == {0}
    assert len(cluster.accepted) > before
    assert [process.tenure.step(now) for process in processes[1:]] == [Action.END] * 2
    return cluster


def _tell(process: _Process, untold: dict[int, list[int]], cluster: _Cluster) -> None:
    """Deliver the newest assignment; those before it were lost."""
    if not untold[process.number]:
        return
    generation = untold[process.number][-1]
    untold[process.number].clear()
    process.tenure.revoked()
    if generation == cluster.generation and cluster.owner == process.number:
        process.tenure.assigned((generation, process.number))
    else:
        process.tenure.ended()


@pytest.mark.parametrize("kind", [_Lane, _Consumer])
def test_competing_processes(kind: type[_Process]) -> None:
    """Each record is accepted once, in order, and the process that the group names last continues, whatever came before.

    No other consumer begins a message that runs under a lease. The random histories contain steps of every kind, and each way back.
    """
    seen: Counter[tuple[Action, Action]] = Counter()
    for seed in range(300):
        seen += _compete(kind, seed).steps
    wanted = {
        (Action.STAND, Action.REGAIN),
        (Action.CLOSE, Action.OPEN),
        (Action.CLOSE, Action.END),
        (Action.DROP, Action.STAND),
    }
    if kind is _Lane:
        wanted |= {(Action.DROP, Action.REST)}
    else:
        wanted |= {(Action.DRAIN, Action.REGAIN), (Action.DRAIN, Action.DROP), (Action.WORK, Action.DRAIN)}

    assert {step for pair in seen for step in pair} == set(Action)
    assert wanted <= seen.keys()
