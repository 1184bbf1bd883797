"""Transactions in three requests, on a broker with scripted answers."""

import asyncio
import io
import struct
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import (
    InvalidTxnState,
    KafkaConnectionError,
    ProducerFenced,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownError,
)

from ringfence_kafka.errors import ConfigurationError, TopicError
from ringfence_kafka.producer import transaction_v2_requests, transaction_version
from ringfence_kafka.producer.marker_delay import FIRST_S
from ringfence_kafka.producer.outgoing import Outgoing
from ringfence_kafka.producer.transaction_v2 import TransactionV2
from ringfence_kafka.producer.transaction_v2_requests import (
    END_TXN,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Ended,
    Features,
    Producer,
)
from ringfence_kafka.protocol.flexible_requests import Question

NEAR, FAR = 1, 2
LEADERS = {("orders", 0): NEAR, ("orders", 1): FAR, ("log", 0): NEAR}
NEXT = {TopicPartition("in", 0): 7}


def _batch() -> Mock:
    """Return aiokafka's builder of a batch with three records, as far as it is looked at."""
    return Mock(
        record_count=Mock(return_value=3), size=Mock(return_value=1_000), _build=Mock(return_value=b"records")
    )


def _states(*batches: Mock) -> list[tuple[int, int, int]]:
    """Return producer ID, epoch and sequence number of the batches."""
    return [call.args for batch in batches for call in batch._set_producer_state.call_args_list]


class Broker:
    """A broker that gives scripted answers, else success, and records the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, ConnectionGroup]] = []
        """Key of the request, node, connection."""
        self.answers: dict[int, deque[Any]] = {number: deque() for number in (0, 26, 28)}
        """By the request's key: an error code, or an exception."""
        self.epoch = 0
        self.last: Producer | None = None
        """After this one comes another ID."""
        self.open = self.most_open = 0
        """Requests under way, now and at most."""
        self.places: list[tuple[str, int]] = []
        self._wait_on_metadata = self.force_metadata_update = AsyncMock()

    async def send(self, node: int, question: Question, *, group: ConnectionGroup) -> Any:
        self.asked.append((question.API_KEY, node, group))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        told = self.answers[question.API_KEY]
        code = told.popleft() if told else 0
        if isinstance(code, Exception):
            raise code
        if question.API_KEY == END_TXN:
            self.epoch += not code
            following = Producer(5, self.epoch) if self.last is None else Producer(self.last.id + 1, 0)
            return Ended(code, following)
        if question.API_KEY == TXN_OFFSET_COMMIT:
            return {("in", 0): code}
        return {place: (code, 100) for place in self.places if LEADERS[place] == node}

    def keys(self) -> list[int]:
        return [key for key, _, _ in self.asked]


class Bench:
    """A producer of aiokafka's on that broker, and ours."""

    def __init__(self, coordinator: int = NEAR) -> None:
        self.broker = Broker()
        self.lookups: list[int] = []

        async def find(kind: int, _key: str) -> int:
            self.lookups.append(kind)
            return coordinator

        producer: Any = SimpleNamespace(
            client=self.broker,
            _txn_manager=SimpleNamespace(producer_id=5, producer_epoch=0),
            _sender=SimpleNamespace(
                _retry_backoff=0.01, _find_coordinator=find, _coordinator_dead=lambda _kind: None
            ),
            _metadata=SimpleNamespace(
                partitions_for_topic=lambda _topic: {0, 1},
                leader_for_partition=lambda tp: LEADERS[tp.topic, tp.partition],
            ),
            _request_timeout_ms=1_000,
        )
        self.way = TransactionV2(producer, "id", "lane")

    async def write(self, *places: tuple[str, int]) -> tuple[list[int], list[Mock]]:
        made = [_batch() for _ in places]
        self.broker.places = list(places)
        await self.way.begin_transaction()
        batches = [Outgoing(*place, batch) for place, batch in zip(places, made, strict=True)]
        return await self.way.write(batches, NEXT, "group"), made


async def test_three_requests() -> None:
    """A transaction sends records, offsets and the end. Offsets follow the records of other brokers."""
    bench, other = Bench(), Bench()
    bases, _ = await bench.write(("orders", 0), ("log", 0))
    await bench.way.commit()
    await other.write(("orders", 0), ("orders", 1))

    assert bases == [100, 100]
    assert bench.broker.asked == [
        (PRODUCE, NEAR, ConnectionGroup.DEFAULT),
        (TXN_OFFSET_COMMIT, NEAR, ConnectionGroup.DEFAULT),
        (END_TXN, NEAR, ConnectionGroup.COORDINATION),
    ]
    asked = [(key, node) for key, node, _ in other.broker.asked]
    assert asked == [(PRODUCE, NEAR), (PRODUCE, FAR), (TXN_OFFSET_COMMIT, NEAR)]


async def test_brokers_add_their_partitions_one_after_the_other() -> None:
    bench = Bench(coordinator=FAR)
    await bench.write(("orders", 0), ("orders", 1))
    one_each = bench.broker.most_open
    await bench.write(*[("orders", 0), ("orders", 1)] * 2)

    assert (one_each, bench.broker.most_open) == (1, 2)


