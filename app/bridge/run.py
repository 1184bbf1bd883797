"""The process of ``ringfence bridge``."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import uuid
from collections.abc import Sequence
from typing import Final

from agents.bridge.bridge import Bridge
from agents.bridge.inspection import faults
from agents.bridge.plan import Plan, plans
from app.bridge import drains, web
from app.bridge.connections import permitted
from ringfence_client.web import advertised
from ringfence_kafka import collector, failpoints, insides, logs, records
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.waiting import set_within

log: Final = logging.getLogger("ringfence.bridge")

LOOK_S: Final = 0.2
"""How often a drain looks whether it has ended."""
LIVE_S: Final = 1.0
"""How often it is looked whether a bridge has ended, which none does by itself."""


def run(settings: Settings, names: Sequence[str], web_port: int | None, *, drain: bool) -> int:
    """Forward until SIGTERM or SIGINT, or with ``drain`` until all stands at the ends of now; then commit, and leave.

    Raises:
        RingfenceError: it cannot start; the text names the fault and the way out.
    """
    logs.configure()
    failpoints.install_from_environment()
    insides.create_no_topics()
    records.install()
    found = plans(settings, names)
    listener = None if web_port == 0 else _listen(settings.app.web_host, web_port)
    url = "" if listener is None else advertised(*listener.getsockname()[:2])
    with contextlib.ExitStack() as stack:
        if listener is not None:
            stack.callback(listener.close)
        collector.collect_rarely()
        asyncio.run(_run(found, listener, url, drain=drain))
    log.info("stopped")
    return 0


async def _run(found: Sequence[Plan], listener: socket.socket | None, url: str, *, drain: bool) -> None:
    instance = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await _inspect(found)
    ends = await drains.ends_of(found) if drain else {}
    bridges = [
        Bridge(plan, instance, url, ends.get(plan.name), permit)
        for plan, permit in await permitted(found, drain=drain)
    ]
    async with contextlib.AsyncExitStack() as stack:
        if listener is not None:
            await stack.enter_async_context(web.serving(bridges, listener))
            log.info("web server at %s", url)
        log.info("%d bridges begin: %s", len(bridges), ", ".join(each.plan.name for each in bridges))
        await _until(bridges, stopping, drain=drain)
    if drain:
        await drains.require_at([each.plan for each in bridges], ends)


async def _until(bridges: Sequence[Bridge], stopping: asyncio.Event, *, drain: bool) -> None:
    running = [asyncio.create_task(each.run(), name=each.plan.name) for each in bridges]
    try:
        while not await set_within(stopping, LOOK_S if drain else LIVE_S):
            for task in running:
                if task.done():
                    task.result()
            if drain and all(each.drained for each in bridges):
                break
    finally:
        for each in bridges:
            each.stop()
        await asyncio.gather(*running)


async def _inspect(found: Sequence[Plan]) -> None:
    """Faults of some bridges leave the others to their work.

    Raises:
        PrerequisiteError: none can work.
    """
    told = await asyncio.gather(*map(faults, found))
    if all(told):
        raise PrerequisiteError("\n".join(dict.fromkeys(fault for each in told for fault in each)))
    for each in told:
        for fault in each:
            log.error("%s", fault)


def _listen(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a number, on any free port."""
    try:
        return socket.create_server((host, port or 0))
    except OSError as error:
        raise PrerequisiteError(
            f"--web-port {port or 0}: cannot listen on {host} ({error.strerror}): choose another, or 0 for none"
        ) from error
