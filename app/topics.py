"""Creates and verifies topics: the part that talks to the cluster.

It uses the admin client of aiokafka and not that of librdkafka, so that one set of security settings serves
every client, and a worker can verify on its own event loop.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    KafkaConnectionError,
    KafkaError,
    TopicAlreadyExistsError,
    for_code,
)

from app.topic_rules import CLEANING, Findings, TopicDescription, TopicPlan, compare, missing, required
from conf import wire
from conf.errors import BrokerUnavailableError, TopicError
from conf.settings import KafkaSettings, Settings
from tables.access import client_options, refusal

_APPEAR_LIMIT_S: Final = 10.0
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_TIMESTAMP_BOUNDS: Final = (wire.TIMESTAMP_AFTER, wire.TIMESTAMP_BEFORE)
_REQUEST_TIMEOUT_MS: Final = 5_000
"""A person waits: each server of the list gets this long to answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one topic: ``created`` or there already, and its partition count."""

    name: str
    partitions: int
    created: bool


def create(settings: Settings) -> int:
    """Create what is missing and print a line a topic.

    Returns:
        The exit code: 0.

    Raises:
        BrokerUnavailableError: nobody answers.
        TopicError: the cluster refused a topic.
    """
    outcomes = asyncio.run(ensure(settings))
    for each in outcomes:
        click.echo(f"{'created' if each.created else 'exists '}  {each.name}  {each.partitions} partitions")
    if not outcomes:
        click.echo(_NO_ADDRESSES)
    return 0


def check(settings: Settings) -> int:
    """Verify all topics and print a line a fault.

    Returns:
        The exit code: 0 well, 1 not well.

    Raises:
        BrokerUnavailableError: nobody answers.
    """
    findings = asyncio.run(examine(settings))
    for note in findings.notes:
        click.echo(f"note   {note}")
    for fault in findings.faults:
        click.echo(f"fault  {fault}")
    if findings.faults:
        return 1
    click.echo(f"well   {len(required(settings))} topics" if settings.addresses else _NO_ADDRESSES)
    return 0


async def verify(settings: Settings) -> list[str]:
    """The faults that keep a worker from its work, each with the way out; none = all is well.

    Raises:
        BrokerUnavailableError: nobody answers.
    """
    return (await examine(settings)).faults


async def examine(settings: Settings) -> Findings:
    """Faults and notes on all topics of the configuration. Raises as :func:`verify` does."""
    async with _connected(settings.kafka) as admin:
        names = [*required(settings), wire.progress_topic(settings.app.id)]
        return compare(settings, await _describe(admin, names))


async def ensure(settings: Settings) -> list[Outcome]:
    """Create what is missing; safe to repeat, and beside another that does the same.

    Raises:
        BrokerUnavailableError: nobody answers.
        TopicError: the cluster refused a topic; those that it accepted exist.
    """
    async with _connected(settings.kafka) as admin:
        names = required(settings)
        existing = await _describe(admin, names)
        brokers = len((await admin.describe_cluster())["brokers"])
        plans = missing(settings, existing, brokers)
        created = await _create(admin, plans, brokers)
        if plans:
            appeared = await _appeared(admin, {plan.name for plan in plans})
            # Where somebody else was faster: say what is, not what was planned.
            existing |= {name: each for name, each in appeared.items() if name not in created}
    counts = {plan.name: plan.partitions for plan in plans}
    counts |= {name: topic.partitions for name, topic in existing.items()}
    return [Outcome(name, counts[name], name in created) for name in names]


async def _appeared(admin: AIOKafkaAdminClient, names: set[str]) -> dict[str, TopicDescription]:
    """Topics that exist; a broker's metadata shows them a moment after they were created."""
    async with asyncio.timeout(_APPEAR_LIMIT_S):
        while True:
            found = await _describe(admin, sorted(names))
            if names <= found.keys():
                return found
            await asyncio.sleep(0.05)


