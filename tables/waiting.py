"""Waiting for an event, for a limited time."""

import asyncio


async def set_within(event: asyncio.Event, limit_s: float | None) -> bool:
    """Whether it was set within so many seconds; None = however long it takes.

    In Python 3.11 ``asyncio.wait_for`` loses a cancel that comes together with the event; this does not.
    """
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
