"""Faults of the topics that a worker writes to: deleted, too small, a right revoked."""

from tests.support import kafka
from tests.support.brokers import acls
from tests.support.brokers.acls import Right


class DeletedTopic:
    """A topic is gone until it is healed; what was in it stays lost."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.name = f"{topic} deleted"
        self.struck = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions

    def strike(self) -> None:
        kafka.delete_topics(self._bootstrap, [self._topic])
        self.struck += 1

    def heal(self) -> None:
        if self._topic not in kafka.topics(self._bootstrap):
            kafka.create_topics(self._bootstrap, {self._topic: (self._partitions, {})})


class SmallTopic:
    """A topic takes small batches only, until it is healed."""

    def __init__(self, bootstrap: str, topic: str, bytes_max: int) -> None:
        self.name = f"{topic}: {bytes_max} bytes"
        self.struck = 0
        self._setting = (bootstrap, topic, "max.message.bytes")
        self._bytes_max = bytes_max

    def strike(self) -> None:
        kafka.alter_topic(*self._setting, str(self._bytes_max))
        self.struck += 1

    def heal(self) -> None:
        kafka.alter_topic(*self._setting, "1048588")


class RevokedRight:
    """A right is taken from a user by Kafka's own authorizer, and given back."""

    def __init__(self, bootstrap: str, user: str, right: Right) -> None:
        kind, resource, _, operation = right
        self.name = f"{user} may not {operation.name} {kind.name} {resource}"
        self.struck = 0
        self._rule = (bootstrap, user, right)

    def strike(self) -> None:
        self.struck += acls.remove(*self._rule) > 0

    def heal(self) -> None:
        acls.add(*self._rule)
