"""Checks a bridge's configuration with both clusters before start; one may be unreachable."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from agents.bridge.plan import Plan
from agents.bridge.target import read_target
from ringfence_kafka.auth import access_errors
from ringfence_kafka.auth.client_options import refusal
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.errors import BrokerUnavailableError, ConfigurationError, RingfenceError

log: Final = logging.getLogger("ringfence.bridge")

ANSWER_LIMIT_S: Final = 5.0
_OPTIONS: Final[dict[str, Any]] = {"include_authorized_operations": True, "request_timeout": ANSWER_LIMIT_S}


async def faults(plan: Plan) -> list[str]:
    """Return a line for each problem, with its fix."""
    of_source, of_target = await asyncio.gather(_of_source(plan), _of_target(plan))
    return [f"bridge {plan.name}: {fault}" for fault in [*of_source, *of_target]]


async def _of_source(plan: Plan) -> list[str]:
    if (denied := await _denied(plan.source)) is not None:
        return [f"source: {denied}"]
    return [f"source: {fault}" for fault in await asyncio.to_thread(list, _source_faults(plan))]


async def _of_target(plan: Plan) -> list[str]:
    if (denied := await _denied(plan.target)) is not None:
        return [f"target: {denied}"]
    try:
        await read_target(plan)
    except BrokerUnavailableError as error:
        log.warning("bridge %s: target: %s: messages wait at the source", plan.name, error)
    except RingfenceError as error:
        return [f"target: {error}"]
    return [f"target: {fault}" for fault in await asyncio.to_thread(list, _target_faults(plan))]


async def _denied(kafka: Any) -> str | None:
    """Return why brokers refuse the connection; None = they accept it."""
    try:
        reason = await refusal(kafka)
    except ConfigurationError as error:
        return str(error)
    return None if reason is None else str(reason)


def _source_faults(plan: Plan) -> Iterator[str]:
    admin = AdminClient(confluent_options(plan.source))
    topic = plan.source_topic
    no_topic_right = f"topic {topic}: this user may not read it: allow Read on it"
    no_group_right = f"group {plan.group}: this user may not use it: allow Read on it"
    try:
        described = admin.describe_topics(TopicCollection([topic]), **_OPTIONS)[topic].result()
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            yield f"{topic} does not exist at {plan.source.bootstrap_servers}, or this user may not see it: fix source_topic, or create it"
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            yield no_topic_right
        else:
            log.warning(
                "bridge %s: source: %s: nothing is forwarded until it is back",
                plan.name, access_errors.nobody(plan.source, f" ({error.args[0].str()})"),
            )  # fmt: skip
        return
    if _lacks(described, "READ"):
        yield no_topic_right
    try:
        group = admin.describe_consumer_groups([plan.group], **_OPTIONS)[plan.group].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            yield no_group_right
        return
    if _lacks(group, "READ"):
        yield no_group_right


def _target_faults(plan: Plan) -> Iterator[str]:
    admin = AdminClient(confluent_options(plan.target))
    topics = TopicCollection([plan.target_topic, plan.quarantine_topic])
    for name, future in admin.describe_topics(topics, **_OPTIONS).items():
        try:
            denied = _lacks(future.result(), "WRITE")
        except KafkaException as error:
            unauthorized = error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            denied = unauthorized and name == plan.target_topic
        if denied:
            yield f"topic {name}: this user may not write to it: allow Write and DescribeConfigs on it"


def _lacks(described: Any, right: str) -> bool:
    """Return whether this user lacks a right. Without ACLs no right is missing."""
    operations = described.authorized_operations
    return operations is not None and right not in {operation.name for operation in operations}
