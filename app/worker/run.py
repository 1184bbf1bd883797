"""The worker: builds the Faust app and runs it."""

import asyncio
import contextlib
import fcntl
import functools
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import faust
from yarl import URL

import native
from agents.rules.agreement import Agreement
from agents.rules.member_statements import UNUSABLE, encode, is_worker, own_statement
from agents.topic_checks.addresses import AddressFaults, Faults, say_fault
from agents.worker import faust_agent as address_agent
from agents.worker.lanes import Lanes
from app.commands.topics import access_rights, topics
from app.commands.topics.required_topics import Findings
from app.worker import web
from app.worker.fetch.buffers import COPIES, Buffers
from app.worker.fetch.fetch_interval import FetchInterval
from app.worker.fetch.startup_retry import connected
from app.worker.fetch.transport import BatchTransport
from app.worker.membership import static_membership, warm_up
from app.worker.membership.assignor import LaneAssignor
from app.worker.membership.group import GroupOwnership, join_again, member_id
from app.worker.membership.orphan_lanes import OrphanLanes
from app.worker.metrics import Metrics
from app.worker.open_files import raise_file_limit, warn_of_file_limit
from app.worker.page import Looks
from app.worker.progress import EVERY_S as PROGRESS_EVERY_S
from app.worker.progress import ProgressLine
from ringfence_client.web.web import advertised
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.aiokafka_patches import internals
from ringfence_kafka.aiokafka_patches.lenient_records import LenientRecords
from ringfence_kafka.auth import client_properties
from ringfence_kafka.auth.client_options import Tokens
from ringfence_kafka.auth.tls import ssl_context
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.concurrency.coalesce import StoppedError
from ringfence_kafka.config.settings import KafkaSettings, Settings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError, TopicError
from ringfence_kafka.http.auth import http_auth
from ringfence_kafka.http.sockets import server_socket
from ringfence_kafka.process import failpoints, gc_settings, log_setup, signals
from ringfence_kafka.producer import transaction_version
from ringfence_kafka.protocol.oversized_records import RECORD_BYTES_MAX

log: Final = logging.getLogger("ringfence.worker")

HEARTBEAT_S: Final = 0.25
"""A worker learns of a rebalance by its next heartbeat. Those of all members beat in step, as they were given their
partitions at one moment, so that the one before a crashed worker's session ends tends to come just too early."""
POLL_INTERVAL_MAX_S: Final = 86_400.0
"""A worker whose lanes all wait for something polls nothing, and must not be thrown out for it."""
METADATA_AGE_S: Final = 10.0
"""How soon a topic that was missing is seen when it is there; the default is five minutes."""
LAG_EVERY_S: Final = 5.0
TOPICS_EVERY_S: Final = 10.0
STREAM_BUFFER_BATCHES: Final = 2


class RingfenceApp(faust.App):  # type: ignore[misc]
    """A Faust app that starts and stops what the lanes need."""

    lanes: Lanes
    cluster: Cluster
    watch: BrokerWatch
    unassigned: OrphanLanes
    group_watch: GroupWatch
    statement: Mapping[str, Any] = MappingProxyType({})
    """The rules that this worker states when it joins: see :mod:`agents.rules.member_statements`."""
    topics_together: Sequence[Collection[str]] = ()
    """Those of each address: see :class:`app.worker.membership.assignor.LaneAssignor`."""
    fault: str = ""
    """Why it ended by itself."""

    def end(self, fault: str) -> None:
        """Stop in order, because it cannot go on; the fault has the way out. In any thread."""
        if not self.fault:
            self.fault = fault
            os.kill(os.getpid(), signal.SIGTERM)

    async def on_start(self) -> None:
        """Connect before anything is assigned."""
        if not await connected(self, self.cluster.start):
            return
        await super().on_start()
        self.add_future(self.watch.run())
        self.add_future(self.group_watch.run())
        self.add_future(self._watch(self.lanes.measure_lag, LAG_EVERY_S))
        self.add_future(self._watch(self.lanes.look_at_topics, TOPICS_EVERY_S))
        self.add_future(self._watch(self.lanes.look_at_limits, TOPICS_EVERY_S))
        self.add_future(self._watch(self.lanes.look_at_state_folder, TOPICS_EVERY_S))
        self.add_future(self._watch(self.unassigned.look, TOPICS_EVERY_S))
        self.add_future(self._tell())
        self.add_future(self._watch(self.lanes.kept.forget, TOPICS_EVERY_S))

    async def _watch(self, look: Callable[[], Awaitable[None]], every_s: float) -> None:
        """Keep what ``/metrics`` and ``/health`` show a few seconds old at most, until the cluster answers nobody any more."""
        with contextlib.suppress(StoppedError):
            while True:
                await look()
                await asyncio.sleep(every_s)

    async def _tell(self) -> None:
        """How it goes, once a minute."""
        url = str(self.conf.canonical_url).rstrip("/")
        if url:
            log.info("page at %s/", url)
        line = ProgressLine(url)
        while True:
            began = time.monotonic()
            await asyncio.sleep(PROGRESS_EVERY_S)
            log.info("%s", line.next(self.lanes, time.monotonic() - began))

    async def on_stop(self) -> None:
        """Finish the lanes' transactions while we still are a member of the group, then leave it."""
        log.info("stopping: finishing the transactions under way")
        await self.lanes.stop()
        await super().on_stop()
        await self.cluster.stop()


