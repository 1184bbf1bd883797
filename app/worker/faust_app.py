"""The Faust app of a worker: feeds the lanes with batches, starts and stops the worker's parts."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import faust
from yarl import URL

from agents.lane.lane import LaneState
from agents.worker import faust_agent
from app.worker.fetch.startup_retry import connected
from app.worker.fetch.transport import BatchTransport, TransportHooks
from app.worker.membership.assignor import LaneAssignor, restore_before_joining
from app.worker.membership.group import group_instance, replaced
from app.worker.parts import WorkerParts
from app.worker.web import StatusWeb
from ringfence_kafka.auth import client_properties
from ringfence_kafka.auth.client_options import Tokens
from ringfence_kafka.auth.tls import ssl_context
from ringfence_kafka.concurrency.coalesce import StoppedError
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.http.server import advertised

log: Final = logging.getLogger("ringfence.worker")

HEARTBEAT_S: Final = 0.25
"""Heartbeat interval in seconds, short because a worker learns of a rebalance by its next heartbeat.

All members got their partitions at the same moment, so their heartbeats are in step. The heartbeat before the
end of a crashed worker's session therefore tends to come just too early.
"""
POLL_INTERVAL_MAX_S: Final = 86_400.0
"""Maximum poll interval in seconds. A worker whose lanes all wait does not poll, but must remain a member."""
METADATA_AGE_S: Final = 10.0
"""Metadata age in seconds after which a missing topic is looked up again; the default is five minutes."""
LAG_EVERY_S: Final = 5.0
TOPICS_EVERY_S: Final = 10.0
STREAM_BUFFER_BATCHES: Final = 2
PROGRESS_EVERY_S: Final = 60.0


def progress_line(done: Counter[str], seconds: float, open_lanes: int, waiting: list[int | None]) -> str:
    """Return the line on the last ``seconds``. ``done``: messages by verdict; ``waiting``: lag of each lane."""
    verdicts = [f"{done['accepted'] + done['unchecked']:,} accepted", f"{done['duplicates']:,} duplicates"]
    verdicts += [
        f"{done[name]:,} {name}" for name in ("forwarded", "quarantined", "gap_records") if done[name]
    ]
    lag = f"lag {sum(filter(None, waiting)):,}"
    if unknown := waiting.count(None):
        lag += f" and unknown of {unknown} lanes"
    return f"in {seconds:.0f} s {', '.join(verdicts)}; {lag}; {open_lanes} of {len(waiting)} lanes open"


class RingfenceApp(faust.App):  # type: ignore[misc]
    """Faust app of one worker.

    It subscribes to all addresses, also those with a problem. If workers subscribed to different topics, they
    would get parts of lanes. A problem that is fixed later then needs no restart.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self.parts: Final = parts
        self.fault = ""
        """Reason why the worker stopped itself; empty = it did not."""
        urls = [
            URL(f"kafka://{server.strip()}") for server in parts.settings.kafka.bootstrap_servers.split(",")
        ]
        super().__init__(parts.settings.app.id, broker=urls, **_faust_settings(parts))
        self.transport = BatchTransport(
            urls,
            self,
            buffers=parts.buffers,
            interval=parts.interval,
            client_options=client_properties.for_aiokafka(parts.settings.kafka),
            hooks=TransportHooks(
                connected=parts.group.connect,
                unreadable=parts.lanes.health.refused_reads.record,
                excluded=self._end_without_access,
                replaced=lambda: self.end(replaced(parts.settings)),
                foreign=lambda: parts.lanes.health.foreign,
                before_joining=self._restore_before_joining,
            ),
            lanes={address.input_topic: address.lanes for address in parts.settings.addresses},
        )
        self.web = StatusWeb(self)
        self.web.register(parts)
        for address in parts.settings.addresses:  # Faust's autodiscovery would only warn of a failed import
            faust_agent.register(self, parts.settings.app.id, address, parts.lanes)
        self.on_partitions_assigned.connect(self._open_lanes, weak=False)
        self.on_partitions_revoked.connect(self._pause_lanes, weak=False)

    def end(self, fault: str) -> None:
        """Stop in order because of a problem. ``fault`` says what to do. Thread-safe."""
        if not self.fault:
            self.fault = fault
            os.kill(os.getpid(), signal.SIGTERM)

    def _end_without_access(self, reason: str) -> None:
        self.end(f"{reason}: allow Read on the group {self.parts.settings.app.id}, then start it again")

    async def _restore_before_joining(self, topics: set[str]) -> None:
        parts, instance = self.parts, group_instance(self.parts.settings)
        await restore_before_joining(parts.lanes, parts.cluster, self.assignor, topics, instance)

    async def on_start(self) -> None:
        """Connect to the cluster before partitions are assigned."""
        parts, lanes = self.parts, self.parts.lanes
        if not await connected(self, parts.cluster.start):
            return
        await super().on_start()
        self.add_future(parts.broker_watch.run())
        self.add_future(parts.group_watch.run())
        self.add_future(repeat(lanes.measure_lag, LAG_EVERY_S))
        for look in (
            lanes.check_topics,
            lanes.check_limits,
            lanes.check_state_folder,
            lanes.tables.forget,
            parts.orphan_lanes.refresh,
            parts.repair_watch.refresh,
        ):
            self.add_future(repeat(look, TOPICS_EVERY_S))
        self.add_future(parts.history.run())
        self.add_future(self._log_progress())

    async def _log_progress(self) -> None:
        url = str(self.conf.canonical_url).rstrip("/")
        if url:
            log.info("page at %s/", url)
        page = f"; {url}/" if url else ""
        lanes, before = self.parts.lanes, Counter[str]()
        while True:
            began = time.monotonic()
            await asyncio.sleep(PROGRESS_EVERY_S)
            open_lanes = sum(lanes.health.state_of(lane)[0] is LaneState.OPEN for lane in lanes.lanes)
            waiting = [
                lanes.lags.lag(key) for key in (*(lane.key for lane in lanes.lanes), *lanes.health.halves)
            ]
            totals = sum(lanes.counts().values(), Counter())
            line = progress_line(totals - before, time.monotonic() - began, open_lanes, waiting)
            log.info("%s", line + page)
            before = totals

    async def on_stop(self) -> None:
        """Finish the lanes' transactions while this worker is still a member of the group, then leave it."""
        log.info("stopping: finishing the transactions under way")
        await self.parts.lanes.stop()
        await super().on_stop()
        await self.parts.cluster.stop()

    async def _open_lanes(self, sender: Any, assigned: set[Any], **_: Any) -> None:
        ownership = self.parts.group.ownership(self.consumer_generation_id)
        await self.parts.lanes.assigned({(tp.topic, tp.partition) for tp in assigned}, ownership)
        self.parts.group_watch.hurry()

    async def _pause_lanes(self, sender: Any, revoked: set[Any], **_: Any) -> None:
        await self.parts.lanes.revoked()


