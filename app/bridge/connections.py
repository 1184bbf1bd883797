"""Makes the bridges of a process; those of a strict connection only if its members may be what they are."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from agents.bridge.bridge import Bridge
from agents.bridge.joining import join
from agents.bridge.note import Map
from agents.bridge.plan import Plan, with_members
from ringfence_kafka.errors import BrokerUnavailableError, ConfigurationError, RingfenceError
from ringfence_kafka.waiting import back_off, set_within

log: Final = logging.getLogger("ringfence.bridge")

AGAIN_FIRST_S: Final = 0.5
AGAIN_MOST_S: Final = 5.0


async def prepare(
    plans: Sequence[Plan],
    make: Callable[[Plan, Map | None], Bridge],
    stopping: asyncio.Event,
    *,
    drain: bool,
) -> list[Bridge]:
    """Bridges of these plans.

    Raises:
        ConfigurationError: none may run.
        BrokerUnavailableError: a drain finds no source.
    """
    bridges = [make(each, None) for each in plans if each.share is None]
    strict: dict[tuple[str, str], list[Plan]] = {}
    for each in plans:
        if each.share is not None:
            strict.setdefault((each.connection, each.source_topic), []).append(each)
    refused: list[RingfenceError] = []
    for those in strict.values():
        try:
            shared = await _join(those[0], stopping, drain=drain)
        except ConfigurationError as error:
            refused.append(error)
            continue
        if shared is None:
            break
        bridges += [
            make(with_members(each, shared.members), shared)
            for each in those
            if each.share is not None and each.share.member in shared.members
        ]
    if refused and not bridges:
        raise ConfigurationError("\n".join(map(str, refused)))
    for error in refused:
        log.error("%s", error)
    return bridges


async def _join(plan: Plan, stopping: asyncio.Event, *, drain: bool) -> Map | None:
    """Waits for the source; None = somebody asked to stop meanwhile."""
    attempt = 0
    while True:
        try:
            return await join(plan, drain=drain)
        except BrokerUnavailableError as error:
            if drain:
                raise
            attempt += 1
            log.warning("cluster connection %s: %s", plan.connection, error)
        if await set_within(stopping, back_off(attempt, AGAIN_FIRST_S, AGAIN_MOST_S)):
            return None
