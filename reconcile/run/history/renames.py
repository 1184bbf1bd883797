"""An address that has got another name and kept its input: what runs before say of it is said of this one. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from reconcile.run.history.cut import AddressCut
from ringfence_kafka.config.settings import AddressSettings

if TYPE_CHECKING:
    from reconcile.run.history.history import Run

_Kept = TypeVar("_Kept")
_INPUT = "input_topic"


def renamed(addresses: Sequence[AddressSettings], base: "Run | None") -> dict[str, str]:
    """Address → what it was called on the night before; only those that had another name.

    Args:
        addresses: As they are configured now.
        base: The night before.
    """
    if base is None:
        return {}
    configured = {address.name for address in addresses}
    away = sorted((base.left_by(name), name) for name in base.rules if name not in configured)
    by_input = {base.rules[name].get(_INPUT): name for _, name in away}  # the latest, where several had it
    return {
        address.name: by_input[address.input_topic]
        for address in addresses
        if address.name not in base.rules and address.input_topic in by_input
    }


def called(night: "Run", former: Mapping[str, str]) -> "Run":
    """The night, as if its addresses had been called so then. Rings and hops of the new name are new: they hold nothing of it."""
    if not former:
        return night
    now = {old: new for new, old in former.items()}

    def moved(kept: Mapping[str, _Kept]) -> dict[str, _Kept]:
        own = {name: item for name, item in kept.items() if name not in now}
        return own | {now[name]: item for name, item in kept.items() if name in now}

    summary = night.summary
    if "addresses" in summary:
        summary = {**summary, "addresses": moved(summary["addresses"])}
    return replace(
        night,
        accepted=moved(night.accepted),
        known=moved(night.known),
        complete=moved(night.complete),
        held={name: value for name, value in night.held.items() if name not in now},
        consumed={name: value for name, value in night.consumed.items() if name not in now},
        earliest=moved(night.earliest),
        rules=moved(night.rules),
        whole_since=moved(night.whole_since),
        left=moved(night.left),
        events_from=moved(night.events_from),
        summary=summary,
    )


def with_former(cuts: Mapping[str, AddressCut], former: Mapping[str, str]) -> dict[str, AddressCut]:
    """The cuts of addresses that had another name know it; their forward topics are none of those that runs before have read."""
    for name in former:
        cuts[name].forward.recreated = True
    return {name: replace(cut, former=former.get(name, "")) for name, cut in cuts.items()}


def since(address: AddressSettings, chain: Sequence["Run"]) -> int:
    """The night that was the first to judge it by its name, having judged it by another; 0 = none was.

    Args:
        address: As it is configured now.
        chain: Nights before, the latest first.
    """
    for later, night in pairwise(chain):
        if address.name in later.rules and address.name not in night.rules:
            inputs = {rule.get(_INPUT) for rule in night.rules.values()}
            return later.number if address.input_topic in inputs else 0
    return 0
