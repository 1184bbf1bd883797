"""The bench does with a handler what a consumer does."""

import asyncio
import gc
import subprocess
import sys
import warnings

import pytest

from ringfence_client import ConsumerOptions, Message, Reject, Retry
from ringfence_client.handlers.handler import HandlerError
from ringfence_client.testing import HandlerBench, SentRecord, message
from ringfence_kafka.config.settings import Settings

EXACT = ConsumerOptions(concurrency=1, retry_jitter=0, max_attempts=3)


async def totals(given: Message) -> None:
    """Keep a running total of each group, and send it to an address."""
    total = int(given.state or b"0") + int(given.value or b"")
    given.state = str(total)
    await given.send("ledger", str(total), key=given.group)


def seen(bench: HandlerBench) -> list[tuple[bytes | None, int, bool]]:
    """Value, attempt, and whether it was the first of its group, of each run."""
    return [(run.message.value, run.message.attempt, run.message.first_here) for run in bench.runs]


def values(bench: HandlerBench) -> list[bytes | None]:
    return [record.value for record in bench.sent]


# -- sends and state ----------------------------------------------------------------------------------------------


def test_sends_and_state_are_committed() -> None:
    """The ID of a send to an address follows from the message: application, consumer group, source, number."""
    bench = HandlerBench(totals, addresses=["ledger"])

    bench.deliver(message("5", group="alice"), message("3", group="alice"), message("1", group="bob"))

    own_id = b"ringfence:test:test/0/0:847ecec6:1"
    assert bench.sent[0] == SentRecord("ledger", b"5", b"alice", [("_AMQ_DUPL_ID", own_id)])
    assert bench.sent[0].duplicate_id == own_id
    assert values(bench) == [b"5", b"8", b"1"]
    assert (bench.state("alice"), bench.state("bob"), bench.state("carol")) == (b"8", b"1", None)
    assert seen(bench) == [(b"5", 1, True), (b"3", 1, False), (b"1", 1, True)]
    assert bench.unfinished == []


# -- failures -----------------------------------------------------------------------------------------------------


def test_a_failed_attempt_leaves_nothing() -> None:
    """A failed attempt leaves neither sends nor state, and its group waits. Delays take no real time."""

    async def handle(given: Message) -> None:
        await totals(given)
        if given.attempt < 3 and given.value == b"5":
            raise ValueError(f"attempt {given.attempt}")

    options = ConsumerOptions(concurrency=1, retry_jitter=0, max_attempts=4, retry_delay=10.0, retry_max=1e3)
    bench = HandlerBench(handle, options)
    bench.deliver(message("5", group="alice"), message("3", group="alice"))

    assert seen(bench) == [(b"5", 1, True), (b"5", 2, True), (b"5", 3, True), (b"3", 1, False)]
    assert values(bench) == [b"5", b"8"]
    assert (bench.delays, bench.time) == ([10.0, 20.0], 30.0)
    assert [str(run.error) for run in bench.runs[:2]] == ["attempt 1", "attempt 2"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(Reject("no"), "no"), (KeyError("id"), "KeyError: 'id'"), (Retry("later", -1), "later")],
)
def test_dead_letters(error: Exception, reason: str) -> None:
    """A message becomes a dead letter if rejected, of a rejected class, or retried too often. The group continues."""

    def handle(given: Message) -> None:
        given.send("out", given.value)
        if given.value == b"bad":
            raise error

    options = ConsumerOptions(max_attempts=3, retry_jitter=0, reject_on=(LookupError,))
    bench = HandlerBench(handle, options)
    bench.deliver(message("bad", group="alice"), message("good", group="alice"))

    (letter,) = bench.dead_letters
    assert (letter.group, letter.value, letter.reason) == (b"alice", b"bad", reason)
    assert letter.attempts == len(bench.runs) - 1 == (3 if isinstance(error, Retry) else 1)
    assert values(bench) == [b"good"]


def test_many_failures_open_no_breaker() -> None:
    """Many failures open no breaker in the bench, because nothing would be given up any more."""

    def handle(_: Message) -> None:
        raise ValueError

    bench = HandlerBench(handle, EXACT)
    bench.deliver(*(message(group=str(number)) for number in range(200)))

    assert len(bench.dead_letters) == 200


def test_a_release_comes_again() -> None:
    """A release is not a failed attempt. A handler that always releases does not run forever."""
    ready = False

    def handle(given: Message) -> None:
        if not ready:
            given.release()
        given.send("out", given.value)

    bench = HandlerBench(handle)
    bench.deliver(message("5", group="alice"))
    assert ([given.value for given in bench.unfinished], bench.sent) == ([b"5"], [])

    ready = True
    bench.pass_time(1.0)
    assert values(bench) == [b"5"]
    assert {run.message.attempt for run in bench.runs} == {1}


def test_parked_groups_wait_for_a_redrive() -> None:

    def handle(given: Message) -> None:
        if given.value == b"bad" and not given.redriven:
            raise ValueError
        given.send("out", given.value)

    bench = HandlerBench(handle, ConsumerOptions(on_dead_letter="park", max_attempts=2, retry_jitter=0))
    with pytest.raises(ValueError, match="nothing to redrive"):
        bench.redrive()
    bench.deliver(message("bad", group="alice"), message("2", group="alice"), message("3", group="bob"))
    bench.hand_over()
    assert (values(bench), len(bench.dead_letters)) == ([b"3"], 1)
    assert [given.value for given in bench.unfinished] == [b"bad", b"2"]

    bench.redrive()
    assert values(bench) == [b"3", b"bad", b"2"]
    with pytest.raises(ValueError, match="was done again already"):
        bench.redrive()


