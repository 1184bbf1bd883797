"""Queries the target of a bridge for its limits, and creates the quarantine topic."""

import asyncio
import contextlib
import logging
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAlreadyExistsError, for_code

from agents.bridge.batch_builder import Target
from agents.bridge.plan import Plan
from ringfence_kafka.admin.topic_admin import appeared, describe
from ringfence_kafka.admin.topic_ids import Identities, IdentityQuestions, TopicIdentity
from ringfence_kafka.admin.topics import OUTPUT_CONFIG, TopicDescription, unreported_settings
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.auth.access_errors import nobody
from ringfence_kafka.auth.client_options import client_options, refusal
from ringfence_kafka.errors import PrerequisiteError, TopicError, said
from ringfence_kafka.protocol import hop_trace
from ringfence_kafka.protocol.hop import NO_IDS, as_printed

log: Final = logging.getLogger("ringfence.bridge")

QUARANTINE_BYTES_MAX: Final = 1_048_588 + 65_536
"""Minimum size limit of the quarantine topic, in bytes: Kafka's default for a topic, with room for the headers of a quarantined record."""

SHOWN_LIMIT_S: Final = 10.0
ANSWER_LIMIT_S: Final = 5.0
"""Limit of the query for topic IDs, in seconds. A bridge works without them."""


async def read_target(plan: Plan) -> Target:
    """Return the current limits of the target's topics. Create the quarantine topic if it is missing.

    Raises:
        TopicError: the target topic is missing.
        PrerequisiteError: this user may not see it.
        BrokerUnavailableError: no broker answers, or all deny access.
    """
    try:
        return await _read_target(plan)
    except (KafkaError, OSError, TimeoutError) as error:
        raise await refusal(plan.target) or nobody(
            plan.target, f" ({said(error)})", "bootstrap_servers"
        ) from error


async def _read_target(plan: Plan) -> Target:
    admin = AIOKafkaAdminClient(**client_options(plan.target))
    internals.never_create(admin)
    try:
        await admin.start()
        topic, quarantine = plan.target_topic, plan.quarantine_topic
        described = await describe(admin, [topic, quarantine])
        if topic in described.refused:
            raise PrerequisiteError(
                f"topic {topic}: this user may not write to it: allow Write and DescribeConfigs on it"
            )
        if topic not in described.topics:
            raise TopicError(
                f"{topic} does not exist at {plan.target.bootstrap_servers}, or this user may not see it: run 'ringfence topics create' "
                "there"
            )
        found = described.topics[topic]
        if found.config is None:
            raise PrerequisiteError(unreported_settings(topic))
        kept = described.topics.get(quarantine)
        if kept is None and quarantine not in described.refused:
            kept = await _create(admin, plan, found)
        return Target(
            partitions=found.partitions,
            bytes_max=found.message_bytes_max,
            compacted="compact" in found.cleanup_policy,
            quarantine_bytes_max=0 if kept is None else kept.message_bytes_max,
            topics=await _topics(admin, plan),
            settings=str([sorted((item.config or {}).items()) for item in (found, kept) if item is not None]),
        )
    finally:
        await admin.close()


async def _topics(admin: AIOKafkaAdminClient, plan: Plan) -> frozenset[bytes]:
    """Return the topics that store a message after its arrival.

    A missing or hidden topic is left out: the bridge then detects a returning message one round later.
    """
    if not plan.traces:
        return frozenset()
    answers: Identities = {}
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            answers = await IdentityQuestions(admin).identify(
                {plan.target_topic, plan.address.accepted_topic}
            )
    except (KafkaConnectionError, TimeoutError) as error:
        log.debug("bridge %s: the topic IDs of its target are unknown: %r", plan.name, error)
    found = {as_printed(answer.topic_id) for answer in answers.values() if isinstance(answer, TopicIdentity)}
    return frozenset(map(hop_trace.topic, found - NO_IDS))


async def _create(
    admin: AIOKafkaAdminClient, plan: Plan, target: TopicDescription
) -> TopicDescription | None:
    """Create the quarantine topic; None if that fails. A permanently refused record then stops only its own partition."""
    name = plan.quarantine_topic
    bytes_max = max(QUARANTINE_BYTES_MAX, target.message_bytes_max + 65_536)
    replicas = plan.replication_factor or min(3, len((await admin.describe_cluster())["brokers"]))
    config = {**OUTPUT_CONFIG, "max.message.bytes": str(bytes_max)}
    response = await admin.create_topics([NewTopic(name, 1, replicas, topic_configs=config)])
    ((_, code, *said),) = response.topic_errors
    error = for_code(code)
    if code and error is not TopicAlreadyExistsError:
        log.warning(
            "bridge %s: %s cannot be created at the target (%s). A message that the target refuses would "
            "block its partition. Allow this user Create on the topic, or create it",
            plan.name, name, said[0] if said and said[0] else error.__name__,
        )  # fmt: skip
        return None
    log.info("bridge %s: created %s at the target", plan.name, name)
    # A producer that writes before all brokers know the topic gets an error.
    with contextlib.suppress(TopicError):
        (shown,) = (await appeared(admin, [name], SHOWN_LIMIT_S)).values()
        if shown.config is not None:
            return shown
    return TopicDescription(name, 1, config)
