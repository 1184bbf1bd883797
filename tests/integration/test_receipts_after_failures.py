"""Receipts over crashes of sender and worker, and over what a changelog has lost."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from ringfence_client import Outbox, ReceiptTimeoutError, Verdict
from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.kafka import Sent
from tests.support.worker import WorkerProcess, configure, run_verb, wait_for, worker

SENDER = """
import sys
from ringfence_client import Outbox
with Outbox(sys.argv[1], sys.argv[2], sender=sys.argv[3]) as outbox:
    outbox.send("v", duplicate_id="order-1", key="g")
"""
BUSY_CLEANER = {"log.cleaner.backoff.ms": "100"}
CLEANED_AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
}


@pytest.mark.parametrize("sender", ["shop-1", ""], ids=["named", "unnamed"])
def test_a_crash_before_the_answer(bootstrap: str, tmp_path: Path, sender: str) -> None:
    """After a crash a second call names the message of the first; a named sender has the first call's own answer."""
    name = kafka.unique("crashed")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 1}])
    with worker(config, name) as process:
        process.signal(signal.SIGSTOP)
        arguments = [sys.executable, "-c", SENDER, str(config), name, sender]
        first = subprocess.Popen(arguments, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            wait_for(lambda: kafka.end_offsets(bootstrap, name) == [1], lambda: "nothing is sent")
        finally:
            first.kill()
            first.wait()
        process.signal(signal.SIGCONT)
        with Outbox(config, name, sender=sender) as outbox:
            second, third = (outbox.send("v", duplicate_id="order-1", key="g") for _ in range(2))

    (accepted,) = kafka.read_all(bootstrap, f"{name}.accepted", 1)
    assert second.accepted_source == third.accepted_source == accepted.source == f"{name}/0/0"
    if sender:
        assert second == third
        assert second.verdict is Verdict.ACCEPTED
    else:
        assert second.verdict is third.verdict is Verdict.DUPLICATE
        assert second.original_time == accepted.timestamp


async def test_no_worker(bootstrap: str, tmp_path: Path) -> None:
    """Without a worker the error says where the message is, and what to do. The same call has the answer later."""
    name = kafka.unique("slow")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 2}])
    async with Outbox(config, name, sender="shop", timeout=1.0) as outbox:
        with pytest.raises(ReceiptTimeoutError, match="call send again with the same ID") as raised:
            await outbox.send("v", duplicate_id="order-1")
        with pytest.raises(ReceiptTimeoutError, match="do not send it again"):
            await outbox.send("v")
    with worker(config, name):
        async with Outbox(config, name, sender="shop") as outbox:
            receipt = await outbox.send("v", duplicate_id="order-1")

    assert receipt.verdict is Verdict.ACCEPTED
    assert receipt.source == raised.value.source


@pytest.mark.long
async def test_a_worker_is_killed(bootstrap: str, tmp_path: Path) -> None:
    """While one worker is killed and another takes its lanes, each message gets the receipt that the outputs show."""
    name = kafka.unique("killed")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 3}])
    session = {"RINGFENCE_APP__SESSION_TIMEOUT": "6"}
    first, second = (WorkerProcess(config, f"{name}-{number}", session) for number in range(2))
    try:
        for process in (first, second):
            process.start()
            process.wait_ready()
        async with Outbox(config, name, timeout=90) as outbox:

            async def send_all(begin: int) -> list[Any]:
                return [
                    await outbox.send("v", duplicate_id=f"{begin + number // 2}", key=f"g{begin}")
                    for number in range(60)
                ]

            sending = asyncio.gather(*(send_all(1_000 * number) for number in range(8)))
            await asyncio.to_thread(kafka.wait_count, bootstrap, f"{name}.accepted", 40, 3)
            await asyncio.to_thread(first.kill)
            receipts = [receipt for some in await sending for receipt in some]
    finally:
        first.destroy()
        second.destroy()
    accepted = {item.source for item in kafka.read_all(bootstrap, f"{name}.accepted", 3)}

    by_verdict = {
        verdict: {item.source for item in receipts if item.verdict is verdict} for verdict in Verdict
    }
    assert by_verdict[Verdict.ACCEPTED] == accepted
    assert len(accepted) == len(by_verdict[Verdict.DUPLICATE]) == 240


