"""Faults in which the broker refuses something to a running system for a while: larger batches, the right to write."""

import random
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.harness.nemeses.nemesis import OfSystem
from tests.harness.nemeses.outputs import AlteredTopic
from tests.harness.system import APP_ID, System
from tests.harness.workloads.catalogue import Workload
from tests.support.kafka import WAIT_S
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
        self._fault = AlteredTopic.small(system.bootstrap, topic, rng.randint(*LIMIT_BYTES))

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
        self._kind, self._resource = rng.choice(
            [
                (ResourceType.TOPIC, f"{name}.accepted"),
                (ResourceType.TOPIC, f"{inner}-changelog"),
                (ResourceType.TRANSACTIONAL_ID, f"{inner}-{rng.randrange(lanes)}"),
            ]
        )
        self._admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 3})
        self._denied = False

    def strike(self) -> None:
        self.struck += _refused(self._system, "this user may not use it", self._deny)
        time.sleep(self._rng.uniform(*HOLD_S))

    def heal(self) -> None:
        if self._denied:
            every = AclBindingFilter(
                self._kind, self._resource, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.ANY,
                AclPermissionType.ANY,
            )  # fmt: skip
            removed = [acl.result(WAIT_S) for acl in self._admin.delete_acls([every]).values()]
            assert sum(map(len, removed)) == 2, removed
            self._denied = False

    def _deny(self) -> None:
        # A resource without a rule is open to all; with one it is open only to users that a rule allows.
        rules = [(AclOperation.ALL, AclPermissionType.ALLOW), (AclOperation.WRITE, AclPermissionType.DENY)]
        bindings = [
            AclBinding(self._kind, self._resource, ResourcePatternType.LITERAL, "User:*", "*", *rule)
            for rule in rules
        ]
        self._denied = True
        for acl in self._admin.create_acls(bindings).values():
            acl.result(WAIT_S)


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
