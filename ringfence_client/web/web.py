"""A consumer's pages: ``/live``, ``/health``, ``/metrics``, ``/groups``; and what an operator may do to a group."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiokafka.errors import KafkaError

from ringfence_client.consumer.consumer import GroupConsumer
from ringfence_client.dispatch.attempt import shown
from ringfence_client.handlers import group_names
from ringfence_client.partition.partition import HeldPartition
from ringfence_client.progress.lease import LostError
from ringfence_client.web import group_lookup
from ringfence_client.web.lag_monitor import LagMonitor
from ringfence_client.web.metrics import ConsumerMetrics
from ringfence_kafka.aiokafka_patches.throttling import THROTTLED
from ringfence_kafka.concurrency.broker_watch import BrokerWatch
from ringfence_kafka.errors import named
from ringfence_kafka.http.auth import OPEN, HttpAuth
from ringfence_kafka.http.server import probe_routes, serving_routes
from ringfence_kafka.protocol import offset_ranges
from ringfence_kafka.readers.log_reader import LogStalledError

log: Final = logging.getLogger("ringfence.consumer")

GROUPS_MAX: Final = 1_000
"""Shown of a partition, the oldest first; more would serve nobody."""
WRITE_LIMIT_S: Final = 20.0
BURIED_CHECK_S: Final = 0.05


@asynccontextmanager
async def serving(
    consumer: GroupConsumer, listener: socket.socket, guard: HttpAuth = OPEN
) -> AsyncIterator[None]:
    """Answer on a socket that listens."""
    measuring = LagMonitor(consumer)
    pages = Pages(consumer, measuring.watch)
    routes = [
        *probe_routes(pages.health, ConsumerMetrics(consumer, measuring)),
        web.get("/groups", pages.groups),
        web.post("/groups/purge", pages.purge),
        web.post("/groups/skip", pages.skip),
        web.post("/groups/release", pages.release),
        web.post("/letters/redrive", pages.redrive),
        web.post("/letters/drop", pages.drop),
    ]
    async with serving_routes(routes, listener, guard), measuring:
        yield


class Pages:
    """The answers of a consumer."""

    def __init__(self, consumer: GroupConsumer, watch: BrokerWatch) -> None:
        self._consumer = consumer
        self._watch = watch

    def health(self) -> dict[str, Any]:
        """Ready when every assigned partition is held, nothing keeps its messages from being handled, and the broker answers."""
        consumer = self._consumer
        ready = consumer.ready and not self._watch.away
        return {
            "ready": ready,
            "broker": "away" if self._watch.away else "answers",
            "name": consumer.options.name,
            "consumer_group": consumer.group,
            "address": consumer.address.name,
            "partitions": {
                str(number): {
                    "next": held_partition.window.next,
                    "fence": held_partition.fence.token,
                    **held_partition.window.counts,
                }
                for number, held_partition in sorted(consumer.partitions.items())
                if not held_partition.draining
            },
            "draining": {
                str(number): {
                    "next": held_partition.window.next,
                    "running": len(held_partition.window.running),
                }
                for number, held_partition in sorted(consumer.partitions.items())
                if held_partition.draining
            },
            "waiting": {str(number): reason for number, reason in sorted(consumer.reasons.items())},
            "faults": consumer.faults,
            "running": consumer.dispatcher.running,
            "longest_runs": {
                str(number): {
                    "group": None if message.group is None else group_names.shown(message.group),
                    "seconds": round(seconds, 3),
                }
                for number, (message, seconds) in sorted(consumer.dispatcher.runs.longest().items())
            },
            "left_behind": consumer.dispatcher.runs.left_behind,
            "counts": dict(consumer.dispatcher.counts),
            "throttled": THROTTLED.recent(),
            "memory": {"buffered_bytes": consumer.memory.buffered, "limit_bytes": consumer.memory.bytes_max},
        }

    async def groups(self, _request: web.Request) -> web.Response:
        """What waits, by group."""
        rows = [
            row for _, held in sorted(self._consumer.partitions.items()) for row in _rows(held)[:GROUPS_MAX]
        ]
        return web.json_response({"groups": rows})

    async def purge(self, request: web.Request) -> web.Response:
        """Drop what nobody acquired of a group; answered when that is written."""
        return await self._change(request, skip=False)

    async def skip(self, request: web.Request) -> web.Response:
        """Drop the first message of a group, also while it waits to be tried again."""
        return await self._change(request, skip=True)

    async def release(self, request: web.Request) -> web.Response:
        """End the handler that runs the first message of a group."""
        found = await self._asked(request)
        if isinstance(found, web.Response):
            return found
        held, group = found
        return web.json_response({"released": self._consumer.dispatcher.release(held, group)})

    async def redrive(self, request: web.Request) -> web.Response:
        """Have messages done once more whose dead letters were written; answered when that is written down."""
        found = await self._letters(request)
        if isinstance(found, web.Response):
            return found
        held, letters = found
        redriven, full = [], 0
        for offset, number in letters:
            try:
                if held.redrive(offset, number):
                    redriven.append(offset)
            except OverflowError:
                full += 1
        if redriven:
            log.warning("%s: an operator redrives %s", held, offset_ranges.shown(redriven))
        return await self._written(held, {"redriven": redriven, "full": full})

    async def drop(self, request: web.Request) -> web.Response:
        """Drop messages behind which their groups wait; answered when that is written down."""
        found = await self._letters(request)
        if isinstance(found, web.Response):
            return found
        held, letters = found
        blocked = [offset for offset, _ in letters if offset in held.window.blocked]
        dropped = [number for number in blocked if self._consumer.dispatcher.drop_blocked(held, number)]
        if dropped:
            log.warning("%s: an operator drops %s", held, offset_ranges.shown(dropped))
        busy = [number for number in blocked if number not in dropped]
        return await self._written(held, {"dropped": dropped, "busy": busy})

    async def _letters(
        self, request: web.Request
    ) -> tuple[HeldPartition, list[tuple[int, int]]] | web.Response:
        """The partition and the offsets of a request, each with the number of its redrive; or what is wrong with it."""
        try:
            body = await request.json()
            number, topic_id = int(body["partition"]), str(body["topic_id"])
            letters = [(int(offset), int(redrive)) for offset, redrive in body["letters"]]
        except (ValueError, KeyError, TypeError):
            wanted = 'a JSON object is wanted: {"partition": number, "topic_id": Kafka\'s ID, "letters": [[offset, number], ...]}'
            return web.json_response({"error": wanted}, status=400)
        held = self._held(body, number)
        if isinstance(held, HeldPartition) and held.lease.topic_id != topic_id:
            return web.json_response(
                {"error": f"{held.lease.topic} was deleted and created again meanwhile"}, status=409
            )
        return held if isinstance(held, web.Response) else (held, letters)

    async def _asked(self, request: web.Request) -> tuple[HeldPartition, bytes] | web.Response:
        """The partition and the group of a request, or what is wrong with it."""
        try:
            body = await request.json()
            number, group = int(body["partition"]), bytes.fromhex(body["group"])
        except (ValueError, KeyError, TypeError):
            wanted = 'a JSON object is wanted: {"partition": number, "group": the group\'s bytes in hex}'
            return web.json_response({"error": wanted}, status=400)
        held = self._held(body, number)
        return held if isinstance(held, web.Response) else (held, group)

    def _held(self, body: dict[str, Any], number: int) -> HeldPartition | web.Response:
        """The partition that is meant, if it is held here."""
        own = {"consumer_group": self._consumer.group, "topic": self._consumer.address.accepted_topic}
        if own != {**own, **{name: body[name] for name in own if name in body}}:
            # Another one listened here, and has died.
            return web.json_response(
                {"error": f"this is a consumer of {' at '.join(own.values())}"}, status=409
            )
        held = self._consumer.partitions.get(number)
        if held is None or held.draining:
            return web.json_response({"error": f"partition {number} is not held here"}, status=409)
        return held

    async def _change(self, request: web.Request, *, skip: bool) -> web.Response:
        found = await self._asked(request)
        if isinstance(found, web.Response):
            return found
        held, group = found
        number = held.partition
        before = held.window.of(group)
        body = await request.json()
        head, below = body.get("head"), body.get("below")
        if (
            skip
            and isinstance(head, int)
            and before[:1] != [head]
            and (before or held.window.watermark.is_finished(head))
        ):
            # What was first when it was asked for is not any more: perhaps by an earlier question, whose answer did not arrive.
            return await self._written(held, {"dropped": 0, "acquired": 0, "offsets": [], "gone": True})
        if body.get("letters"):
            end = below if isinstance(below, int) and not skip else None
            chosen = self._consumer.dispatcher.give_up(held, group, skip=skip, below=end)
            return await self._given_up(held, group, chosen)
        if skip:
            early, dropped = [], self._consumer.dispatcher.skip(held, group)
        else:
            if not isinstance(below, int):
                below = await self._consumer.cluster.offsets.high_watermark(held.lease.topic, number)
            groups = await self._named(held, below)
            if isinstance(groups, web.Response):
                return groups
            early = held.window.drop_named(group, groups)
            dropped = len(early) + held.purge(group, below)
        acquired = next((item.acquired for item in held.window.groups() if item.group == group), 0)
        gone = sorted({*early, *set(before).difference(held.window.of(group))})
        if gone:
            log.warning(
                "%s: an operator drops %s, of group %s", held, offset_ranges.shown(gone), shown(group)
            )
        return await self._written(held, {"dropped": dropped, "acquired": acquired, "offsets": gone})

    async def _named(self, held: HeldPartition, below: int) -> dict[int, bytes | None] | web.Response:
        """The groups of what is named below an offset and not fetched; or that they are not known."""
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                return await group_lookup.named(self._consumer.cluster, held, below)
        except (KafkaError, OSError, TimeoutError, LogStalledError) as error:
            text = f"the groups of what is blocked cannot be read now ({named(error)}); nothing is dropped"
            return web.json_response({"error": text}, status=503)

    async def _given_up(self, held: HeldPartition, group: bytes, chosen: list[int]) -> web.Response:
        """Answered when their dead letters are written."""
        if chosen:
            log.warning(
                "%s: an operator sends %s to the dead letters, of group %s",
                held,
                offset_ranges.shown(chosen),
                shown(group),
            )
        deadline = asyncio.get_running_loop().time() + WRITE_LIMIT_S
        while not held.window.closed and set(chosen).intersection(held.window.of(group)):
            if asyncio.get_running_loop().time() > deadline:
                text = f"not all dead letters are written within {WRITE_LIMIT_S:.0f} s; they will be, if this consumer goes on"
                return web.json_response({"error": text}, status=503)
            await asyncio.sleep(BURIED_CHECK_S)
        acquired = next((item.acquired for item in held.window.groups() if item.group == group), 0)
        answer = {"dropped": len(chosen), "acquired": acquired, "offsets": chosen}
        return await self._written(held, answer)

    async def _written(self, held: HeldPartition, answer: dict[str, Any]) -> web.Response:
        """The answer, when what was changed is written down."""
        held.writer.note()
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                await held.writer.persisted()
        except LostError as error:
            text = f"partition {held.partition} was lost meanwhile: {error}"
            return web.json_response({"error": text}, status=409)
        except TimeoutError:
            text = f"it is not written within {WRITE_LIMIT_S:.0f} s; it will be, if this consumer goes on"
            return web.json_response({"error": text}, status=503)
        return web.json_response(answer)


def _rows(held: HeldPartition) -> list[dict[str, Any]]:
    now = time.time() * 1000
    return [
        {
            "partition": held.partition,
            "group": None if group.group is None else group_names.shown(group.group),
            "group_hex": None if group.group is None else group.group.hex(),
            "depth": group.depth,
            "acquired": group.acquired,
            "owner": None if group.owner is None else str(group.owner),
            "head_age_seconds": round(max(0.0, now - group.head_timestamp) / 1000, 3),
        }
        for group in held.window.groups()
    ]
