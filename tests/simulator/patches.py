"""Replacements in the product while worlds run: the I/O, the clocks, the dice. The product has no seams for these, as it should be."""

import asyncio
import contextlib
import functools
import gc
import logging
import random
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

import agents.lane.cursor
import ringfence_client.consumer.consumer
import ringfence_client.consumer.fetch_loop
import ringfence_client.consumer.topic_watch
import ringfence_client.dispatch.attempt
import ringfence_client.dispatch.dispatcher
import ringfence_client.handlers.retries
import ringfence_client.partition.lease_acquisition
import ringfence_client.partition.parked_reader
import ringfence_client.progress.progress_record
import ringfence_client.progress.resume_offset
import ringfence_client.sends.state_reader
import ringfence_client.sends.target_topics
import ringfence_kafka.producer.shared_clients
import ringfence_kafka.producer.transactional
import ringfence_kafka.readers.consumers
import tables.codec
import tables.rocksdb.lane_store
import tables.table_restore
from ringfence_client.sends.partition_sends import PartitionSends
from ringfence_kafka.aiokafka_patches import internals, membership
from ringfence_kafka.concurrency import timeouts
from ringfence_kafka.producer import transaction_v1, transaction_v2, transaction_version
from ringfence_kafka.readers.log_reader import LogReader
from tests.simulator.doubles import admin
from tests.simulator.doubles.consumer_admin import SharedClient, SimulatedClient
from tests.simulator.doubles.group_member import SimulatedMember
from tests.simulator.doubles.producer import SimulatedProducer
from tests.simulator.doubles.reader import SimulatedReader
from tests.simulator.doubles.store import MemoryStore
from tests.simulator.doubles.transaction_client import Questions
from tests.simulator.gap_log import Ear
from tests.simulator.loop import RUNNING, BuriedError
from tests.simulator.process import BOOT_S
from tests.simulator.sends.handlers import resolve, resolve_at_once
from tests.simulator.sends.world import WorldsCache


class _Dice:
    """Random numbers for the product, from the world that runs."""

    def __init__(self) -> None:
        self.now = random.Random(0)

    def uniform(self, low: float, high: float) -> float:
        return self.now.uniform(low, high)

    def token_hex(self, count: int) -> str:
        return f"{self.now.getrandbits(8 * count):0{2 * count}x}"

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self.now.getrandbits(128))


DICE, JITTER = _Dice(), _Dice()
"""Two, so that delays between attempts do not change what comes after them in a world."""
_monotonic = time.monotonic
_wall = time.time
_gettime = time.clock_gettime

_running_loop = asyncio._get_running_loop
_loop_of = cast("Any", asyncio.events)._get_event_loop


def _loop_or_none() -> Any:
    loop = RUNNING.loop
    return _running_loop() if loop is None else loop


def _loop() -> Any:
    loop = RUNNING.loop
    return _running_or_error() if loop is None else loop


def _loop_for_futures(stacklevel: int = 3) -> Any:
    loop = RUNNING.loop
    return _loop_of(stacklevel) if loop is None else loop


_running_or_error = asyncio.get_running_loop
_EAR = Ear(_loop_or_none)


def _process() -> Any:
    """Return the running process; None = no simulated process runs, and the machine's own time applies."""
    loop = RUNNING.loop
    if loop is None:
        return None
    if loop.buried:
        raise BuriedError
    return loop.process


def _virtual_monotonic() -> float:
    loop = RUNNING.loop
    if loop is None:
        return _monotonic()
    if loop.buried:
        raise BuriedError
    return loop.time() + BOOT_S


def _virtual_wall() -> float:
    process = _process()
    return _wall() if process is None else float(process.wall())


def _virtual_gettime(clock: int) -> float:
    return _gettime(clock) if RUNNING.loop is None else _virtual_monotonic()


class _Fetches:
    """Fetch limits of a simulated link, on which nothing is too large."""

    def __init__(self, consumer: Any) -> None:
        """Do nothing: the consumer fetches all that there is."""

    def limit(self, partition_bytes: int) -> None:
        """Do nothing."""


class _NoGap:
    """No delay between transactions: with a delay, errors between them would be rarer."""

    seconds = 0.0

    def wrote(self, seconds: float, since_s: float) -> None:
        """Do nothing."""


async def _confirm(asker: Any, generation: int) -> bool:
    """Confirm as the product does, and report success to :class:`tests.simulator.lanes.membership.Rights`."""
    well = await _CONFIRM(asker, generation)
    if well and (process := _process()) is not None:
        process.rights.confirm()
    return well


def _nothing(*_: Any) -> None:
    """Do nothing, for tasks that the doubles do not have, or that do not end."""


