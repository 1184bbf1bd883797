"""A topic that a worker writes to is deleted, too small or forbidden: the worker waits, reports the reason, and resumes."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from tests.harness.nemeses import Nemesis, striking
from tests.harness.nemeses.outputs import AlteredTopic, DeletedTopic, RevokedRight
from tests.harness.workloads.numbered import EXACT, Flow, wait_reason, wrong
from tests.support import kafka
from tests.support.brokers.secured import Right, SecuredBroker
from tests.support.kafka import Sent
from tests.support.records.envelopes import envelope, part
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
            flow.send(FEW)
            flow.settle(self.worker)

    def suffer(self, nemesis: Nemesis, *reasons: str) -> str:
        """Strike and return the reason: the struck lane reports why it waits, and the other flows meanwhile."""
        with striking(nemesis):
            for flow in (self.struck, self.other):
                flow.resend(0, FEW)
                flow.send(FEW)
            reason = wait_reason(self.worker, f"{self.struck.address}-0", *reasons)
            other = self.other.settle(self.worker)
            still = self.worker.health()[0]

        assert wrong(other, self.other.due) == EXACT
        assert still == 503
        assert nemesis.struck == 1
        return reason

    def recovered(self) -> list[bytes | None]:
        """Return all that the struck lane has accepted once the worker is ready again."""
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
def bootstrap(broker: object) -> str:
    """Return the function-scoped fixture of the same name, for a module."""
    return str(broker.bootstrap_servers)  # type: ignore[attr-defined]


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
    with striking(AlteredTopic.small(bootstrap, topic, 5_000)) as nemesis:
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
    """Yield a broker with Kafka's own authorizer."""
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
    """Yield a worker that has only the rights that it needs."""
    app_id = kafka.unique("guarded")
    names = (f"{app_id}-struck", f"{app_id}-other")
    target = f"{app_id}-target"
    rights = _rights(app_id, (*names, target))
    secured.add_user(app_id, rights)
    folder = tmp_path_factory.mktemp(app_id)
    addresses: list[dict[str, Any]] = [
        {"name": name, "partitions": 1, "id_cache_size": 100_000} for name in (*names, target)
    ]
    addresses[0]["transaction_addresses"] = [target]
    configure(folder, secured.plaintext, app_id, addresses)
    access = secured.scram.with_user(app_id)
    config = access.configure(folder, app_id, addresses)
    with worker(config, "w", **access.environment) as process:
        scene = Scene(secured.plaintext, app_id, names, process)
        scene.begin()
        yield scene, rights


def _revoked(
    secured: SecuredBroker, scene: Scene, rights: list[Right], kind: ResourceType, what: str
) -> RevokedRight:
    """Revoke the one right on this resource that a lane needs to write."""
    name = (
        f"{scene.struck.address}{what}"
        if what == ".accepted"
        else f"{scene.app_id}-{scene.struck.address}{what}"
    )
    (right,) = [right for right in rights if right[:2] == (kind, name) and right[3] == AclOperation.WRITE]
    return RevokedRight(secured.plaintext, scene.app_id, right)


@pytest.mark.parametrize(
    ("kind", "what", "said"),
    [
        (ResourceType.TOPIC, ".accepted", "allow Write on it"),
        pytest.param(ResourceType.TOPIC, "-changelog", "allow Read and Write on it", marks=pytest.mark.long),
        pytest.param(ResourceType.TRANSACTIONAL_ID, "-0", "allow Write on it", marks=pytest.mark.long),
    ],
)
def test_right_to_write_revoked(
    secured: SecuredBroker, guarded: tuple[Scene, list[Right]], kind: ResourceType, what: str, said: str
) -> None:
    """A lane without the right to write waits and names the right while others flow; granted again, it resumes, exact."""
    scene, rights = guarded
    nemesis = _revoked(secured, scene, rights, kind, what)
    reason = scene.suffer(nemesis, said)
    accepted = scene.recovered()

    assert nemesis._right[1] in reason
    assert wrong(accepted, scene.struck.due) == EXACT


def test_right_to_write_parts_revoked(secured: SecuredBroker, guarded: tuple[Scene, list[Right]]) -> None:
    """A lane that may not write the parts of its transactions waits; once it may, each part is there once."""
    scene, rights = guarded
    target = f"{scene.app_id}-target"
    (right,) = [right for right in rights if right[1] == f"{target}.accepted"]
    records = [
        envelope(part(target, "k", f"{index}.0"), part(target, "k", f"{index}.1"), known=b"tx-%d" % index)
        for index in range(FEW)
    ]
    with striking(RevokedRight(secured.plaintext, scene.app_id, right)) as nemesis:
        kafka.send(secured.plaintext, scene.struck.address, records)
        scene.struck.send(FEW)
        scene.other.send(FEW)
        reason = wait_reason(scene.worker, f"{scene.struck.address}-0", f"{target}.accepted")
        other = scene.other.settle(scene.worker)
        written = kafka.read_all(secured.plaintext, f"{target}.accepted", 1)
    accepted = scene.recovered()
    parts = kafka.read_all(secured.plaintext, f"{target}.accepted", 1)

    assert nemesis.struck == 1
    assert "allow Write on it" in reason
    assert written == []
    assert wrong(other, scene.other.due) == EXACT
    assert wrong(accepted, scene.struck.due) == EXACT
    assert [part.value for part in parts] == [b"%d.%d" % (index, i) for index in range(FEW) for i in range(2)]


def test_right_to_read_revoked(secured: SecuredBroker, guarded: tuple[Scene, list[Right]]) -> None:
    """A lane that may not read its input waits, and the worker reports why and keeps running; granted again, it resumes."""
    scene, rights = guarded
    name = scene.struck.address
    (right,) = [right for right in rights if right[:2] == (ResourceType.TOPIC, name)]
    with striking(RevokedRight(secured.plaintext, scene.app_id, right)) as nemesis:
        scene.struck.send(FEW)
        scene.other.send(FEW)
        # Its open lane says so, and after the next rebalance, which may come at once, the lane that is refused.
        reason = wait_reason(scene.worker, f"{name}-0", "allow Read on it")
        status = scene.worker.health()[0]
        other = scene.other.settle(scene.worker)
    accepted = scene.recovered()

    assert nemesis.struck == 1
    assert f"topic {name}: " in reason
    assert status == 503
    assert wrong(other, scene.other.due) == EXACT
    assert wrong(accepted, scene.struck.due) == EXACT


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
