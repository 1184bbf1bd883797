"""Receipts over crashes of sender and worker, and over what a changelog has lost."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringfence_client import Outbox, ReceiptTimeoutError, Verdict
from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.worker import one_address, wait_for, worker

SENDER = """
import sys
from ringfence_client import Outbox
with Outbox(sys.argv[1], sys.argv[2], sender=sys.argv[3]) as outbox:
    outbox.send("v", duplicate_id="order-1", key="g")
"""


@pytest.mark.parametrize("sender", ["shop-1", ""], ids=["named", "unnamed"])
def test_a_crash_before_the_answer(bootstrap: str, tmp_path: Path, sender: str) -> None:
    """After a crash a second call names the message of the first; a named sender has the first call's own answer."""
    name, config = one_address(tmp_path, bootstrap, "crashed")
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
    name, config = one_address(tmp_path, bootstrap, "slow", 2)
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
    name, config = one_address(tmp_path, bootstrap, "killed", 3)
    session = {"RINGFENCE_APP__SESSION_TIMEOUT": "6"}
    with worker(config, f"{name}-0", **session) as first, worker(config, f"{name}-1", **session):
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
    accepted = {item.source for item in kafka.read_all(bootstrap, f"{name}.accepted", 3)}

    by_verdict = {
        verdict: {item.source for item in receipts if item.verdict is verdict} for verdict in Verdict
    }
    assert by_verdict[Verdict.ACCEPTED] == accepted
    assert len(accepted) == len(by_verdict[Verdict.DUPLICATE]) == 240
