"""Which bridges a process runs; those of a strict connection only if its members may be what they are."""

import logging
from collections.abc import Sequence
from typing import Final

from agents.bridge.member_admission import Permit
from agents.bridge.plan import Plan, with_members
from ringfence_kafka.errors import ConfigurationError, RingfenceError

log: Final = logging.getLogger("ringfence.bridge")

Permitted = tuple[Plan, Permit | None]


async def permitted(plans: Sequence[Plan], *, drain: bool) -> list[Permitted]:
    """The bridges to run, each with the permit that it goes by, which it asks for again where it was not given.

    Raises:
        ConfigurationError: none may run.
        BrokerUnavailableError: a drain finds no source.
    """
    found: list[Permitted] = [(plan, None) for plan in plans if plan.share is None]
    strict: dict[tuple[str, str], list[Plan]] = {}
    for plan in plans:
        if plan.share is not None:
            strict.setdefault((plan.connection, plan.source_topic), []).append(plan)
    refused = []
    for value in strict.values():
        permit, members = Permit(value[0], drain=drain), None
        try:
            members = (await permit.get()).members
        except RingfenceError as error:
            if drain:
                raise
            if isinstance(error, ConfigurationError):
                refused.append(str(error))
            else:
                log.warning("cluster connection %s: %s", value[0].connection, error)
        found += _with(value, members, permit)
    if refused and len(refused) == len(strict) and all(permit is not None for _, permit in found):
        raise ConfigurationError("\n".join(refused))
    return found


def _with(those: Sequence[Plan], members: tuple[str, ...] | None, permit: Permit) -> list[Permitted]:
    """None = it is not known yet: as configured."""
    if members is None:
        return [(plan, permit) for plan in those]
    wanted = [plan for plan in those if plan.share is not None and plan.share.member in members]
    return [(with_members(plan, members), permit) for plan in wanted]