def create_app(settings: Settings, known: Faults | None = None, denied: Faults | None = None) -> RingfenceApp:
    """Build the app of a worker. Agents are registered here: autodiscovery only warns when an import fails.

    All addresses are subscribed to, also those with a fault: workers that subscribe to different topics are given halves of
    lanes, and a fault that is repaired needs no restart.

    Args:
        settings: What it works on.
        known: Faults of addresses that were found beforehand.
        denied: Of these, rights that are missing.
    """
    guard = http_auth(settings.app)
    servers = ";".join(f"kafka://{server.strip()}" for server in settings.kafka.bootstrap_servers.split(","))
    app = RingfenceApp(
        settings.app.id,
        autodiscover=False,
        broker=servers,
        broker_client_id=settings.kafka.client_id,
        broker_credentials=_credentials(settings.kafka),
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_max_poll_interval=POLL_INTERVAL_MAX_S,
        # The group's members tell it: `ringfence status` finds them so. It is none of Faust's own pages' business.
        canonical_url=advertised(
            settings.app.web_host, settings.app.web_port, name=settings.app.web_name, guard=guard
        )
        if settings.app.web_port
        else "",
        broker_session_timeout=settings.app.session_timeout,
        consumer_group_instance_id=static_membership.group_instance(settings),
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=round(METADATA_AGE_S * 1000),
        PartitionAssignor=LaneAssignor,
        datadir=settings.state_dir / "faust",
        store="memory://",
        stream_buffer_maxsize=STREAM_BUFFER_BATCHES,
        stream_wait_empty=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_bind=settings.app.web_host,
        web_enabled=settings.app.web_port > 0,
        web_port=settings.app.web_port or 6066,
        web_ssl_context=guard.context,
        worker_redirect_stdouts=False,
    )
    app.topics_together = static_membership.lanes(settings)
    app.cluster = Cluster(settings.kafka, settings.app.id)
    app.transport = BatchTransport([URL(part) for part in servers.split(";")], app)
    app.transport.buffers = Buffers(settings.app.buffer_bytes_max)
    LenientRecords.record_bytes_max = max(RECORD_BYTES_MAX, settings.app.buffer_bytes_max // COPIES)
    app.transport.spacing = FetchInterval(settings.app.latency_target_ms / 1000)
    app.transport.buffers.large = gc_settings.give_back_large
    app.transport.passed = client_properties.for_aiokafka(settings.kafka)
    faults = AddressFaults(settings, app.cluster, known, denied, functools.partial(_denied, settings))
    metrics = Metrics()
    app.statement = encode(own_statement(settings))
    app.group_watch = GroupWatch(
        app.cluster,
        static_membership.subscribed(settings),
        is_worker,
        log,
        "messages that it reads are not accepted until it has left",
        lambda: member_id(app),
        reserved=True,
    )
    app.lanes = Lanes(
        settings,
        app.cluster,
        faults,
        metrics.observe,
        app.transport.spacing.took,
        Agreement(settings, app.cluster.groups.static_members),
        app.group_watch,
        functools.partial(_tell_group, app),
    )
    app.transport.unreadable = app.lanes.refused_reads.note
    app.transport.excluded = lambda reason: app.end(
        f"{reason}: allow Read on the group {settings.app.id}, then start it again"
    )
    app.transport.foreign = lambda: app.lanes.foreign
    app.transport.before_joining = lambda topics: warm_up.warm_up(
        app.lanes, app.cluster, app.assignor, topics, static_membership.group_instance(settings)
    )
    app.transport.replaced = lambda: app.end(static_membership.replaced(settings))
    app.unassigned = OrphanLanes(
        app.cluster,
        static_membership.subscribed(settings),
        app.lanes.note_unassigned,
        (lambda: join_again(app)) if settings.app.static_membership else None,
    )
    app.watch = BrokerWatch(
        app.cluster.connection.ping, log, "lanes wait for it", app.cluster.connection.denied
    )
    app.web = web.StatusWeb(app)
    app.web.web_app.middlewares.append(guard.middleware())
    web.register(
        app,
        app.lanes,
        app.watch,
        metrics.show(app.lanes, app.watch, app.transport.buffers, app.transport.spacing),
        Looks(settings),
        settings.app.instance_name,
        app.transport.buffers,
        app.transport.spacing,
    )
    for address in settings.addresses:
        address_agent.register(app, settings.app.id, address, app.lanes)
    _connect(app)
    return app


def _tell_group(app: RingfenceApp, unusable: bool) -> None:
    """State whether this worker can hold lanes, and have the group share them out again."""
    stated = {key: value for key, value in app.statement.items() if key != UNUSABLE}
    app.statement = stated | ({UNUSABLE: True} if unusable else {})
    join_again(app)


def _credentials(kafka: KafkaSettings) -> Any:
    """What Faust takes to get into the cluster."""
    context = ssl_context(kafka) if kafka.uses_ssl else None
    if kafka.uses_tokens:
        return faust.OAuthCredentials(oauth_cb=Tokens(kafka), ssl_context=context)
    if kafka.uses_sasl:
        return faust.SASLCredentials(
            username=kafka.sasl_username,
            password=kafka.sasl_password(),
            mechanism=kafka.sasl_mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context else None


def _connect(app: RingfenceApp) -> None:
    """Let the lanes follow the assignment."""

    async def assigned(sender: Any, assigned: set[Any], **_: Any) -> None:
        await app.lanes.assigned({(tp.topic, tp.partition) for tp in assigned}, GroupOwnership(app))
        app.group_watch.hurry()

    async def revoked(sender: Any, revoked: set[Any], **_: Any) -> None:
        await app.lanes.revoked()

    app.on_partitions_assigned.connect(assigned, weak=False)
    app.on_partitions_revoked.connect(revoked, weak=False)


def run(settings: Settings, web_port: int | None = None) -> int:
    """Run a worker until SIGTERM or SIGINT.

    Raises:
        RingfenceError: it cannot start; the text names the fault and the way out.
    """
    log_setup.configure()
    if fault := native.fault():
        raise ConfigurationError(fault)
    transaction_version.wanted()  # a variable that is neither on nor off is told now, not by each lane
    failpoints.install_from_environment()
    internals.create_no_topics()
    if web_port is not None:
        settings = settings.with_web_port(web_port)
    raise_file_limit()
    warn_of_file_limit(settings)
    findings, denied = asyncio.run(topics.examine(settings)), asyncio.run(access_rights.missing(settings))
    findings.add(denied)
    if findings.fatal:
        raise TopicError("\n".join(findings.faults))
    _check_port(settings.app.web_host, settings.app.web_port)
    with _own_folder(settings.state_dir):
        log.info(
            "worker %s of %s starts: %d addresses, state in %s, path: %s",
            settings.app.instance_name, settings.app.id, len(settings.addresses), settings.state_dir, native.spoken,
        )  # fmt: skip
        _say(findings)
        if settings.app.static_membership:
            asyncio.run(static_membership.renew(settings))
        return _execute(create_app(settings, findings.by_address, denied.by_address))


async def _denied(settings: Settings) -> Faults:
    return (await access_rights.missing(settings)).by_address


def _say(findings: Findings) -> None:
    for note in findings.notes:
        log.info("note: %s", note)
    for name, faults in findings.by_address.items():
        for fault in faults:
            say_fault(name, fault)


def _check_port(host: str, port: int) -> None:
    """Say it before anything has started; the web server itself would say it with a trace."""
    if not port:
        return
    try:
        with server_socket(host, port):
            return
    except OSError as error:
        raise PrerequisiteError(
            f"app.web_port = {port}: cannot listen on {host}:{port} ({error.strerror}): "
            "choose another with --web-port, or 0 for none"
        ) from error


class SignalledWorker(faust.Worker):  # type: ignore[misc]
    """Faust's worker with signals of its own: a hang-up ends it in order, and none of them stops it in a debugger."""

    def _install_signal_handlers_unix(self) -> None:
        super()._install_signal_handlers_unix()
        if signals.ends_at_hang_up():
            self.loop.add_signal_handler(signal.SIGHUP, self._on_sigterm)

    def _on_sigusr2(self) -> None:
        log.info("SIGUSR2 is ignored; SIGUSR1 writes down what all tasks wait for, SIGTERM stops")


def _execute(app: RingfenceApp) -> int:
    gc_settings.collect_rarely()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = SignalledWorker(app, loop=loop, quiet=True, override_logging=False, loglevel=logging.WARNING)
    worker.spinner = None
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    if app.fault:
        raise PrerequisiteError(f"the worker had to stop: {app.fault}")
    log.info("stopped")
    return code


@contextlib.contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """Hold the folder of this worker's state for this process alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PrerequisiteError(
            f"app.data_dir: {folder} cannot be written ({error.strerror}): fix that, or name another folder"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise PrerequisiteError(
            f"another worker runs in {folder}: give this one its own app.instance, or its own --web-port"
        ) from error
    try:
        yield
    finally:
        os.close(lock)
