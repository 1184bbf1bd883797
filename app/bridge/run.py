"""The process of ``ringfence bridge``."""

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from agents.bridge.bridge import Bridge
from agents.bridge.member_admission import Permit
from agents.bridge.offsets import decode
from agents.bridge.plan import Plan, plans, with_members
from app.bridge import web
from app.bridge.preflight import faults
from app.bridge.quarantines import QuarantineMetrics
from ringfence_kafka import aiokafka_patches
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.concurrency.timeouts import StoppingError, cancelled, set_within, unless
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import (
    BrokerUnavailableError,
    ConfigurationError,
    MissingTopicError,
    PrerequisiteError,
    RingfenceError,
    TopicError,
    said,
)
from ringfence_kafka.http.auth import HttpAuth, http_auth
from ringfence_kafka.http.server import advertised
from ringfence_kafka.http.sockets import listen
from ringfence_kafka.process import failpoints, gc_settings, log_setup, signals

log: Final = logging.getLogger("ringfence.bridge")

LOOK_S: Final = 0.2
"""Interval at which a drain checks its end, in seconds."""
LIVE_S: Final = 1.0
"""Interval at which tasks of bridges are checked for failures, in seconds."""

Permitted = tuple[Plan, Permit | None]
Ends = Mapping[int, int]
"""Partition → end offset of a drain."""


def run_bridges(settings: Settings, names: Sequence[str], web_port: int | None, *, drain: bool) -> int:
    """Forward until SIGTERM, SIGINT or SIGHUP, or with ``drain`` up to the present ends.

    Then commit and leave.

    Raises:
        RingfenceError: The process cannot start. The message has the problem and its fix.
    """
    log_setup.configure()
    failpoints.install_from_environment()
    aiokafka_patches.install(whole_process=True)
    configured = plans(settings, names)
    auth = http_auth(settings.app)
    listener = None if web_port == 0 else listen(settings.app.web_host, web_port)
    name = settings.app.web_name
    url = "" if listener is None else advertised(*listener.getsockname()[:2], name=name, auth=auth)
    with contextlib.ExitStack() as stack:
        if listener is not None:
            stack.callback(listener.close)
        gc_settings.collect_rarely()
        asyncio.run(_run(configured, listener, auth, url, drain=drain))
    log.info("stopped")
    return 0


async def _run(
    configured: Sequence[Plan], listener: socket.socket | None, auth: HttpAuth, url: str, *, drain: bool
) -> None:
    instance = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    stopping = asyncio.Event()
    signals.on_termination(stopping.set)
    bridges: list[Bridge] = []
    async with contextlib.AsyncExitStack() as stack:
        if listener is not None:
            quarantines = QuarantineMetrics(bridges)
            await stack.enter_async_context(web.serving(bridges, quarantines, listener, auth))
            looking = asyncio.create_task(quarantines.run(), name="quarantines")
            stack.push_async_callback(cancelled, looking)
            log.info("web server at %s", url)
        try:
            ends = await unless(stopping, _prepare(configured, bridges, (instance, url), drain=drain))
        except StoppingError:
            if drain:
                raise TopicError("stopped before anything was drained: run it again with --drain") from None
            return
        log.info("%d bridges start: %s", len(bridges), ", ".join(bridge.plan.name for bridge in bridges))
        await _until_stopped(bridges, stopping, ends if drain else None)
    if drain:
        await require_drained([bridge.plan for bridge in bridges], ends)


async def _prepare(
    configured: Sequence[Plan], bridges: list[Bridge], here: tuple[str, str], *, drain: bool
) -> dict[str, Ends]:
    """Check the bridges, and append those that may run to ``bridges``; return the ends of a drain.

    Raises:
        PrerequisiteError: Every bridge has problems. If only some have, the others run.
    """
    by_bridge = await asyncio.gather(*map(faults, configured))
    lines = [fault for bridge_faults in by_bridge for fault in bridge_faults]
    if all(by_bridge):
        raise PrerequisiteError("\n".join(dict.fromkeys(lines)))
    for line in lines:
        log.error("%s", line)
    ends = await drain_ends(configured) if drain else {}
    allowed = await permitted(configured, drain=drain)
    bridges += [Bridge(plan, *here, ends.get(plan.name), permit) for plan, permit in allowed]
    return ends


async def _until_stopped(
    bridges: Sequence[Bridge], stopping: asyncio.Event, ends: Mapping[str, Ends] | None
) -> None:
    """Run until a stop is requested, or a drain has ended.

    Raises:
        TopicError: A partition prevents the drain from ending.
    """
    running = [asyncio.create_task(bridge.run(), name=bridge.plan.name) for bridge in bridges]
    try:
        while not await set_within(stopping, LIVE_S if ends is None else LOOK_S):
            for task in running:
                if task.done():
                    task.result()
            if ends is not None and all(bridge.drained or bridge.drain_obstacles for bridge in bridges):
                obstacles = [
                    f"bridge {bridge.plan.name}: not drained: {why}"
                    for bridge in bridges
                    for why in bridge.drain_obstacles
                ]
                if obstacles:
                    raise TopicError("\n".join(obstacles))
                if await is_drained([bridge.plan for bridge in bridges], ends):
                    break
    finally:
        for bridge in bridges:
            bridge.stop()
        ended = await asyncio.gather(*running, return_exceptions=True)
    for error in ended:
        if error is not None:
            raise error


