"""Asks a consumer, through its web server, to change a partition that it holds."""

from http import HTTPStatus
from typing import Any, Final

import aiohttp

from ringfence_kafka.config.settings import AppSettings
from ringfence_kafka.http import probe_errors
from ringfence_kafka.http.auth import session
from ringfence_kafka.http.probe_errors import ProbeError

ANSWER_LIMIT_S: Final = 30.0
"""Time for a lease holder to write the change, in seconds."""


async def send_order(app: AppSettings, web: str, path: str, body: dict[str, Any]) -> dict[str, Any] | str:
    """Return the holder's answer, or why there is none. Its address may belong to another program."""
    if not web:
        return "has no web server"
    try:
        async with session(app, ANSWER_LIMIT_S) as asking, asking.post(f"{web}/{path}", json=body) as answer:
            if answer.status == HTTPStatus.UNAUTHORIZED:
                return _silent(web, probe_errors.token(app))
            said = dict(await answer.json())
            return said if answer.ok else f"refuses ({said.get('error', answer.status)})"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        return _silent(web, probe_errors.fault(app, error))


def _silent(web: str, why: ProbeError | None) -> str:
    return f"does not answer at {web}" if why is None else f"cannot be asked at {web} ({why})"
