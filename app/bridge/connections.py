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
    found: list[Permitted] = [(each, None) for each in plans if each.share is None]
    strict: dict[tuple[str, str], list[Plan]] = {}
    for each in plans:
        if each.share is not None:
            strict.setdefault((each.connection, each.source_topic), []).append(each)
    refused = []
    for those in strict.values():
        permit, members = Permit(those[0], drain=drain), None
        try:
            members = (await permit.get()).members
        except RingfenceError as error:
            if drain:
                raise
            if isinstance(error, ConfigurationError):
                refused.append(str(error))
            else:
                log.warning("cluster connection %s: %s", those[0].connection, error)
        found += _with(those, members, permit)
    if refused and len(refused) == len(strict) and all(permit is not None for _, permit in found):
        raise ConfigurationError("\n".join(refused))
    return found


def _with(those: Sequence[Plan], members: tuple[str, ...] | None, permit: Permit) -> list[Permitted]:
    """None = it is not known yet: as configured."""
    if members is None:
        return [(each, permit) for each in those]
    wanted = [each for each in those if each.share is not None and each.share.member in members]
    return [(with_members(each, members), permit) for each in wanted]
