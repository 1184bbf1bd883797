"""Handlers that send, for consumer processes. ``TARGET`` names the topic."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from ringfence_client import Message
from tests.support.handlers import SECONDS, append


async def dies_in_a_batch(messages: Sequence[Message]) -> None:
    """Send each message; the first time that 15 is in a batch with others, die instead of returning."""
    for message in messages:
        await message.send(os.environ["TARGET"], message.value)
    died = Path(os.environ["DIED"])
    if len(messages) > 1 and any(message.value == b"15" for message in messages) and not died.exists():  # noqa: ASYNC240 - a look
        died.touch()  # noqa: ASYNC240
        os.kill(os.getpid(), signal.SIGKILL)
    append(str(len(messages)))


async def relay(message: Message) -> None:
    """Send value and running count of the group, under the key of the group. Each message takes ``HANDLING_SECONDS``."""
    count = int(message.state or 0) + 1
    append(f"{os.getpid()} {message.offset}")
    await asyncio.sleep(SECONDS)
    await message.send(os.environ["TARGET"], b"%s %d" % (message.value, count), key=message.group)
    message.state = b"%d" % count