_CONFIRM = membership.Membership.confirm
POLL_MS, MOVING_POLL_MS, LOOK_S = 2_000, 200, 20.0
"""Intervals at which a consumer looks: longer than the product's, so that a world at rest costs less."""
READ_AGAIN = (
    (tables.codec, "decode_meta"),
    (ringfence_client.progress.progress_record, "decode"),
    (ringfence_client.progress.progress_record, "decode_key"),
)
"""Pure functions, cached: followers, the world and its checks read the same bytes."""
TURNS_MAX = 1
"""Transactions of a process at once: with few partitions there would never be a queue."""
CUT_SHORT_REST_S, CANCEL_LIMIT_S, LAST_LOOK_S, REFUSED_S = 0.5, 0.3, 0.3, 2.0
"""Less than the product's: worlds are short."""


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Run lanes and consumers on the simulated cluster and on virtual time. Logging is off: it costs more than the rest."""
    replaced: list[tuple[Any, str, Any]] = [
        (asyncio, "get_running_loop", _loop),
        (asyncio.events, "get_running_loop", _loop),
        (asyncio.events, "_get_running_loop", _loop_or_none),
        (asyncio.events, "_get_event_loop", _loop_for_futures),
        (time, "monotonic", _virtual_monotonic),
        (time, "perf_counter", _virtual_monotonic),
        (time, "time", _virtual_wall),
        (timeouts, "random", DICE),
        (ringfence_client.handlers.retries, "random", JITTER),
        (tables.table_restore, "secrets", DICE),
        (tables.rocksdb.lane_store, "Store", MemoryStore),
        (agents.lane.cursor, "log", _EAR),
        (ringfence_client.progress.resume_offset, "log", _EAR),
        (ringfence_client.partition.parked_reader, "log", _EAR),
        (LogReader, "read_range", admin.read_range),
        (LogReader, "newest_values", admin.newest_values),
        (ringfence_kafka.producer.transactional, "AIOKafkaProducer", SimulatedProducer),
        (ringfence_kafka.producer.transactional, "producer_options", lambda _kafka: {}),
        (transaction_version, "wanted", lambda: _process().cluster.implicit),
        (transaction_version, "transaction_v2_requests", Questions),
        (transaction_v2, "transaction_v2_requests", Questions),
        (transaction_v2, "MarkerDelay", _NoGap),
        (transaction_v1, "send_only_what_was_added", lambda _producer: None),
        (internals, "never_create", _nothing),
        (time, "clock_gettime", _virtual_gettime),
        (ringfence_client.partition.lease_acquisition, "uuid", DICE),
        (ringfence_client.sends.state_reader, "StateCache", WorldsCache),
        (PartitionSends, "resolve", resolve),
        (PartitionSends, "resolve_at_once", resolve_at_once),
        (ringfence_client.sends.target_topics, "REFUSED_S", REFUSED_S),
        (ringfence_client.consumer.consumer, "AIOKafkaConsumer", SimulatedMember),
        (ringfence_client.consumer.consumer, "Cluster", SimulatedClient),
        (ringfence_client.consumer.consumer, "client_options", lambda _kafka: {}),
        (ringfence_client.consumer.fetch_loop, "POLL_MS", POLL_MS),
        (ringfence_client.consumer.fetch_loop, "MOVING_POLL_MS", MOVING_POLL_MS),
        (ringfence_client.consumer.topic_watch, "LOOK_S", LOOK_S),
        (ringfence_client.dispatch.dispatcher, "CANCEL_LIMIT_S", CANCEL_LIMIT_S),
        (ringfence_client.dispatch.attempt, "CUT_SHORT_REST_S", CUT_SHORT_REST_S),
        (ringfence_client.partition.lease_acquisition, "LAST_LOOK_S", LAST_LOOK_S),
        (ringfence_kafka.readers.consumers, "AIOKafkaConsumer", SimulatedReader),
        (ringfence_kafka.readers.consumers, "client_options", lambda _kafka: {}),
        (ringfence_kafka.producer.shared_clients, "SharedClient", SharedClient),
        (ringfence_kafka.producer.shared_clients, "TURNS_MAX", TURNS_MAX),
        (ringfence_kafka.producer.shared_clients, "client_options", lambda _kafka: {}),
        (membership, "member_id", lambda _consumer: ""),
        (internals, "keep_fetching", _nothing),
        (membership, "keep_member", _nothing),
        (ringfence_client.consumer.fetch_loop, "AdaptiveFetch", _Fetches),
        (internals, "position", SimulatedReader.reached),
        (internals, "fetched", SimulatedReader.fetched),
        (internals, "drop_fetched", SimulatedReader.drop),
        (membership.Membership, "confirm", _confirm),
        *((owner, name, functools.lru_cache(getattr(owner, name))) for owner, name in READ_AGAIN),
        (cast("Any", asyncio.tasks)._all_tasks, "add", id),  # nobody asks for a list of all tasks
    ]
    former = logging.root.manager.disable
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in replaced:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        stack.callback(logging.disable, former)
        logging.disable(logging.CRITICAL)
        hook = sys.unraisablehook
        stack.callback(setattr, sys, "unraisablehook", hook)
        sys.unraisablehook = lambda _what: None  # from coroutines that are unwound where they stood
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)  # about coroutines that never began
        gc.freeze()
        stack.callback(gc.unfreeze)
        yield