async def test_batches_of_one_partition_follow_one_another() -> None:
    """A request takes one batch of each partition, and sequence numbers continue."""
    bench = Bench()
    _, made = await bench.write(("orders", 0), ("log", 0), ("orders", 0))

    assert bench.broker.keys().count(PRODUCE) == 2
    assert _states(*made) == [(5, 0, 0), (5, 0, 0), (5, 0, 3)]


async def test_each_transaction_has_an_epoch_of_its_own() -> None:
    """The coordinator names the epoch at the end of the last one, or another ID. Numbers of batches begin at 0 again."""
    bench = Bench()
    made: list[Mock] = []
    for end in (bench.way.commit, bench.way.abort, bench.way.commit, bench.way.commit):
        bench.broker.last = Producer(5, 1) if len(made) == 2 else None
        made += (await bench.write(("orders", 0)))[1]
        await end()

    assert _states(*made) == [(5, 0, 0), (5, 1, 0), (5, 2, 0), (6, 0, 0)]


async def test_the_markers_of_one_are_written_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that begins before the last one's markers are written waits. A later one need not."""
    now, slept, sleep = 100.0, [0.0], asyncio.sleep

    async def passing(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept[-1] += seconds
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", passing)
    monkeypatch.setattr("ringfence_kafka.producer.transaction_v2.time.monotonic", lambda: now)
    bench = Bench()
    for pause_s in (0.0, 0.0, 1.0):
        now += pause_s
        await bench.write(("orders", 0))
        await bench.way.commit()
        slept.append(0.0)

    assert slept == [0.0, pytest.approx(FIRST_S), 0.0, 0.0]


@pytest.mark.parametrize("key", [PRODUCE, TXN_OFFSET_COMMIT, END_TXN])
@pytest.mark.parametrize("trouble", [51, 13, 14, 15, KafkaConnectionError("gone"), RequestTimedOutError()])
async def test_momentary_troubles_are_waited_out(key: int, trouble: Any) -> None:
    """A request with a momentary error is repeated, and no other one is."""
    bench = Bench()
    bench.broker.answers[key] += [trouble, trouble]
    await bench.write(("orders", 0))
    await bench.way.commit()

    assert Counter(bench.broker.keys()) == Counter([PRODUCE, TXN_OFFSET_COMMIT, END_TXN, key, key])


@pytest.mark.parametrize(
    ("key", "troubles", "line"),
    [
        (PRODUCE, [19] * 20, "NotEnoughReplicasError of orders/0"),
        (TXN_OFFSET_COMMIT, [14] * 20, "GroupLoadInProgressError of the coordinator"),
        (END_TXN, [51] * 20, "ConcurrentTransactions of the coordinator"),
        (PRODUCE, [RequestTimedOutError()], "broker 1 does not answer"),
        (PRODUCE, [KafkaConnectionError("closed")] * 20, "broker 1 does not answer"),
        (PRODUCE, [KafkaConnectionError("closed")], None),
        (END_TXN, [KafkaConnectionError("closed")], None),
    ],
)
async def test_what_lasts_is_said_once(
    key: int, troubles: list[Any], line: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A lasting error is logged once; a closed connection only the second time in a row, as brokers end sessions."""
    bench = Bench()
    bench.broker.answers[key] += troubles
    await bench.write(("orders", 0))
    await bench.way.commit()
    said = [record.getMessage() for record in caplog.records if record.name == "ringfence.kafka"]

    assert len(said) == (line is not None)
    assert (line or "") in "".join(said)


async def test_coordinator_that_is_gone_is_looked_for() -> None:
    bench = Bench()
    bench.broker.answers[END_TXN].append(16)
    await bench.write(("orders", 0))
    await bench.way.commit()

    assert bench.lookups.count(CoordinationType.TRANSACTION) == 2


@pytest.mark.parametrize(
    ("key", "code", "error"),
    [
        (PRODUCE, 47, ProducerFenced),
        (PRODUCE, 48, InvalidTxnState),
        (PRODUCE, 120, UnknownError),
        (PRODUCE, 29, TopicAuthorizationFailedError),
        (PRODUCE, 10, TopicError),
        (PRODUCE, 32, TopicError),
        (TXN_OFFSET_COMMIT, 47, ProducerFenced),
        (TXN_OFFSET_COMMIT, 48, InvalidTxnState),
        (END_TXN, 90, ProducerFenced),
        (END_TXN, 48, InvalidTxnState),
    ],
)
async def test_refusals_are_told(key: int, code: int, error: type[Exception]) -> None:
    """A refusal raises its error, and nothing is committed."""
    bench = Bench()
    bench.broker.answers[key].append(code)
    with pytest.raises(error, match={TopicError: "orders refuses a record", UnknownError: "120"}.get(error)):  # noqa: PT012 - either of them
        await bench.write(("orders", 0))
        await bench.way.commit()

    assert bench.broker.epoch == 0


async def test_commit_is_asked_for_until_it_is_answered() -> None:
    """A commit is repeated until it is answered; a lost answer does not count, and the coordinator gives it again."""
    bench = Bench()
    bench.broker.answers[END_TXN] += [KafkaConnectionError("lost")] * 5
    await bench.write(("orders", 0))
    await bench.way.commit()

    assert bench.broker.keys().count(END_TXN) == 6


async def test_what_may_be_committed_is_not_aborted() -> None:
    """A transaction whose commit has no answer is not aborted: the next fence ends it, whatever its state."""
    bench = Bench()
    bench.broker.answers[END_TXN] += [KafkaConnectionError("lost")] * 1_000
    await bench.write(("orders", 0))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await bench.way.commit()
    asked = len(bench.broker.asked)
    await bench.way.abort()

    assert len(bench.broker.asked) == asked


async def test_nothing_written_needs_no_end() -> None:
    bench = Bench()
    await bench.way.begin_transaction()
    await bench.way.write([], {}, "")
    await bench.way.commit()
    await bench.way.abort()

    assert bench.broker.asked == []


@pytest.mark.parametrize(("text", "expected"), [("", True), ("on", True), ("off", False)])
def test_switch(monkeypatch: pytest.MonkeyPatch, text: str, expected: bool) -> None:
    """The switch turns the feature on by default, and off on request. Its meaning is not guessed."""
    monkeypatch.setenv(transaction_version.VARIABLE, text)
    assert transaction_version.wanted() is expected
    monkeypatch.setenv(transaction_version.VARIABLE, "0")
    with pytest.raises(ConfigurationError, match="RINGFENCE_TRANSACTIONS_V2 = '0' is neither on nor off"):
        transaction_version.wanted()


# -- the bytes ------------------------------------------------------------------------------------------------


def _bytes(*parts: bytes | str) -> bytes:
    return b"".join(bytes.fromhex(part) if isinstance(part, str) else part for part in parts)


WHO = Producer(0x0102030405060708, 9)
WRITE = transaction_v2_requests.produce(
    "tx", 1_000, {("in", 1): b"abc", ("in", 2): b"", ("log", 0): b"z" * 200}
)
OFFSETS = transaction_v2_requests.commit_offsets("tx", "gr", WHO, {("in", 1): 7})
END = transaction_v2_requests.end("tx", WHO, commit=True)
VERSIONS = transaction_v2_requests.api_versions("ab", "1")


def test_requests_as_the_protocol_has_them() -> None:
    assert WRITE.encode() == _bytes(
        "03", b"tx", "ffff 000003e8", "03",
        "03", b"in", "03", "00000001 04", b"abc", "00", "00000002 01 00", "00",
        "04", b"log", "02", "00000000 c901", b"z" * 200, "00", "00", "00",
    )  # fmt: skip
    assert OFFSETS.encode() == _bytes(
        "03", b"tx", "03", b"gr", "0102030405060708 0009", "ffffffff 01 00",
        "02", "03", b"in", "02", "00000001 0000000000000007 ffffffff 01 00", "00", "00",
    )  # fmt: skip
    assert END.encode() == _bytes("03", b"tx", "0102030405060708 0009 01 00")
    assert VERSIONS.encode() == _bytes("03", b"ab", "02", b"1", "00")


def test_header() -> None:
    """A header of version 2 has key, version, number and client. A broker without version 5 does not get the request."""
    assert END.build_request_header(3, "me").encode() == _bytes("001a 0005 00000003 0002", b"me", "00")
    assert END.prepare({END_TXN: (0, 5)}) is END
    with pytest.raises(Exception, match="versions 0 to 4, not 5"):
        END.prepare({END_TXN: (0, 4)})


def test_answers_as_the_protocol_has_them() -> None:
    """Tagged fields, which brokers may add, are skipped."""

    def read(question: Question, *parts: bytes | str) -> Any:
        buffer = io.BytesIO(struct.pack(">i", 3) + _bytes(*parts))
        assert question.parse_response_header(buffer).correlation_id == 3
        return question.RESPONSE_TYPE.decode(buffer)

    assert read(
        WRITE, "00", "02", "03", b"in", "03",
        "00000001 0000 0000000000000064 ffffffffffffffff 0000000000000000 01 00 00",
        "00000002 0033 ffffffffffffffff ffffffffffffffff ffffffffffffffff",
        "02 00000000 03", b"no", "00", "04", b"bad", "01 00 02 aabb", "00",
        "00000000 00",
    ) == {("in", 1): (0, 100), ("in", 2): (51, -1)}  # fmt: skip
    offsets = read(OFFSETS, "00", "00000000", "02", "03", b"in", "02", "00000001 0010 00", "00", "00")
    assert offsets == {("in", 1): 16}
    ended = read(END, "01 00 01 ff", "00000000 0000 0000000000000005 0007 00")
    assert ended == Ended(0, Producer(5, 7))
    assert read(
        VERSIONS, "0000", "02", "0000 0003 000d 00", "00000000",
        "03", "00 1a 02 14", b"transaction.version", "0001 0003 00",
        "01 08 0000000000000001",
        "02 1a 02 14", b"transaction.version", "0002 0000 00",
    ) == Features({"transaction.version": 2}, {"transaction.version": 3})  # fmt: skip
