"""Creates and verifies topics, with aiokafka's admin client to run on a worker's event loop too."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import click
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    TopicAlreadyExistsError,
    for_code,
)

from agents.rules.lane_rules import file_fault, rules_of
from agents.topic_checks.changelog import Look, newest_metas, no_check, state_faults
from app.commands.topics import access_rights
from app.commands.topics.removed_addresses import removed_addresses
from app.commands.topics.required_topics import (
    Findings,
    TopicPlan,
    compare,
    missing,
    replica_faults,
    required,
)
from ringfence_client.progress.topic_checks import state_fault
from ringfence_kafka.admin.broker_settings import SETTINGS, broker_settings, limit_faults
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topic_admin import appeared, describe
from ringfence_kafka.admin.topics import MESSAGE_BYTES_DEFAULT, TopicDescription
from ringfence_kafka.auth import client_properties
from ringfence_kafka.auth.access_errors import nobody, readable
from ringfence_kafka.auth.client_options import client_options, refusal
from ringfence_kafka.broker_limits import MESSAGE_SIZE
from ringfence_kafka.config.settings import AddressSettings, KafkaSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, TopicError
from ringfence_kafka.process.step_progress import BRIEF_S, steps
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted
from tables.codec import Meta

_APPEAR_LIMIT_S: Final = 10.0
_REQUEST_TIMEOUT_MS: Final = 5_000
"""Time limit for an answer of each bootstrap server, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Topic that exists or is created."""

    name: str
    partitions: int
    created: bool
    """In a dry run: whether it would be created."""
    replication_factor: int | None = None
    """None = the topic exists already."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Settings that differ from the cluster's defaults."""
    recorded: bool = False
    """Whether it was deleted, and gets the partitions that its lanes have recorded."""


def create(settings: Settings, *, dry_run: bool = False, as_json: bool = False) -> int:
    """Create missing topics, or with ``dry_run`` only check, and print a line for each topic; return 0.

    Raises:
        TopicError: The cluster refused a topic.
    """
    with steps(brief_s=BRIEF_S) as progress:
        progress.start_step("looking at topics" if dry_run else "creating topics")
        outcomes = asyncio.run(ensure(settings, dry_run=dry_run))
        progress.count(counted(len(outcomes), "topic"))
    if as_json:
        document = {"dry_run": dry_run, "topics": list(map(asdict, outcomes))}
        click.echo(json.dumps(document, indent=2))
        return 0
    done = "would create" if dry_run else "created"
    for outcome in outcomes:
        line = f"{done if outcome.created else 'exists':{len(done)}}  {outcome.name}  {counted(outcome.partitions, 'partition')}"
        if outcome.recorded:
            line += ", as its lanes have recorded"
        if dry_run and outcome.created:
            config = " ".join(f"{key}={value}" for key, value in sorted(outcome.config.items()))
            line += f"  {outcome.replication_factor} replicas  {config}"
        click.echo(line.rstrip())
    return 0


def check(settings: Settings, *, as_json: bool = False) -> int:
    """Verify all topics, and print a line for each problem; return 1 if there are problems, else 0.

    Missing rights of this user are notes, because workers may run as another user.
    """
    with steps(brief_s=BRIEF_S) as progress:
        progress.start_step("checking topics")
        findings, denied = asyncio.run(_examine_with_rights(settings))
        progress.count(counted(len(required(settings)), "topic"))
    faults = [*findings.faults, *findings.consumers]
    notes = [
        *(
            f"kafka.properties: workers, consumers and bridges do not know {name}: other clients do"
            for name in client_properties.ignored_properties(settings.kafka)
        ),
        *findings.notes,
        *(fault for fault in denied.faults if fault not in faults),
    ]
    if as_json:
        document = {
            "ok": not faults,
            "topics": required(settings),
            "faults": faults,
            "by_address": findings.by_address,
            "notes": notes,
        }
        click.echo(json.dumps(document, indent=2))
        return int(bool(faults))
    for note in notes:
        click.echo(f"note   {note}")
    for fault in faults:
        click.echo(f"problem  {fault}")
    if faults:
        return 1
    click.echo(f"ok     {len(required(settings))} topics")
    return 0


