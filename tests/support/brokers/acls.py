"""Rules of Kafka's own authorizer: added and removed, as operators do it."""

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.kafka import WAIT_S, admin_client

Right = tuple[ResourceType, str, ResourcePatternType, AclOperation]
"""A resource, and the operation that a principal may do on it."""
_Rule = tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]


def _rule(user: str, right: Right, allow: bool) -> _Rule:
    permission = AclPermissionType.ALLOW if allow else AclPermissionType.DENY
    return (*right[:3], f"User:{user}", "*", right[3], permission)


def add(bootstrap: str, user: str, *rights: Right, allow: bool = True) -> None:
    rules = [AclBinding(*_rule(user, right, allow)) for right in rights]
    for added in admin_client(bootstrap).create_acls(rules).values() if rules else ():
        added.result(WAIT_S)


def remove(bootstrap: str, user: str, *rights: Right, allow: bool = True) -> int:
    """Return how many rules were there."""
    rules = [AclBindingFilter(*_rule(user, right, allow)) for right in rights]
    return sum(len(gone.result(WAIT_S)) for gone in admin_client(bootstrap).delete_acls(rules).values())
