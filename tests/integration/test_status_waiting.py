"""How many messages wait for consumers, on a real broker: neither what is finished out of order nor markers."""

from app.commands.status.findings import findings
from app.commands.status.model import Consumers, Finding, Status
from app.commands.status.read import read
from ringfence_client import Message
from tests.support import kafka
from tests.support.consumers.in_process import Bench, Recorder, consuming, numbered
from tests.support.lanes import until


async def _refuse(message: Message) -> None:
    if message.group == b"bad":
        raise ValueError("refused")


async def _status(bench: Bench) -> tuple[Status, Consumers, list[Finding]]:
    status = await read(bench.settings)
    (consumers,) = status.consumers
    return status, consumers, [finding for finding in findings(status) if bench.group in finding.where]


async def test_finished_messages_do_not_wait(bootstrap: str) -> None:
    """One message fails and nine behind it are finished: one waits, when its consumer has stopped too."""
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"bad", 1), *numbered(b"good", 9))
        running = await bench.start(Recorder(_refuse))
        await until(lambda: len(running.handler.done) == 9, lambda: str(running.handler.done))
        await running.stop()
        _, consumers, (found,) = await _status(bench)

    assert (consumers.lag, consumers.waiting) == (10, 1)
    assert found.stands
    assert found.what.startswith("nobody consumes, and up to 1 message waits, the oldest for")


async def test_markers_do_not_wait(bootstrap: str) -> None:
    """An aborted transaction behind the last message is a lag of offsets, and nothing waits. One message behind it does."""
    async with consuming(bootstrap) as bench:
        bench.send(*numbered(b"g", 3))
        running = await bench.start(Recorder())
        await bench.until_next(running, 3)
        await running.stop()
        kafka.send_in_transaction(bootstrap, bench.accepted, numbered(b"g", 2), commit=False)
        _, consumers, found = await _status(bench)
        assert (consumers.lag, consumers.waiting, found) == (3, 0, [])

        bench.send(*numbered(b"g", 1))
        _, consumers, (finding,) = await _status(bench)

    assert consumers.lag == 4
    assert finding.what.startswith("nobody consumes, and up to 4 messages wait")


async def test_markers_of_an_input_do_not_wait(bootstrap: str) -> None:
    """So do aborted messages of a producer, where no worker runs."""
    async with consuming(bootstrap) as bench:
        kafka.create_topics(bootstrap, {bench.name: (1, {})})
        kafka.send_in_transaction(bootstrap, bench.name, numbered(b"g", 2), commit=False)
        status = await read(bench.settings)
        (aborted,) = [finding for finding in findings(status) if finding.where.startswith("workers")]
        kafka.send(bootstrap, bench.name, numbered(b"g", 1))
        status = await read(bench.settings)
        (sent,) = [finding for finding in findings(status) if finding.where.startswith("workers")]

    assert aborted.what == "no worker runs, so nothing is accepted; no message waits yet"
    assert sent.what == "no worker runs, so nothing is accepted; up to 4 messages wait"