async def _examine_with_rights(settings: Settings) -> tuple[Findings, Findings]:
    def look(address: AddressSettings, meta: Meta) -> str | None:
        return file_fault(address.name, meta.rules, rules_of(address, settings.transaction_targets(address)))

    findings = await examine(settings, look)
    denied = await asyncio.to_thread(access_rights.missing_on_topics, settings)
    async with connected(settings.kafka) as admin:
        limits = await broker_settings(admin, SETTINGS)
        brokers = len((await admin.describe_cluster())["brokers"])
        states = await _state_faults(settings, admin)
    async with _answered(settings.kafka):
        notes = [address.note for address in await removed_addresses(settings)]
    shared = [*limit_faults(settings, limits), *replica_faults(settings, brokers)]
    findings.merge(Findings(shared=shared, consumers=states, notes=notes))
    return findings, denied


async def _state_faults(settings: Settings, admin: AIOKafkaAdminClient) -> list[str]:
    """Return the faults of all state topics of consumer groups."""
    app_id, accepted = settings.app.id, [address.accepted_topic for address in settings.addresses]
    names = [name for name in await admin.list_topics() if wire_names.is_state_topic(name, app_id, accepted)]
    described = (await describe(admin, names)).topics if names else {}
    return [fault for name in sorted(described) if (fault := state_fault(described[name]))]


async def examine(settings: Settings, look: Look = no_check) -> Findings:
    """Return faults with their fixes, and notes, on all topics of the configuration.

    ``look``: see :func:`state_faults`.

    Raises:
        BrokerUnavailableError: No broker answers.
    """
    async with connected(settings.kafka) as admin:
        described = await describe(admin, [*required(settings), *_of_consumers(settings)])
    findings = compare(settings, described)
    findings.merge(Findings(notes=readable(settings.kafka)))
    # Check rings only if the topics of their address are correct.
    sound = [address for address in settings.addresses if not findings.by_address[address.name]]
    async with _answered(settings.kafka), Cluster(settings.kafka, settings.app.id) as cluster:
        findings.by_address.update(await state_faults(cluster, settings, sound, described.topics, look=look))
    return findings


def _of_consumers(settings: Settings) -> list[str]:
    letters = (wire_names.dead_letter_topic(address.name) for address in settings.addresses)
    return [wire_names.progress_topic(settings.app.id), *letters]


async def _recorded(settings: Settings, existing: Mapping[str, TopicDescription]) -> dict[str, int]:
    """Return partition counts that lanes have recorded for missing input and accepted topics."""
    app_id = settings.app.id
    counts: dict[str, int] = {}
    async with _answered(settings.kafka), Cluster(settings.kafka, app_id) as cluster:
        for address in settings.addresses:
            changelog = wire_names.changelog_topic(app_id, address.name)
            wanted = {address.input_topic, address.accepted_topic} - existing.keys()
            if not wanted or changelog not in existing:
                continue
            metas = await newest_metas(cluster, changelog, range(existing[changelog].partitions))
            for _, meta in sorted(metas.items()):
                counts |= {topic: count for topic, count in meta.partition_counts.items() if topic in wanted}
    return counts


