"""Faults of the topics that a worker writes to: deleted, too small, a right revoked."""

from confluent_kafka.admin import AclBinding, AclBindingFilter, AclPermissionType, AdminClient

from tests.support import kafka
from tests.support.brokers.secured import Right
from tests.support.kafka import WAIT_S


class DeletedTopic:
    """A topic is gone until it is healed; what was in it stays lost."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.name = f"{topic} deleted"
        self.struck = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._gone = False

    def strike(self) -> None:
        kafka.delete_topics(self._bootstrap, [self._topic])
        self._gone = True
        self.struck += 1

    def heal(self) -> None:
        if self._gone:
            kafka.create_topics(self._bootstrap, {self._topic: (self._partitions, {})})
            self._gone = False


class AlteredTopic:
    """A setting of a topic keeps its writers from writing, until it is healed."""

    def __init__(self, bootstrap: str, topic: str, setting: str, value: str, healed: str) -> None:
        self.name = f"{topic}: {setting} = {value}"
        self.struck = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._setting = setting
        self._value = value
        self._healed = healed

    @classmethod
    def small(cls, bootstrap: str, topic: str, bytes_max: int) -> "AlteredTopic":
        return cls(bootstrap, topic, "max.message.bytes", str(bytes_max), "1048588")

    def strike(self) -> None:
        kafka.alter_topic(self._bootstrap, self._topic, self._setting, self._value)
        self.struck += 1

    def heal(self) -> None:
        kafka.alter_topic(self._bootstrap, self._topic, self._setting, self._healed)


class RevokedRight:
    """A right is taken from a user by Kafka's own authorizer, and given back."""

    def __init__(self, bootstrap: str, user: str, right: Right) -> None:
        kind, resource, _, operation = right
        self.name = f"{user} may not {operation.name} {kind.name} {resource}"
        self.struck = 0
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._user = f"User:{user}"
        self._right = right
        self._revoked = False

    def strike(self) -> None:
        kind, resource, pattern, operation = self._right
        wanted = AclBindingFilter(
            kind, resource, pattern, self._user, "*", operation, AclPermissionType.ALLOW
        )
        removed = [acl.result(WAIT_S) for acl in self._admin.delete_acls([wanted]).values()]
        self._revoked = True
        self.struck += sum(len(item) for item in removed) > 0

    def heal(self) -> None:
        if not self._revoked:
            return
        kind, resource, pattern, operation = self._right
        granted = AclBinding(kind, resource, pattern, self._user, "*", operation, AclPermissionType.ALLOW)
        for acl in self._admin.create_acls([granted]).values():
            acl.result(WAIT_S)
        self._revoked = False
