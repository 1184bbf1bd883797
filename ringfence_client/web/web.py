"""Web server of a consumer: ``/``, ``/live``, ``/health``, ``/metrics``, ``/groups``, and operator actions on groups."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiokafka.errors import KafkaError

from ringfence_client.consumer.consumer import GroupConsumer
from ringfence_client.handlers.group_names import shown, shown_or_none
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import LostError
from ringfence_client.web.group_rows import group_rows, named_groups
from ringfence_client.web.lag_monitor import LagMonitor
from ringfence_client.web.metrics import ConsumerMetrics, figures
from ringfence_client.web.page import render
from ringfence_kafka.aiokafka_patches.throttling import THROTTLED
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.concurrency.timeouts import cancelled
from ringfence_kafka.errors import named
from ringfence_kafka.http.auth import OPEN, HttpAuth
from ringfence_kafka.http.server import history_route, probe_routes, serving_routes
from ringfence_kafka.page import HEADERS
from ringfence_kafka.page.history import History, merged
from ringfence_kafka.protocol import offset_ranges
from ringfence_kafka.readers.log_reader import LogStalledError

log: Final = logging.getLogger("ringfence.consumer")

GROUPS_MAX: Final = 1_000
"""Limit of shown groups of a partition, the oldest first."""
WRITE_LIMIT_S: Final = 20.0
BURIED_CHECK_S: Final = 0.05

Answer = dict[str, Any]
_Page = Callable[[Any], Awaitable[Answer]]


@asynccontextmanager
async def serving(
    consumer: GroupConsumer, listener: socket.socket, guard: HttpAuth = OPEN
) -> AsyncIterator[None]:
    """Answer requests on a listening socket."""
    measuring = LagMonitor(consumer)
    pages = Pages(consumer, measuring.watch)
    history = History(lambda: figures(consumer))

    async def answer_page(_: web.Request) -> web.Response:
        past = merged("hour", [history.document("hour")])
        text = render(consumer, pages.health(), measuring.lags, measuring.open_letters, past)
        return web.Response(text=text, content_type="text/html", headers=HEADERS)

    routes = [
        web.get("/", answer_page),
        history_route(history),
        *probe_routes(pages.health, ConsumerMetrics(consumer, measuring)),
        web.get("/groups", pages.groups),
        web.post("/groups/purge", _answering(pages.purge)),
        web.post("/groups/skip", _answering(pages.skip)),
        web.post("/groups/release", _answering(pages.release)),
        web.post("/letters/redrive", _answering(pages.redrive)),
        web.post("/letters/drop", _answering(pages.drop)),
    ]
    async with serving_routes(routes, listener, guard), measuring:
        sampling = asyncio.create_task(history.run())
        try:
            yield
        finally:
            await cancelled(sampling)


class _RefusedRequestError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def _answering(page: _Page) -> Callable[[web.Request], Awaitable[web.Response]]:

    async def answer(request: web.Request) -> web.Response:
        try:
            body = await request.json()
        except ValueError:
            body = None
        try:
            return web.json_response(await page(body))
        except _RefusedRequestError as error:
            return web.json_response({"error": str(error)}, status=error.status)

    return answer


class Pages:
    """Answers of a consumer."""

    def __init__(self, consumer: GroupConsumer, watch: BrokerWatch) -> None:
        self._consumer = consumer
        self._watch = watch

    def health(self) -> dict[str, Any]:
        """Return the state of the consumer. Ready: all assigned partitions are held, messages are handled, and brokers answer."""
        consumer, dispatcher = self._consumer, self._consumer.dispatcher
        partitions = sorted(consumer.partitions.items())
        return {
            "ready": consumer.ready and not self._watch.away,
            "broker": "away" if self._watch.away else "answers",
            "name": consumer.options.name,
            "consumer_group": consumer.group,
            "address": consumer.address.name,
            "partitions": {
                str(number): {"next": held.window.next, "fence": held.fence.token, **held.window.counts}
                for number, held in partitions
                if not held.draining
            },
            "draining": {
                str(number): {"next": held.window.next, "running": len(held.window.attempts.running)}
                for number, held in partitions
                if held.draining
            },
            "waiting": {str(number): reason for number, reason in sorted(consumer.reasons.items())},
            "faults": consumer.faults,
            "running": dispatcher.running,
            "longest_runs": {
                str(number): {
                    "group": None if message.group is None else shown(message.group),
                    "seconds": round(seconds, 3),
                }
                for number, (message, seconds) in sorted(dispatcher.runs.longest().items())
            },
            "left_behind": dispatcher.runs.left_behind,
            "counts": dict(dispatcher.counts),
            "throttled": THROTTLED.recent(),
            "memory": {"buffered_bytes": consumer.memory.buffered, "limit_bytes": consumer.memory.bytes_max},
        }

    async def groups(self, _: web.Request) -> web.Response:
        """Return the waiting messages by group."""
        partitions = [held for _, held in sorted(self._consumer.partitions.items())]
        return web.json_response({"groups": group_rows(self._consumer.dispatcher, partitions, GROUPS_MAX)})

    async def release(self, body: Any) -> Answer:
        """End the handler that runs the first message of a group."""
        return {"released": self._consumer.dispatcher.release(*self._group_of(body))}

    async def redrive(self, body: Any) -> Answer:
        """Process messages again after their dead letters; answer when this is written."""
        held, letters = self._letters_of(body)
        redriven, full = [], 0
        for offset, number in letters:
            try:
                if held.redrive(offset, number):
                    redriven.append(offset)
            except OverflowError:
                full += 1
        if redriven:
            log.warning("%s: an operator redrives %s", held, offset_ranges.shown(redriven))
        return await _when_written(held, {"redriven": redriven, "full": full})

    async def drop(self, body: Any) -> Answer:
        """Drop messages that block their groups; answer when this is written."""
        held, letters = self._letters_of(body)
        blocked = [offset for offset, _ in letters if offset in held.window.redrives.blocked]
        dropped = [number for number in blocked if self._consumer.dispatcher.drop_blocked(held, number)]
        if dropped:
            log.warning("%s: an operator drops %s", held, offset_ranges.shown(dropped))
        busy = [number for number in blocked if number not in dropped]
        return await _when_written(held, {"dropped": dropped, "busy": busy})

    async def skip(self, body: Any) -> Answer:
        """Drop the first message of a group, also while it waits for a retry; answer when this is written."""
        held, group = self._group_of(body)
        before, head = held.window.offsets_of(group), body.get("head")
        is_gone = isinstance(head, int) and before[:1] != [head]
        if is_gone and (before or held.window.watermark.is_finished(head)):
            # Another message is first now, perhaps because of an earlier request whose answer was lost.
            return await _when_written(held, {"dropped": 0, "acquired": 0, "offsets": [], "gone": True})
        if body.get("letters"):
            chosen = self._consumer.dispatcher.give_up(held, group, skip=True, lost=_lost(body))
            return await _given_up(held, group, chosen)
        dropped = self._consumer.dispatcher.skip(held, group)
        return await _dropped(held, group, dropped, set(before).difference(held.window.offsets_of(group)))

    async def purge(self, body: Any) -> Answer:
        """Drop the messages of a group that no handler runs now; answer when this is written."""
        held, group = self._group_of(body)
        before, below = held.window.offsets_of(group), body.get("below")
        if not isinstance(below, int):
            below = None
        if body.get("letters"):
            chosen = self._consumer.dispatcher.give_up(held, group, skip=False, below=below, lost=_lost(body))
            return await _given_up(held, group, chosen)
        if below is None:
            below = await self._consumer.cluster.offsets.high_watermark(held.lease.topic, held.partition)
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                groups = await named_groups(self._consumer.cluster, held, below)
        except (KafkaError, OSError, TimeoutError, LogStalledError) as error:
            text = f"the groups of what is blocked cannot be read now ({named(error)}); nothing is dropped"
            raise _RefusedRequestError(503, text) from error
        early = held.window.drop_unfetched(group, groups)
        dropped = len(early) + self._consumer.dispatcher.purge(held, group, below)
        gone = {*early, *set(before).difference(held.window.offsets_of(group))}
        return await _dropped(held, group, dropped, gone)

    def _letters_of(self, body: Any) -> tuple[HeldPartition, list[tuple[int, int]]]:
        """Return the partition of a request, and its offsets with the numbers of their redrives."""
        try:
            number, topic_id = int(body["partition"]), str(body["topic_id"])
            letters = [(int(offset), int(redrive)) for offset, redrive in body["letters"]]
        except (ValueError, KeyError, TypeError) as error:
            wanted = '{"partition": number, "topic_id": Kafka\'s ID, "letters": [[offset, number], ...]}'
            raise _RefusedRequestError(400, f"send a JSON object: {wanted}") from error
        held = self._held(body, number)
        if held.lease.topic_id != topic_id:
            raise _RefusedRequestError(409, f"{held.lease.topic} was deleted and created again meanwhile")
        return held, letters

    def _group_of(self, body: Any) -> tuple[HeldPartition, bytes]:
        try:
            number, group = int(body["partition"]), bytes.fromhex(body["group"])
        except (ValueError, KeyError, TypeError) as error:
            wanted = '{"partition": number, "group": the group\'s bytes in hex}'
            raise _RefusedRequestError(400, f"send a JSON object: {wanted}") from error
        return self._held(body, number), group

    def _held(self, body: dict[str, Any], number: int) -> HeldPartition:
        own = {"consumer_group": self._consumer.group, "topic": self._consumer.address.accepted_topic}
        if own != {**own, **{name: body[name] for name in own if name in body}}:
            # Another consumer listened here before, and has died.
            raise _RefusedRequestError(409, f"this is a consumer of {' at '.join(own.values())}")
        held = self._consumer.partitions.get(number)
        if held is None or held.draining:
            raise _RefusedRequestError(409, f"partition {number} is not held here")
        return held


async def _dropped(held: HeldPartition, group: bytes, count: int, offsets: Collection[int]) -> Answer:
    gone = sorted(offsets)
    if gone:
        log.warning(
            "%s: an operator drops %s, of group %s", held, offset_ranges.shown(gone), shown_or_none(group)
        )
    return await _when_written(held, {"dropped": count, "acquired": _acquired(held, group), "offsets": gone})


async def _given_up(held: HeldPartition, group: bytes, chosen: list[int]) -> Answer:
    """Answer when the dead letters of these messages are written."""
    if chosen:
        log.warning(
            "%s: an operator sends %s to the dead letters, of group %s",
            held, offset_ranges.shown(chosen), shown_or_none(group),
        )  # fmt: skip
    deadline = asyncio.get_running_loop().time() + WRITE_LIMIT_S
    while not held.window.closed and set(chosen).intersection(held.window.offsets_of(group)):
        if asyncio.get_running_loop().time() > deadline:
            text = (
                f"not all dead letters are written within {WRITE_LIMIT_S:.0f} s; this consumer writes "
                "the rest while it runs"
            )
            raise _RefusedRequestError(503, text)
        await asyncio.sleep(BURIED_CHECK_S)
    answer = {"dropped": len(chosen), "acquired": _acquired(held, group), "offsets": chosen}
    return await _when_written(held, answer)


async def _when_written(held: HeldPartition, answer: Answer) -> Answer:
    held.writer.count_changes()
    try:
        async with asyncio.timeout(WRITE_LIMIT_S):
            await held.writer.persisted()
    except LostError as error:
        text = f"partition {held.partition} was lost meanwhile: {error}"
        raise _RefusedRequestError(409, text) from error
    except TimeoutError as error:
        text = f"it is not written within {WRITE_LIMIT_S:.0f} s; this consumer writes it while it runs"
        raise _RefusedRequestError(503, text) from error
    return answer


def _lost(body: Any) -> set[int]:
    """Return the offsets of parked messages whose dead letters are gone, as the request names them."""
    lost = body.get("lost")
    return {number for number in lost if isinstance(number, int)} if isinstance(lost, list) else set()


def _acquired(held: HeldPartition, group: bytes) -> int:
    return next((item.acquired for item in held.window.ledger.groups() if item.group == group), 0)
