"""Handlers that consumer processes run. Each appends short lines to the file that ``HANDLED_FILE`` names, in one write each."""

import asyncio
import json
import os
import threading
import time
from typing import Any, Final

from ringfence_client import Message, PartNumber

SECONDS: Final = float(os.environ.get("HANDLING_SECONDS", "0"))
SLOW_SECONDS: Final = float(os.environ.get("HANDLING_SLOW_SECONDS", "0"))
"""Seconds that every :data:`SLOW_EACH`-th message takes: it holds back the offset below which all is finished."""
SLOW_EACH: Final = 199


async def record(message: Message) -> None:
    _note("begin", message)
    await asyncio.sleep(_seconds(message))
    _note("end", message)


def record_in_thread(message: Message) -> None:
    _note("begin", message)
    time.sleep(_seconds(message))
    _note("end", message)


OWN = ("held", "effects", "sent")
"""Attributes of a message that are not for handlers."""


async def describe(message: Message) -> None:
    names = [*(slot for slot in Message.__slots__ if slot not in OWN), "state", "fence", "fenced"]
    append(json.dumps({name: _shown(getattr(message, name)) for name in names}))


def describe_in_thread(message: Message) -> None:
    asyncio.run(describe(message))


def _seconds(message: Message) -> float:
    return SLOW_SECONDS if SLOW_SECONDS and message.offset % SLOW_EACH == 0 else SECONDS


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [[name, _shown(item)] for name, item in value]
    if isinstance(value, PartNumber):
        return str(value)
    return value.decode() if isinstance(value, bytes) else value


def _note(what: str, message: Message) -> None:
    label = (message.value or b"").decode()
    where = f"{message.partition} {message.offset} {message.attempt} {message.fence}"
    append(f"{time.monotonic():.6f} {what} {os.getpid()} {label} {where}")


def append(line: str) -> None:
    descriptor = os.open(os.environ["HANDLED_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


async def refuse_or_hold(message: Message) -> None:
    """Fail messages of ``bad``, never end those of ``held``, and handle all others."""
    if message.group == b"bad":
        raise ValueError("always")
    if message.group == b"held":
        await asyncio.Event().wait()
    _note("end", message)


async def refuse_until_mended(message: Message) -> None:
    """Reject messages of ``bad`` as long as the file that ``MENDED`` names is not there."""
    _note("begin", message)
    if message.group == b"bad" and not os.path.exists(os.environ["MENDED"]):  # noqa: ASYNC240, PTH110 - a look
        message.reject("not mended")
    _note("end", message)


def never_ends(message: Message) -> None:
    _note("begin", message)
    threading.Event().wait()
