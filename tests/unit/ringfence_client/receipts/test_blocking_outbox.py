"""The outbox of programs without an event loop."""

from typing import Self, cast

import pytest

from ringfence_client import Outbox, OutboxError
from ringfence_client.receipts.blocking_outbox import BlockingOutbox


class _Outbox:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def test_a_send_after_the_end() -> None:
    """It says that the outbox is closed."""
    outbox = BlockingOutbox(cast(Outbox, _Outbox()))
    outbox.close()

    with pytest.raises(OutboxError, match="is closed, and nothing is sent"):
        outbox.send("x")