def test_batches() -> None:
    """A batch is one call and one acknowledgement; a batch that fails is tried message by message."""

    def handle(given: list[Message]) -> None:
        for item in given:
            item.send("out", item.value)
        if b"bad" in [item.value for item in given]:
            raise ValueError

    bench = HandlerBench(handle, ConsumerOptions(batch=3, concurrency=1, max_attempts=2, retry_jitter=0))
    bench.deliver(*(message(value, group="alice") for value in ("1", "2", "3", "bad", "5")))

    called = [[item.value for item in run.messages] for run in bench.runs]
    assert called == [[b"1", b"2", b"3"], [b"bad", b"5"], [b"bad"], [b"bad"], [b"5"]]
    assert values(bench) == [b"1", b"2", b"3", b"5"]


# -- another process ----------------------------------------------------------------------------------------------


def test_a_crash_before_the_commit() -> None:
    """A crash before the commit repeats messages and sends, and readers see one copy. No lost groups are reported."""
    lost: list[object] = []
    bench = HandlerBench(totals, addresses=["ledger"], lost=lost.append)

    bench.crash_before_commit(message("5", group="alice"), message("3", group="alice"))

    assert seen(bench) == [(b"5", 1, True), (b"3", 1, False)] * 2
    assert values(bench) == [b"5", b"8"]
    assert (bench.state("alice"), lost) == (b"8", [])


def test_a_takeover() -> None:
    """Uncommitted messages come again. ``lost`` is called, and each group is new to the next process."""
    lost: list[object] = []
    bench = HandlerBench(totals, lost=lost.append)
    bench.deliver(message("5", group="alice"))
    bench.deliver(message("3", group="alice"), commit=False)
    assert (values(bench), bench.state("alice")) == ([b"5"], b"5")
    assert [given.value for given in bench.unfinished] == [b"3"]

    bench.take_over()

    assert (values(bench), bench.state("alice"), lost) == ([b"5", b"8"], b"8", [{b"alice"}])
    assert seen(bench) == [(b"5", 1, True), (b"3", 1, False), (b"3", 1, True)]
    assert bench.runs[0].message.fenced
    assert bench.runs[-1].message.fence > bench.runs[0].message.fence


def test_a_partition_is_given_away() -> None:
    """A partition is given away after all is committed, and no message is repeated."""
    lost: list[object] = []

    async def tell(groups: object) -> None:
        await asyncio.sleep(0)
        lost.append(groups)

    bench = HandlerBench(totals, lost=tell)
    bench.deliver(message("5", group="alice"), commit=False)
    bench.hand_over()
    bench.deliver(message("3", group="alice"))

    assert (values(bench), lost) == ([b"5", b"8"], [{b"alice"}])
    assert seen(bench) == [(b"5", 1, True), (b"3", 1, True)]


def test_failures_are_counted_on_by_the_next_process() -> None:
    """The next process continues the count of failures. It knows of the delays that the last attempt waits for the retry time."""

    def handle(_: Message) -> None:
        raise ValueError

    bench = HandlerBench(handle, ConsumerOptions(max_attempts=3, retry_time=100, retry_jitter=0))
    bench.deliver(message("5", group="alice"), wait=False)
    bench.take_over(wait=False)
    assert [run.message.attempt for run in bench.runs] == [1, 2]

    bench.crash()
    assert [run.message.attempt for run in bench.runs] == [1, 2, 3]
    assert bench.time == pytest.approx(100)
    assert bench.dead_letters[0].attempts == 3


# -- the bench itself ---------------------------------------------------------------------------------------------


def test_what_is_no_handler_is_refused() -> None:
    def generator(_: Message) -> object:
        yield

    def hidden(given: Message) -> object:
        return generator(given)

    with pytest.raises(HandlerError, match="generator function"):
        HandlerBench(generator)
    bench = HandlerBench(hidden)
    with pytest.raises(HandlerError, match="returned a generator"):
        bench.deliver(message())


def test_a_configuration() -> None:
    """The bench uses the headers and topics of a configuration. A send that cannot be written fails its message, and writes nothing."""
    ledger = {"name": "ledger", "input_topic": "ledger.in", "duplicate_id_from": "header:id"}
    settings = Settings.model_validate({"app": {"id": "shop"}, "addresses": [{"name": "orders"}, ledger]})

    def handle(given: Message) -> None:
        given.send("ledger.in", given.value)
        if given.value == b"bad":
            given.send("ledger.accepted", given.value)

    bench = HandlerBench(handle, EXACT, settings=settings, address="orders", consumer_group="billing")
    bench.deliver(message("1", group="alice", duplicate_id="o-1"), message("bad", group="bob"))

    own_id = b"shop:billing:orders/0/0:83130adf:1"
    assert bench.sent == [SentRecord("ledger.in", b"1", headers=[("id", own_id)])]
    assert bench.runs[0].message.duplicate_id == b"o-1"
    assert "which only Ringfence writes" in bench.dead_letters[0].reason


def test_a_bench_ends_with_its_test() -> None:
    """A bench needs no close: no warning remains. A closed bench can be inspected."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bench = HandlerBench(totals)
        bench.deliver(message("5", group="alice"), commit=False)
        del bench
        gc.collect()
        with HandlerBench(totals) as other:
            other.deliver(message("5", group="alice"))

    assert [str(item.message) for item in caught] == []
    assert values(other) == [b"5"]
    with pytest.raises(RuntimeError, match="closed"):
        other.deliver(message("5", group="alice"))


def test_it_brings_neither_faust_nor_rocksdb() -> None:
    script = "import sys, ringfence_client.testing; print(sorted({'faust', 'mode', 'rocksdict', 'pytest'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
