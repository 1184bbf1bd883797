"""Rights that a user needs for handlers with sends and state, and the fate of messages without them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from ringfence_client import ConsumerOptions, GroupConsumer, Message
from ringfence_kafka.config.load import load
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.brokers.acls import Right
from tests.support.brokers.secured import SecuredBroker
from tests.support.consumers.in_process import Running
from tests.support.kafka import Got, Sent
from tests.support.lanes import LIMIT_S

pytestmark = pytest.mark.long
TOPIC, EXACTLY = ResourceType.TOPIC, ResourcePatternType.LITERAL
QUICK: Final = {
    "max_attempts": 2,
    "retry_delay": 0.01,
    "lease_timeout": 3.0,
    "lease_idle": 0.3,
    "breaker": False,
}


class Scene:
    """An address, a topic that handlers send to, and a user with the rights of a consumer."""

    def __init__(self, secured: SecuredBroker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.secured = secured
        self.bootstrap = secured.plaintext
        self.name = kafka.unique("sender")
        self.app_id, self.group, self.target = f"{self.name}-app", f"{self.name}-group", f"{self.name}-target"
        self.accepted, self.letters = f"{self.name}.accepted", f"{self.name}.dlq"
        self.state = wire_names.state_topic(self.app_id, self.group, self.accepted)
        for variable, value in secured.scram.environment.items():
            monkeypatch.setenv(variable, value)
        access = secured.scram.with_user(self.name)
        self._settings = load(access.configure(folder, self.app_id, [{"name": self.name}]))
        kafka.create_topics(self.bootstrap, {self.accepted: (1, {}), self.target: (1, {})})

    @property
    def consumer_rights(self) -> list[Right]:
        """Rights that docs/security.md lists for ``consume``."""
        own = [self.letters, f"{self.app_id}-progress"]
        return [
            (TOPIC, self.accepted, EXACTLY, AclOperation.READ),
            (TOPIC, f"{self.app_id}-progress", EXACTLY, AclOperation.READ),
            *((TOPIC, name, EXACTLY, operation) for name in own for operation in (AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS, AclOperation.CREATE)),
            (ResourceType.GROUP, self.group, EXACTLY, AclOperation.READ),
            (ResourceType.TRANSACTIONAL_ID, f"{self.app_id}-consumer/", ResourcePatternType.PREFIXED, AclOperation.WRITE),
        ]  # fmt: skip

    @asynccontextmanager
    async def consumed(
        self, handler: Callable[[Message], Awaitable[None]], *rights: Right
    ) -> AsyncIterator[None]:
        """Run a consumer with this handler and these rights beside a consumer's, on a message of each of three groups."""
        self.secured.add_user(self.name, [*self.consumer_rights, *rights])
        options = ConsumerOptions(**QUICK)  # type: ignore[arg-type]
        running = Running(
            GroupConsumer(self._settings, self._settings.addresses[0], self.group, handler, options), handler
        )
        try:
            await running.ready()
            groups = [Sent(None, group, b"%d" % n) for n, group in enumerate((b"one", b"two", b"three"), 1)]
            kafka.send(self.bootstrap, self.accepted, groups)
            yield
            await running.stop()
        finally:
            await running.end()

    async def until_committed(self) -> None:
        """Wait until all messages are acknowledged."""
        where = self.bootstrap, self.group, self.accepted
        async with asyncio.timeout(LIMIT_S):
            while await asyncio.to_thread(kafka.committed, *where) < [3]:
                pass

    def read(self, topic: str) -> list[Got]:
        return kafka.read_all(self.bootstrap, topic, 1)

    def reasons(self) -> dict[bytes | None, str]:
        """Reasons of the dead letters, by value."""
        return {
            letter.value: (dict(letter.headers)[wire_names.HEADER_REASON] or b"").decode()
            for letter in self.read(self.letters)
        }


@pytest.fixture
def scene(secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(secured, tmp_path, monkeypatch)


async def test_documented_rights_are_enough(scene: Scene) -> None:
    """A handler sends and keeps state with what docs/security.md lists, and no more."""

    async def work(message: Message) -> None:
        await message.send(scene.target, message.value)
        message.state = message.value

    sending = [
        (TOPIC, scene.target, EXACTLY, operation)
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
    ]
    keeping = [
        (TOPIC, scene.state, EXACTLY, operation)
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE)
    ]
    async with scene.consumed(work, *sending, *keeping):
        await scene.until_committed()

    assert sorted(record.value or b"" for record in scene.read(scene.target)) == [b"1", b"2", b"3"]
    states = {record.key: record.value for record in scene.read(scene.state)}
    assert states == {b"one": b"1", b"two": b"2", b"three": b"3"}
    assert scene.reasons() == {}


async def test_topics_that_may_not_be_used(scene: Scene) -> None:
    """Messages that send to a forbidden topic, or set a state, become dead letters that name the rights; others continue."""

    async def work(message: Message) -> None:
        if message.group == b"one":
            await message.send(scene.target, message.value)
        elif message.group == b"two":
            message.state = b"1"

    async with scene.consumed(work):
        await scene.until_committed()

    reasons = scene.reasons()
    assert scene.read(scene.target) == []
    assert reasons.keys() == {b"1", b"2"}
    assert scene.target in reasons[b"1"]
    assert "allow Describe and Write on it" in reasons[b"1"]
    assert scene.state in reasons[b"2"]
    assert "allow Describe and Write on it, and Read and Create too" in reasons[b"2"]