async def repeat(look: Callable[[], Awaitable[None]], every_s: float) -> None:
    """Call ``look`` periodically until the cluster client stops, to keep ``/metrics`` and ``/health`` current."""
    with contextlib.suppress(StoppedError):
        while True:
            await look()
            await asyncio.sleep(every_s)


def _faust_settings(parts: WorkerParts) -> dict[str, Any]:
    kafka, app = parts.settings.kafka, parts.settings.app
    return {
        "autodiscover": False,
        "broker_client_id": kafka.client_id,
        "broker_credentials": _credentials(kafka),
        "broker_heartbeat_interval": HEARTBEAT_S,
        "broker_max_poll_interval": POLL_INTERVAL_MAX_S,
        # Members announce this URL to the group, where `ringfence status` finds it. Faust's own pages do not
        # use it.
        "canonical_url": advertised(app.web_host, app.web_port, name=app.web_name, auth=parts.auth)
        if app.web_port
        else "",
        "broker_session_timeout": app.session_timeout,
        "consumer_group_instance_id": group_instance(parts.settings),
        "consumer_auto_offset_reset": "earliest",
        "consumer_metadata_max_age_ms": round(METADATA_AGE_S * 1000),
        "PartitionAssignor": LaneAssignor,
        "datadir": parts.settings.state_dir / "faust",
        "store": "memory://",
        "stream_buffer_maxsize": STREAM_BUFFER_BATCHES,
        "stream_wait_empty": False,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "web_bind": app.web_host,
        "web_enabled": app.web_port > 0,
        "web_port": app.web_port or 6066,
        "web_ssl_context": parts.auth.context,
        "worker_redirect_stdouts": False,
    }


def _credentials(kafka: KafkaSettings) -> Any:
    context = ssl_context(kafka) if kafka.uses_ssl else None
    if kafka.uses_tokens:
        return faust.OAuthCredentials(oauth_cb=Tokens(kafka), ssl_context=context)
    if kafka.uses_sasl:
        return faust.SASLCredentials(
            username=kafka.sasl_username,
            password=kafka.secret("sasl_password"),
            mechanism=kafka.sasl_mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context else None
