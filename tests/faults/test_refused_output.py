"""A topic that a worker writes to is deleted, too small or forbidden: the worker waits, reports the reason, and resumes."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from app.embedded.broker import EmbeddedBroker
from tests.harness.nemeses.nemesis import Nemesis, striking
from tests.harness.nemeses.outputs import DeletedTopic, RevokedRight, SmallTopic
from tests.harness.workloads.numbered import EXACT, Flow, wait_reason, wrong
from tests.support import kafka
from tests.support.brokers.acls import Right
from tests.support.brokers.secured import SecuredBroker
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, worker

FEW: Final = 500


class Scene:
    """A worker with two lanes: one loses its output; the other lane flows."""

    def __init__(self, bootstrap: str, app_id: str, names: tuple[str, str], process: WorkerProcess) -> None:
        self.worker = process
        self.app_id = app_id
        self.struck = Flow(bootstrap, app_id, names[0])
        self.other = Flow(bootstrap, app_id, names[1])

    def begin(self) -> None:
        for flow in (self.struck, self.other):
            flow.send_and_settle(FEW, self.worker)

    def suffer(self, nemesis: Nemesis, reason_part: str) -> str:
        """Strike and return the reason: the struck lane reports why it waits, and the other flows meanwhile."""
        with striking(nemesis):
            for flow in (self.struck, self.other):
                flow.resend(0, FEW)
                flow.send(FEW)
            reason = wait_reason(self.worker, f"{self.struck.address}-0", reason_part)
            other = self.other.settle(self.worker)
            still = self.worker.health()[0]

        assert wrong(other, self.other.due) == EXACT
        assert still == 503
        assert nemesis.struck == 1
        return reason

    def recovered(self) -> list[bytes | None]:
        accepted = self.struck.settle(self.worker)
        self.worker.wait_ready()

        assert "Traceback" not in self.worker.log()
        return accepted


@pytest.fixture(scope="module")
def plain(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Scene]]:
    """Yield a factory of scenes of one worker: each scene has a pair of lanes of its own."""
    app_id = kafka.unique("refused")
    names = [(f"{app_id}-{name}", f"{app_id}-{name}-other") for name in "ab"]
    addresses = [{"name": name, "partitions": 1} for pair in names for name in pair]
    config = configure(tmp_path_factory.mktemp(app_id), bootstrap, app_id, addresses)
    pairs = iter(names)
    with worker(config, "w") as process:
        yield lambda: Scene(bootstrap, app_id, next(pairs), process)


@pytest.fixture(scope="module")
def bootstrap(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


def test_accepted_topic_deleted(bootstrap: str, plain: Callable[[], Scene]) -> None:
    """The lane waits for its topic and names it while others flow; the topic, created again, gets all that is due since."""
    scene = plain()
    scene.begin()
    topic = f"{scene.struck.address}.accepted"
    reason = scene.suffer(DeletedTopic(bootstrap, topic, 1), "does not exist")
    accepted = scene.recovered()

    assert reason == (
        f"{topic} (accepted topic of {scene.struck.address}) does not exist, or this user may not see it: "
        "run 'ringfence topics create'"
    )
    # Messages that were accepted before went with the topic; its IDs stay known.
    assert wrong(accepted, scene.struck.due[FEW:]) == EXACT


def test_accepted_topic_made_small(bootstrap: str, plain: Callable[[], Scene]) -> None:
    """A record that no longer fits a limit lowered under a running worker goes to quarantine; the rest flows, in order."""
    scene = plain()
    scene.begin()
    flow = scene.struck
    topic = f"{flow.address}.accepted"
    large = Sent(b"large", b"g0", b"x" * 9_000)
    with striking(SmallTopic(bootstrap, topic, 5_000)) as nemesis:
        flow.send(FEW)
        kafka.send(bootstrap, flow.address, [large, large])
        flow.send(FEW)
        flow.resend(0, FEW)
        accepted = scene.recovered()
    quarantined = kafka.read_all(bootstrap, f"{flow.address}.quarantine", 1)

    assert nemesis.struck == 1
    assert wrong(accepted, flow.due) == EXACT
    assert [(item.id, item.value) for item in quarantined] == [(b"large", large.value)] * 2


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def _rights(app_id: str, names: tuple[str, ...]) -> list[Right]:
    """Return the rights that a worker needs, one for each action that may be revoked."""
    topic, exactly, prefix = ResourceType.TOPIC, ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    rights: list[Right] = [
        (topic, app_id, prefix, AclOperation.DESCRIBE_CONFIGS),
        *((topic, f"{app_id}-journal", exactly, item) for item in (AclOperation.READ, AclOperation.WRITE)),
        (ResourceType.GROUP, app_id, exactly, AclOperation.READ),
    ]
    for name in names:
        inner = f"{app_id}-{name}"
        transactions = (ResourceType.TRANSACTIONAL_ID, f"{inner}-0", exactly, AclOperation.WRITE)
        rights += [
            (topic, name, exactly, AclOperation.READ),
            *((topic, f"{inner}-{name}", exactly, AclOperation.READ) for name in ("changelog", "forward")),
            *((topic, f"{inner}-{name}", exactly, AclOperation.WRITE) for name in ("changelog", "forward")),
            *((topic, f"{name}.{item}", exactly, AclOperation.WRITE) for item in ("accepted", "quarantine")),
            transactions,
        ]
    return rights


@pytest.fixture(scope="module")
def guarded(
    secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Scene, list[Right]]]:
    app_id = kafka.unique("guarded")
    names = (f"{app_id}-struck", f"{app_id}-other")
    rights = _rights(app_id, names)
    secured.add_user(app_id, rights)
    folder = tmp_path_factory.mktemp(app_id)
    addresses = [{"name": name, "partitions": 1, "id_cache_size": 100_000} for name in names]
    configure(folder, secured.plaintext, app_id, addresses)
    access = secured.scram.with_user(app_id)
    config = access.configure(folder, app_id, addresses)
    with worker(config, "w", **access.environment) as process:
        scene = Scene(secured.plaintext, app_id, names, process)
        scene.begin()
        yield scene, rights


@pytest.mark.long
@pytest.mark.parametrize("name", ["{address}.accepted", "{app}-{address}-changelog", "{app}-{address}-0"])
def test_right_to_write_revoked(
    secured: SecuredBroker, guarded: tuple[Scene, list[Right]], name: str
) -> None:
    """A lane without the right to write waits and names the right while others flow; granted again, it resumes, exact."""
    scene, rights = guarded
    name = name.format(address=scene.struck.address, app=scene.app_id)
    (right,) = [right for right in rights if right[1] == name and right[3] == AclOperation.WRITE]
    reason = scene.suffer(RevokedRight(secured.plaintext, scene.app_id, right), "Write on it")
    accepted = scene.recovered()

    assert name in reason
    assert wrong(accepted, scene.struck.due) == EXACT


@pytest.mark.long
def test_right_on_the_group_revoked(secured: SecuredBroker, guarded: tuple[Scene, list[Right]]) -> None:
    """A worker that may not use its group any more stops in order with exit status 2, and one line names the remedy."""
    scene, rights = guarded
    process = scene.worker
    (right,) = [right for right in rights if right[0] == ResourceType.GROUP]
    with striking(RevokedRight(secured.plaintext, scene.app_id, right)) as nemesis:
        code = process.wait_end()
        scene.struck.send(FEW)
    log = process.log()
    process.start()
    process.wait_ready()
    accepted = scene.recovered()

    assert nemesis.struck == 1
    assert code == 2
    assert "Traceback" not in log
    assert f"allow Read on the group {scene.app_id}, then start it again" in log.splitlines()[-1]
    assert wrong(accepted, scene.struck.due) == EXACT
