"""Asks a consumer, through its web server, to change something in a partition that it holds."""

from typing import Any, Final

import aiohttp

ANSWER_LIMIT_S: Final = 30.0
"""For a holder to write it down."""


async def ask(web: str, path: str, body: dict[str, Any]) -> dict[str, Any] | str:
    """Have the holder do it; returns what it says, or why it does not: another may listen where it did."""
    if not web:
        return "has no web server"
    limit = aiohttp.ClientTimeout(total=ANSWER_LIMIT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.post(f"{web}/{path}", json=body) as answer,
        ):
            said = dict(await answer.json())
            return said if answer.ok else f"refuses ({said.get('error', answer.status)})"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
        return f"does not answer at {web}"