async def ensure(settings: Settings, *, dry_run: bool = False) -> list[Outcome]:
    """Create missing topics, or only check. It can be repeated, and run concurrently.

    Raises:
        BrokerUnavailableError: No broker answers.
        TopicError: The cluster refused a topic; accepted ones exist.
    """
    async with connected(settings.kafka) as admin:
        of_consumers = _of_consumers(settings)
        existing = (await describe(admin, [*required(settings), *of_consumers])).topics
        brokers = len((await admin.describe_cluster())["brokers"])
        recorded = await _recorded(settings, existing)
        sizes = await broker_settings(admin, [MESSAGE_SIZE])
        bytes_max = sizes.get(MESSAGE_SIZE, MESSAGE_BYTES_DEFAULT)
        plans = missing(settings, existing, brokers, recorded, bytes_max)
        names = [*required(settings), *(plan.name for plan in plans if plan.name in of_consumers)]
        # Validate all topics before creating the first.
        created = await _create(admin, plans, brokers, validate_only=True)
        if not dry_run:
            created = await _create(admin, plans, brokers)
        if plans and not dry_run:
            shown = await appeared(admin, {plan.name for plan in plans}, _APPEAR_LIMIT_S)
            # another process may have created a topic first; then the topic counts, not the plan
            existing |= {name: topic for name, topic in shown.items() if name not in created}
    made = {
        plan.name: Outcome(
            plan.name, plan.partitions, True, plan.replication_factor, plan.config, plan.name in recorded
        )
        for plan in plans
        if plan.name in created
    }
    return [made.get(name) or Outcome(name, existing[name].partitions, created=False) for name in names]


@contextlib.asynccontextmanager
async def connected(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect an admin client. Errors name the brokers, and what to do."""
    admin = AIOKafkaAdminClient(**client_options(kafka) | {"request_timeout_ms": _REQUEST_TIMEOUT_MS})
    async with _answered(kafka):
        try:
            await admin.start()
            yield admin
        finally:
            await admin.close()


@contextlib.asynccontextmanager
async def _answered(kafka: KafkaSettings) -> AsyncIterator[None]:
    try:
        yield
    except (KafkaError, OSError, TimeoutError) as error:
        if refused := await refusal(kafka):
            raise refused from error
        if isinstance(error, KafkaConnectionError | OSError | TimeoutError):
            raise nobody(kafka) from error
        raise BrokerUnavailableError(
            f"no usable answer ({error or type(error).__name__}) at kafka.bootstrap_servers = {kafka.bootstrap_servers!r}: fix the "
            "address, or look at the brokers"
        ) from error


async def _create(
    admin: AIOKafkaAdminClient, plans: list[TopicPlan], brokers: int, *, validate_only: bool = False
) -> set[str]:
    """Create topics, or only validate them; return the names that this call created.

    Raises:
        TopicError: The cluster refuses some topics; the message names all.
    """
    if not plans:
        return set()
    response = await admin.create_topics(
        [
            NewTopic(plan.name, plan.partitions, plan.replication_factor, topic_configs=dict(plan.config))
            for plan in plans
        ],
        validate_only=validate_only,
    )
    by_name: Mapping[str, TopicPlan] = {plan.name: plan for plan in plans}
    created, refused = set(), []
    for name, code, *rest in response.topic_errors:
        if code == 0:
            created.add(name)
        elif (error := for_code(code)) is not TopicAlreadyExistsError:
            refused.append(_refusal(by_name[name], error, rest, brokers))
    if refused:
        nothing = ["no topic was created, because the cluster refuses some:"] if validate_only else []
        raise TopicError("\n".join([*nothing, *refused]))
    return created


def _refusal(plan: TopicPlan, error: type[KafkaError], message: list[Any], brokers: int) -> str:
    said = f"{error.__name__}: {message[0]}" if message and message[0] else error.__name__
    fixes: dict[type[KafkaError], str] = {
        InvalidReplicationFactorError: f"the cluster has {brokers} brokers: lower replication_factor, or set it to 0",
        InvalidTopicError: "choose another name of the address, or another app.id",
        InvalidConfigurationError: "brokers know all of its settings from Kafka 3.6 on; on older ones create it by hand",
    }
    fix = fixes.get(error, "allow this user to create topics, or have somebody create it")
    return f"{plan.name} was not created with {counted(plan.partitions, 'partition')} ({said}): {fix}"
