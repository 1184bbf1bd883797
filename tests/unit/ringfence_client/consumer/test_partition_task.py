"""Calls of ``lost(groups)``."""

import logging
import subprocess
import sys
from collections.abc import Collection

import pytest

from ringfence_client.consumer import partition_task
from ringfence_client.consumer.partition_task import report_lost

LIMIT_S = 30.0


async def test_a_function_that_raises(caplog: pytest.LogCaptureFixture) -> None:

    def fail(_: Collection[bytes]) -> None:
        raise OSError("no cache")

    with caplog.at_level(logging.ERROR):
        await report_lost(fail, "orders.accepted/0", {b"g"})

    assert "lost(groups) failed, so caches of 1 groups may be old" in caplog.text
    assert "no cache" in caplog.text


def test_a_function_that_hangs_does_not_keep_the_process() -> None:
    """A lost-groups function that hangs does not keep the partition beyond the limit, nor the process from ending."""
    code = (
        "import asyncio, time\n"
        f"from {partition_task.__name__} import report_lost\n"
        f"import {partition_task.__name__} as module\n"
        "module.LOST_LIMIT_S = 0.1\n"
        "asyncio.run(report_lost(lambda groups: time.sleep(3600), 'orders/0', [b'g']))\n"
        "print('ended')\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)

    assert done.stdout == "ended\n"
    assert "does not end within 0.1 s" in done.stderr
