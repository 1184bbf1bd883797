"""A worker with more lanes than clients and places: a fault of one lane touches no other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError

import agents.worker.lane_factory
from agents.lane.lane import Lane
from agents.lane.opening_limiter import OpeningLimiter
from agents.worker.lanes import Lanes
from ringfence_kafka.process import failpoints
from ringfence_kafka.producer.transactional import TransactionalProducer
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.lanes import Bench, Gate, Group, bench, until

LANES = 12
CLIENTS = 3
ROUND = 5
"""Records of a lane in a round."""


@contextlib.asynccontextmanager
async def _worker(
    bootstrap: str, folder: Path, monkeypatch: pytest.MonkeyPatch, held_max_s: float = 60.0
) -> AsyncIterator[tuple[Bench, Lanes]]:
    monkeypatch.setattr(agents.worker.lane_factory, "CLIENTS_MAX", CLIENTS)
    async with bench(bootstrap, folder, partitions=LANES) as lanes:
        worker = Lanes(lanes.settings, lanes.cluster)
        worker._factory._places = OpeningLimiter(4, 4, held_max_s)
        try:
            yield lanes, worker
        finally:
            await worker.stop()


async def _assign(lanes: Bench, worker: Lanes) -> None:
    places = {(topic, number) for topic in (lanes.name, lanes.forward) for number in range(LANES)}
    await worker.assigned(places, Group())


def _by_number(worker: Lanes) -> list[Lane]:
    return sorted(worker.lanes, key=lambda item: item.opening.number)


async def _feed(lanes: Bench, worker: Lanes, numbers: list[int], round_number: int) -> None:
    """Feed a round of records to these lanes at once, and wait until they are processed."""
    begin, end = round_number * ROUND, (round_number + 1) * ROUND
    for number in numbers:
        group = kafka.at_home(number, LANES)
        records = [kafka.Sent(b"%d-%d" % (number, index), group) for index in range(begin, end)]
        kafka.send(lanes.bootstrap, lanes.name, records, number)
    fetched = await asyncio.gather(*(lanes.fetch(begin, end, partition=number) for number in numbers))
    await asyncio.gather(*map(worker.offer, fetched))
    chosen = [_by_number(worker)[number] for number in numbers]
    await until(
        lambda: all(lane.next >= end for lane in chosen),
        lambda: str([(lane.name, lane.next, lane.state, lane.reason) for lane in chosen]),
    )


def _accepted(lanes: Bench) -> list[bytes]:
    return sorted(item.id or b"" for item in lanes.output())


def _ids(numbers: list[int], rounds: int) -> list[bytes]:
    return sorted(b"%d-%d" % (number, index) for number in numbers for index in range(rounds * ROUND))


async def test_one_fails_and_others_do_not_notice(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes on three clients continue while one is refused repeatedly, one fenced, and one moved away in a transaction."""
    every = list(range(LANES))
    refused, fenced, gone = 1, 2, 3
    rest = [number for number in every if number not in {refused, fenced, gone}]

    async def refuse(point: str, lane: str) -> None:
        raise KafkaError("planted")

    async with _worker(bootstrap, tmp_path, monkeypatch) as (lanes, worker):
        await _assign(lanes, worker)
        await until(lambda: worker.health.ready, lambda: str(worker.health.report()))
        await _feed(lanes, worker, every, 0)
        before = {number: _by_number(worker)[number]._opened for number in rest}
        remove = failpoints.install("before-commit", f"{lanes.name}-{refused}", refuse)
        name = wire_names.transactional_id(lanes.app_id, lanes.name, fenced)
        outsider = TransactionalProducer(lanes.settings.kafka, name, "outsider")
        await outsider.fence()
        await outsider.discard()
        gate = Gate()
        leave = failpoints.install("before-commit", f"{lanes.name}-{gone}", gate)
        trouble = asyncio.gather(*(_feed(lanes, worker, [number], 1) for number in (refused, fenced, gone)))
        await gate.wait()
        await until(
            lambda: _by_number(worker)[refused].counts["retries"] >= 3,
            lambda: str(_by_number(worker)[refused].counts),
        )
        await _feed(lanes, worker, rest, 1)
        after = {number: _by_number(worker)[number]._opened for number in rest}
        counts = [_by_number(worker)[number].counts["retries"] for number in rest]
        clients = len(worker._factory._clients._clients)
        leave()
        gate.open()
        remove()
        await trouble
        shares = sum(client.shares for client in worker._factory._clients._clients)

        assert after == before
        assert counts == [0] * len(rest)
        assert _by_number(worker)[fenced].counts["fenced"] == 1
        assert clients == CLIENTS
        assert shares == LANES
        assert _accepted(lanes) == _ids(every, 2)


async def test_lanes_of_a_small_worker_have_a_client_each(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane whose connection waits for a slow answer delays no other, and only one client asks for metadata."""
    async with _worker(bootstrap, tmp_path, monkeypatch) as (lanes, worker):
        few = {(topic, number) for topic in (lanes.name, lanes.forward) for number in range(CLIENTS)}
        await worker.assigned(few, Group())
        await until(lambda: worker.health.ready, lambda: str(worker.health.report()))
        await _feed(lanes, worker, list(range(CLIENTS)), 0)
        clients = worker._factory._clients._clients

        assert [client.shares for client in clients] == [1] * CLIENTS
        assert [client._sync_task is not None for client in clients] == [True, False, False]
        assert all(client.cluster is clients[0].cluster for client in clients)
