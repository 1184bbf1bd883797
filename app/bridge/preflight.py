"""What keeps a bridge from working as it is configured, asked before it starts: a cluster that is away is none of that."""

import asyncio
import logging
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from agents.bridge.plan import Plan
from agents.bridge.target import look
from ringfence_kafka.auth import access_errors
from ringfence_kafka.auth.client_options import refusal
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.errors import BrokerUnavailableError, ConfigurationError, RingfenceError

log: Final = logging.getLogger("ringfence.bridge")

ANSWER_LIMIT_S: Final = 5.0
_OPTIONS: Final[dict[str, Any]] = {
    "include_authorized_operations": True,
    "request_timeout": ANSWER_LIMIT_S,
}


async def faults(plan: Plan) -> list[str]:
    """A line a fault, with the way out; none where all is well, or a cluster cannot say."""
    of_source, of_target = await asyncio.gather(_of_source(plan), _of_target(plan))
    return [f"bridge {plan.name}: {name}" for name in [*of_source, *of_target]]


async def _of_source(plan: Plan) -> list[str]:
    denied = await _denied(plan.source)
    if denied is not None:
        return [f"source: {denied}"]
    return [f"source: {name}" for name in await asyncio.to_thread(_source_faults, plan)]


async def _of_target(plan: Plan) -> list[str]:
    denied = await _denied(plan.target)
    if denied is not None:
        return [f"target: {denied}"]
    try:
        await look(plan)
    except BrokerUnavailableError as error:
        log.warning("bridge %s: target: %s: messages wait at the source", plan.name, error)
    except RingfenceError as error:
        return [f"target: {error}"]
    return [f"target: {name}" for name in await asyncio.to_thread(_target_faults, plan)]


async def _denied(kafka: Any) -> str | None:
    """Why brokers that are there do not let us in."""
    try:
        found = await refusal(kafka)
    except ConfigurationError as error:
        return str(error)
    return None if found is None else str(found)


def _source_faults(plan: Plan) -> list[str]:
    admin = AdminClient(confluent_options(plan.source))
    topic = plan.source_topic
    found = []
    try:
        described = admin.describe_topics(TopicCollection([topic]), **_OPTIONS)[topic].result()
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            found.append(
                f"{topic} does not exist at {plan.source.bootstrap_servers}, or this user may not see it: fix source_topic, or create it"
            )
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            found.append(f"topic {topic}: this user may not read it: allow Read on it")
        else:
            log.warning(
                "bridge %s: source: %s: nothing is forwarded until it is back",
                plan.name, access_errors.nobody(plan.source, f" ({error.args[0].str()})"),
            )  # fmt: skip
        return found
    if _lacks(described, "READ"):
        found.append(f"topic {topic}: this user may not read it: allow Read on it")
    try:
        group = admin.describe_consumer_groups([plan.group], **_OPTIONS)[plan.group].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            found.append(f"group {plan.group}: this user may not use it: allow Read on it")
        return found
    if _lacks(group, "READ"):
        found.append(f"group {plan.group}: this user may not use it: allow Read on it")
    return found


def _target_faults(plan: Plan) -> list[str]:
    admin = AdminClient(confluent_options(plan.target))
    names = [plan.target_topic, plan.quarantine_topic]
    found = []
    for name, future in admin.describe_topics(TopicCollection(names), **_OPTIONS).items():
        try:
            described = future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and name == plan.target_topic:
                found.append(
                    f"topic {name}: this user may not write to it: allow Write and DescribeConfigs on it"
                )
            continue
        if _lacks(described, "WRITE"):
            found.append(
                f"topic {name}: this user may not write to it: allow Write and DescribeConfigs on it"
            )
    return found


def _lacks(described: Any, right: str) -> bool:
    """Whether the cluster says that this user has not that right; without ACLs all have all."""
    operations = described.authorized_operations
    return operations is not None and right not in {operation.name for operation in operations}