async def permitted(plans: Sequence[Plan], *, drain: bool) -> list[Permitted]:
    """Return the bridges to run, each with its permit.

    A permit that was not granted is requested again later.

    Raises:
        ConfigurationError: No bridge may run.
        BrokerUnavailableError: With ``drain``, a source does not answer.
    """
    running: list[Permitted] = [(plan, None) for plan in plans if plan.share is None]
    strict: dict[tuple[str, str], list[Plan]] = {}
    for plan in plans:
        if plan.share is not None:
            strict.setdefault((plan.connection, plan.source_topic), []).append(plan)
    refused = []
    for (connection, _), members_plans in strict.items():
        permit, members = Permit(members_plans[0], drain=drain), None
        try:
            members = (await permit.get()).members
        except RingfenceError as error:
            if drain:
                raise
            if isinstance(error, ConfigurationError):
                refused.append(str(error))
            else:
                log.warning("cluster connection %s: %s", connection, error)
        if members is None:  # not known yet, so all configured plans
            running += [(plan, permit) for plan in members_plans]
        else:
            running += [
                (with_members(plan, members), permit)
                for plan in members_plans
                if plan.share is not None and plan.share.member in members
            ]
    if refused and len(refused) == len(strict) and all(permit is not None for _, permit in running):
        raise ConfigurationError("\n".join(refused))
    return running


async def drain_ends(plans: Sequence[Plan]) -> dict[str, Ends]:
    """Return end offsets by bridge. Bridges with the same source topic have the same ends.

    Raises:
        MissingTopicError: A source topic does not exist.
        BrokerUnavailableError: A source does not answer, so its end is unknown.
    """
    asked: dict[tuple[str, str], Ends] = {}
    found = {}
    for plan in plans:
        place = (plan.source.bootstrap_servers, plan.source_topic)
        if place not in asked:
            asked[place] = await _ends(plan)
        found[plan.name] = asked[place]
    return found


async def _ends(plan: Plan) -> Ends:
    topic = plan.source_topic
    try:
        async with Cluster(plan.source, plan.group) as cluster:
            counts = await cluster.topics.partition_counts([topic])
            if topic not in counts:
                raise MissingTopicError(
                    f"bridge {plan.name}: {topic} does not exist at {plan.source.bootstrap_servers}, so there is nothing to drain: fix "
                    "source_topic, create it, or name the bridges to drain"
                )
            ends = await cluster.offsets.stable_ends([(topic, index) for index in range(counts[topic])])
    except (KafkaError, OSError, TimeoutError) as error:
        raise BrokerUnavailableError(
            f"bridge {plan.name}: the source does not answer, so the end of the drain is unknown: "
            f"{said(error)}"
        ) from error
    return {number: end for (_, number), end in ends.items()}


async def is_drained(plans: Sequence[Plan], ends: Mapping[str, Ends]) -> bool:
    """Return whether all partitions are committed up to their ends, also those that other processes drain."""
    try:
        stood = [await _committed(plan, ends[plan.name]) for plan in plans]
    except (KafkaError, OSError, TimeoutError) as error:
        log.debug("the progress of the drain is unknown now: %r", error)
        return False
    return all(
        stood_at[number] >= end
        for plan, stood_at in zip(plans, stood, strict=True)
        for number, end in ends[plan.name].items()
    )


async def _committed(plan: Plan, numbers: Iterable[int]) -> dict[int, int]:
    async with Cluster(plan.source, plan.group) as cluster:
        noted = await asyncio.gather(
            *(cluster.groups.committed(plan.source_topic, number) for number in numbers)
        )
    return {
        # A bridge's commit has metadata. A commit without it, by an operator or another consumer, does not
        # show what was forwarded.
        number: item.offset if item is not None and decode(item.note) is not None else 0
        for number, item in zip(numbers, noted, strict=True)
    }


async def require_drained(plans: Sequence[Plan], ends: Mapping[str, Ends]) -> None:
    """Check that all partitions are committed exactly up to their ends.

    Raises:
        TopicError: A partition is not. The message names a likely reason.
    """
    for plan in plans:
        for number, at in (await _committed(plan, ends[plan.name])).items():
            end = ends[plan.name][number]
            if at < end:
                raise TopicError(
                    f"bridge {plan.name}: not drained: it has forwarded up to {at} of {end} in "
                    f"{plan.source_topic}/{number}: run it again with --drain"
                )
            if at > end:
                raise TopicError(
                    f"bridge {plan.name}: it has forwarded up to {at} in {plan.source_topic}/{number}, "
                    f"beyond the end {end} of the drain, so another process runs it. Stop that process, and "
                    "run this again with --drain"
                )
