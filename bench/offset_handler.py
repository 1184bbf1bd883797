"""The handler of the handover benchmark: notes when each message began and ended, by the machine's clock."""

import asyncio
import os
import time
from typing import Final

from ringfence_client import Message

_SECONDS: Final = float(os.environ.get("BENCH_HANDLER_S", "0"))


async def handle(message: Message) -> None:
    """Handle a message in the configured time, and note its beginning and end."""
    began = time.time()
    _append(f"begin {message.partition} {message.offset} {began!r} {(message.value or b'0').decode()}")
    await asyncio.sleep(_SECONDS)
    _append(f"end {message.partition} {message.offset} {time.time()!r} 0")


def _append(line: str) -> None:
    descriptor = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
