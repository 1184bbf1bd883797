"""Faults in which the broker refuses something to a running system for a while: larger batches, the right to write."""

import random
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from tests.harness.nemeses.nemesis import OfSystem
from tests.harness.nemeses.outputs import SmallTopic
from tests.harness.system import APP_ID, System
from tests.harness.workloads.catalogue import Workload
from tests.support.brokers import acls
from tests.support.brokers.acls import Right
from tests.support.worker import wait_for

HOLD_S: Final = (1.0, 6.0)
LIMIT_BYTES: Final = (400, 1_500)
"""Bytes: a few records fit, a batch does not."""


class SmallOutput(OfSystem):
    """An accepted topic takes small batches only; a message that is larger by itself goes to quarantine."""

    name = "output small"

    def __init__(self, system: System, rng: random.Random) -> None:
        super().__init__(system, rng)
        topic = f"{_accepting(system, rng).name}.accepted"
        self._fault = SmallTopic(system.bootstrap, topic, rng.randint(*LIMIT_BYTES))

    def strike(self) -> None:
        self.struck += _refused(self._system, "refuses a record batch for its size", self._fault.strike)
        time.sleep(self._rng.uniform(*HOLD_S))

    def heal(self) -> None:
        self._fault.heal()


class DeniedRight(OfSystem):
    """Kafka's own authorizer denies the writing of outputs, of the changelog, or of one lane's transactions."""

    name = "right denied"

    def __init__(self, system: System, rng: random.Random) -> None:
        super().__init__(system, rng)
        workload = _accepting(system, rng)
        name, lanes = workload.name, workload.lane_count(system.partitions)
        inner = f"{APP_ID}-{name}"
        resource = rng.choice(
            [
                (ResourceType.TOPIC, f"{name}.accepted"),
                (ResourceType.TOPIC, f"{inner}-changelog"),
                (ResourceType.TRANSACTIONAL_ID, f"{inner}-{rng.randrange(lanes)}"),
            ]
        )
        # A resource without a rule is open to all; with one it is open only to users that a rule allows.
        self._rules: list[tuple[Right, bool]] = [
            ((*resource, ResourcePatternType.LITERAL, AclOperation.ALL), True),
            ((*resource, ResourcePatternType.LITERAL, AclOperation.WRITE), False),
        ]
        self._denied = False

    def strike(self) -> None:
        self.struck += _refused(self._system, "this user may not use it", self._deny)
        time.sleep(self._rng.uniform(*HOLD_S))

    def heal(self) -> None:
        if self._denied:
            removed = [
                acls.remove(self._system.bootstrap, "*", right, allow=allow) for right, allow in self._rules
            ]
            assert removed == [1, 1]
            self._denied = False

    def _deny(self) -> None:
        self._denied = True
        for right, allow in self._rules:
            acls.add(self._system.bootstrap, "*", right, allow=allow)


def _accepting(system: System, rng: random.Random) -> Workload:
    """Choose an address that always has something new to accept, and so to be refused."""
    return rng.choice(
        [workload for workload in system.workloads if not any(plan.id_space for plan in workload.plans)]
    )


def _refused(system: System, error: str, strike: Callable[[], None]) -> bool:
    def told() -> int:
        return sum(worker.log_file.read_text().count(error) for worker in system.workers)

    # A lane that opens now would respect the limit at once, and meet no error.
    workers = system.live_workers()
    wait_for(lambda: all(worker.health()[0] == 200 for worker in workers), system.report)
    before = told()
    strike()
    wait_for(lambda: told() > before, lambda: f"no worker met {error}\n{system.report()}")
    return True