_NO_ADDRESSES: Final = "no topics: the configuration has no [[addresses]]; add one"


@contextlib.asynccontextmanager
async def _connected(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client; what goes wrong with the connection becomes one error that names the address, or the refusal."""
    admin = AIOKafkaAdminClient(**client_options(kafka) | {"request_timeout_ms": _REQUEST_TIMEOUT_MS})
    try:
        await admin.start()
        yield admin
    except (KafkaError, OSError, TimeoutError) as error:
        away = isinstance(error, KafkaConnectionError | OSError | TimeoutError)
        fault = "no broker answers" if away else f"no usable answer ({error or type(error).__name__})"
        raise await refusal(kafka) or BrokerUnavailableError(
            f"{fault} at kafka.bootstrap_servers = {kafka.bootstrap_servers!r}: start the broker "
            "('ringfence broker' for a first trial) or mend the address"
        ) from error
    finally:
        await admin.close()


async def _describe(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, TopicDescription]:
    """The topics of that name that exist."""
    # All topics are listed, because asking for one by its name lets a broker with auto.create.topics.enable
    # (the default) create it there and then.
    wanted = set(names)
    counts = {
        each["topic"]: len(each["partitions"])
        for each in await admin.describe_topics()
        if each["topic"] in wanted and each["partitions"]
    }
    configs = await _configs(admin, sorted(counts))
    return {name: _description(name, count, configs.get(name)) for name, count in counts.items()}


def _description(name: str, partitions: int, config: dict[str, str] | None) -> TopicDescription:
    if config is None:
        return TopicDescription(name, partitions, None)
    policy = frozenset(word.strip() for word in config["cleanup.policy"].split(","))
    told = {} if config[_TIMESTAMP_TYPE] == "LogAppendTime" else config
    bounds = {key: int(value) for key, value in told.items() if key in _TIMESTAMP_BOUNDS}
    cleaning: dict[str, int] = {key: int(config[key]) for key in CLEANING if key in config}
    return TopicDescription(name, partitions, policy, bounds, cleaning)


async def _configs(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    """What is asked of the configuration of each topic, where the cluster tells."""
    if not names:
        return {}
    wanted = dict.fromkeys(("cleanup.policy", _TIMESTAMP_TYPE, *_TIMESTAMP_BOUNDS, *CLEANING))
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, configs=wanted) for name in names]
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for response in await admin.describe_configs(resources)
        for error_code, _message, _type, name, entries in response.resources
        if error_code == 0
    }


async def _create(admin: AIOKafkaAdminClient, plans: list[TopicPlan], brokers: int) -> set[str]:
    """Create topics; returns the names of those that this call created, not somebody else meanwhile."""
    if not plans:
        return set()
    response = await admin.create_topics(
        [
            NewTopic(plan.name, plan.partitions, plan.replication_factor, topic_configs=dict(plan.config))
            for plan in plans
        ]
    )
    by_name: Mapping[str, TopicPlan] = {plan.name: plan for plan in plans}
    created, refused = set(), []
    for name, code, *rest in response.topic_errors:
        if code == 0:
            created.add(name)
        elif (error := for_code(code)) is not TopicAlreadyExistsError:
            refused.append(_refusal(by_name[name], error, rest, brokers))
    if refused:
        raise TopicError("\n".join(refused))
    return created


def _refusal(plan: TopicPlan, error: type[KafkaError], message: list[Any], brokers: int) -> str:
    said = f"{error.__name__}: {message[0]}" if message and message[0] else error.__name__
    if issubclass(error, InvalidReplicationFactorError):
        way_out = f"the cluster has {brokers} brokers: lower replication_factor, or set it to 0"
    elif issubclass(error, InvalidConfigurationError):
        way_out = "brokers know all of its settings from Kafka 3.6 on; on older ones make it by hand"
    else:
        way_out = "allow this user to create topics, or have somebody create it"
    return f"{plan.name} was not created with {plan.partitions} partitions ({said}): {way_out}"
