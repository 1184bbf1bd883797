"""A handler that takes as long as it was told; a byte for each message that it has handled goes to a file."""

import asyncio
import os
from typing import Final

from ringfence_client import Message

_SECONDS: Final = float(os.environ["BENCH_HANDLER_S"])
_NOTES: Final = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


async def handle(_message: Message) -> None:
    """Do nothing, for a while."""
    await asyncio.sleep(_SECONDS)
    os.write(_NOTES, b".")
