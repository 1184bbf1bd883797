"""Handlers that send, for consumer processes. ``TARGET`` names the topic."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from ringfence_client import Message
from tests.support.handlers import append


async def dies_in_a_batch(messages: Sequence[Message]) -> None:
    """Send each message; the first time that 15 is in a batch with others, die instead of returning."""
    for message in messages:
        await message.send(os.environ["TARGET"], message.value)
    died = Path(os.environ["DIED"])
    if len(messages) > 1 and any(message.value == b"15" for message in messages) and not died.exists():  # noqa: ASYNC240 - a look
        died.touch()  # noqa: ASYNC240
        os.kill(os.getpid(), signal.SIGKILL)
    append(str(len(messages)))
