"""Selects the bridges of a process. A bridge of a strict connection needs a permit."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from agents.bridge.member_admission import Permit
from agents.bridge.plan import Plan, with_members
from ringfence_kafka.errors import ConfigurationError, RingfenceError

log: Final = logging.getLogger("ringfence.bridge")

Permitted = tuple[Plan, Permit | None]


async def permitted(plans: Sequence[Plan], *, drain: bool) -> list[Permitted]:
    """Return the bridges to run, each with its permit.

    A permit that was not granted is requested again later.

    Raises:
        ConfigurationError: No bridge may run.
        BrokerUnavailableError: With ``drain``, a source does not answer.
    """
    running: list[Permitted] = [(plan, None) for plan in plans if plan.share is None]
    strict: dict[tuple[str, str], list[Plan]] = {}
    for plan in plans:
        if plan.share is not None:
            strict.setdefault((plan.connection, plan.source_topic), []).append(plan)
    refused = []
    for (connection, _), members_plans in strict.items():
        permit, members = Permit(members_plans[0], drain=drain), None
        try:
            members = (await permit.get()).members
        except RingfenceError as error:
            if drain:
                raise
            if isinstance(error, ConfigurationError):
                refused.append(str(error))
            else:
                log.warning("cluster connection %s: %s", connection, error)
        running += _with_members(members_plans, members, permit)
    if refused and len(refused) == len(strict) and all(permit is not None for _, permit in running):
        raise ConfigurationError("\n".join(refused))
    return running


def _with_members(
    plans: Sequence[Plan], members: tuple[str, ...] | None, permit: Permit
) -> Iterator[Permitted]:
    """Yield the plans of these members. None = the members are not known yet, so all configured plans."""
    for plan in plans:
        if members is None:
            yield plan, permit
        elif plan.share is not None and plan.share.member in members:
            yield with_members(plan, members), permit
