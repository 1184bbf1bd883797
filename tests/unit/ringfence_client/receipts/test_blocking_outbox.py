"""The outbox of programs without an event loop."""

import math
from typing import Any, Self, cast

import pytest

from ringfence_client import Outbox, OutboxError
from ringfence_client.receipts.outbox import BlockingOutbox
from ringfence_kafka.config.load import validate


class _Outbox:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("timeout", ["30s", "30", 0, -1, math.nan, math.inf, True, None])
def test_a_timeout_that_is_none(timeout: Any) -> None:
    """A wrong time-out is refused before anything is connected."""
    settings = validate({"addresses": [{"name": "orders"}]})

    with pytest.raises(ValueError, match=r"give a number of seconds above 0, such as 30\.0"):
        Outbox(settings, "orders", timeout=timeout)


def test_a_send_after_the_end() -> None:
    outbox = BlockingOutbox(cast(Outbox, _Outbox()))
    outbox.close()

    with pytest.raises(OutboxError, match="is closed, and nothing is sent"):
        outbox.send("x")
