"""Handlers that consumer processes run. Each appends what it does to the file that ``HANDLED_FILE`` names.

Lines are short and appended in one write each, so that several processes may share the file.
"""

import asyncio
import json
import os
import time
from typing import Any, Final

from ringfence_client import Message

SECONDS: Final = float(os.environ.get("HANDLING_SECONDS", "0"))
"""How long a message takes."""
SLOW_SECONDS: Final = float(os.environ.get("HANDLING_SLOW_SECONDS", "0"))
"""How long one in so many takes, which holds back the offset below which all is finished."""
SLOW_EACH: Final = 199


async def record(message: Message) -> None:
    """Note begin and end."""
    _note("begin", message)
    await asyncio.sleep(_seconds(message))
    _note("end", message)


def record_in_thread(message: Message) -> None:
    """The same as a plain function."""
    _note("begin", message)
    time.sleep(_seconds(message))
    _note("end", message)


async def describe(message: Message) -> None:
    """Note everything that a handler is given."""
    _append(json.dumps({each: _shown(getattr(message, each)) for each in Message.__slots__}))


def describe_in_thread(message: Message) -> None:
    """The same as a plain function."""
    asyncio.run(describe(message))


def _seconds(message: Message) -> float:
    return SLOW_SECONDS if SLOW_SECONDS and message.offset % SLOW_EACH == 0 else SECONDS


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [[name, _shown(each)] for name, each in value]
    return value.decode() if isinstance(value, bytes) else value


def _note(what: str, message: Message) -> None:
    label = (message.value or b"").decode()
    where = f"{message.partition} {message.offset} {message.attempt}"
    _append(f"{time.monotonic():.6f} {what} {os.getpid()} {label} {where}")


def _append(line: str) -> None:
    descriptor = os.open(os.environ["HANDLED_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


async def refuse_or_hold(message: Message) -> None:
    """What belongs to ``bad`` fails, to ``held`` never ends, and all else is done."""
    if message.group == b"bad":
        raise ValueError("always")
    if message.group == b"held":
        await asyncio.Event().wait()
    _note("end", message)