@pytest.mark.long
async def test_topics_that_grow(bootstrap: str, tmp_path: Path) -> None:
    """An open outbox follows an address to more partitions: what it sends by the old number is forwarded, and gets its receipt."""
    name = kafka.unique("grown")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 2}])
    async with Outbox(config, name) as outbox:

        async def send_all() -> list[Any]:
            sends = (outbox.send("v", duplicate_id=f"{number}", key=f"g{number}") for number in range(40))
            return await asyncio.gather(*sends)

        with worker(config, name) as process:
            before = await send_all()
            await asyncio.to_thread(
                wait_for, lambda: kafka.consumed(bootstrap, name, name, 2), lambda: "not judged"
            )
            await asyncio.to_thread(process.stop)
        grow = ["topics", "grow", name, "--partitions", "4", "--yes", "--config", str(config)]
        await asyncio.to_thread(run_verb, *grow)
        with worker(config, name):
            after = await send_all()
            new = [
                await outbox.send("v", duplicate_id=f"new-{number}", key=f"g{number}") for number in range(20)
            ]
    accepted = {item.source for item in kafka.read_all(bootstrap, f"{name}.accepted", 2)}

    assert [item.original for item in after] == [item.source for item in before]
    assert {item.verdict for item in new} == {Verdict.ACCEPTED}
    assert {item.source for item in (*before, *new)} == accepted


async def test_input_that_is_created_again(bootstrap: str, tmp_path: Path) -> None:
    """Offsets of a deleted topic say nothing of the one that was created again."""
    name = kafka.unique("again")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 1}])
    with worker(config, name):
        async with Outbox(config, name) as outbox:
            before = [await outbox.send("v", duplicate_id=f"{number}") for number in range(5)]
            await asyncio.to_thread(kafka.recreate_topic, bootstrap, name)
            known = await outbox.send("v", duplicate_id="0")
            new = await outbox.send("v", duplicate_id="new")
    accepted = [item.source for item in kafka.read_all(bootstrap, f"{name}.accepted", 1)]

    assert (known.verdict, known.original) == (Verdict.DUPLICATE, before[0].source)
    assert new.verdict is Verdict.ACCEPTED
    assert new.source in accepted


@pytest.fixture(scope="module")
def cleaning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Yield a broker whose cleaner does not rest."""
    with EmbeddedBroker(tmp_path_factory.mktemp("cleaning"), properties=BUSY_CLEANER) as running:
        kafka.settle(running.bootstrap_servers)
        yield running


@pytest.mark.long
async def test_a_slot_that_was_compacted_away(
    cleaning: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender that reads late finds its slot overwritten and cleaned: the accepted topic has the answer."""
    bootstrap, name = cleaning.bootstrap_servers, kafka.unique("cleaned")
    changelog = f"{name}-{name}-changelog"
    kafka.create_topics(bootstrap, {changelog: (1, CLEANED_AT_ONCE)})
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 1, "id_cache_size": 2}])
    late = asyncio.Event()
    with worker(config, name):
        async with Outbox(config, name, timeout=120) as outbox:
            known = await outbox.send("v", duplicate_id="known")
            take_next = outbox._follower._take_next

            async def take_late() -> None:
                await late.wait()
                await take_next()

            monkeypatch.setattr(outbox._follower, "_take_next", take_late)
            await asyncio.to_thread(kafka.send, bootstrap, name, [Sent(b"wakes the reader once more")])
            new = asyncio.create_task(outbox.send("v", duplicate_id="new"))
            repeated = asyncio.create_task(outbox.send("v", duplicate_id="known"))
            await asyncio.to_thread(kafka.wait_count, bootstrap, f"{name}.accepted", 3)
            for number in range(100):
                await asyncio.to_thread(kafka.send, bootstrap, name, [Sent(b"%d" % number)])
                if not _has_slot(bootstrap, changelog, b"new") and not _has_slot(
                    bootstrap, changelog, b"known"
                ):
                    break
                await asyncio.sleep(0.2)
            late.set()
            receipts = [await new, await repeated]
    accepted = {item.source for item in kafka.read_all(bootstrap, f"{name}.accepted", 1)}

    assert not _has_slot(bootstrap, changelog, b"new")
    assert known.source in accepted
    for receipt in receipts:
        assert (receipt.verdict is Verdict.ACCEPTED) == (receipt.source in accepted), receipt


def _has_slot(bootstrap: str, changelog: str, identity: bytes) -> bool:
    return any(
        item.value and item.value.endswith(b"\0" + identity)
        for item in kafka.read_all(bootstrap, changelog, 1)
    )
