"""Addresses with a new name and the same input: earlier runs count for the new name. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from reconcile.run.history.cut import AddressCut
from ringfence_kafka.config.settings import AddressSettings

if TYPE_CHECKING:
    from reconcile.run.history.history import Run

_Kept = TypeVar("_Kept")
_INPUT = "input_topic"
_OF_ADDRESSES = ("accepted", "known", "complete", "earliest", "rules", "whole_since", "left", "events_from")


def renamed(addresses: Sequence[AddressSettings], base: "Run | None") -> dict[str, str]:
    """Return address → its name in the last run, for addresses whose name has changed."""
    if base is None:
        return {}
    configured = {address.name for address in addresses}
    away = sorted((base.left_by(name), name) for name in base.rules if name not in configured)
    by_input = {base.rules[name].get(_INPUT): name for _, name in away}  # the latest of several
    return {
        address.name: by_input[address.input_topic]
        for address in addresses
        if address.name not in base.rules and address.input_topic in by_input
    }


def called(run: "Run", former: Mapping[str, str]) -> "Run":
    """Return the run under present names. Rings and hops of a renamed address are new and empty."""
    if not former:
        return run
    now = {old: new for new, old in former.items()}

    def fresh(kept: Mapping[str, _Kept]) -> dict[str, _Kept]:
        return {name: item for name, item in kept.items() if name not in now}

    def moved(kept: Mapping[str, _Kept]) -> dict[str, _Kept]:
        return fresh(kept) | {now[name]: item for name, item in kept.items() if name in now}

    summary = run.summary
    if "addresses" in summary:
        summary = {**summary, "addresses": moved(summary["addresses"])}
    present: dict[str, Any] = {name: moved(getattr(run, name)) for name in _OF_ADDRESSES}
    return replace(run, summary=summary, held=fresh(run.held), consumed=fresh(run.consumed), **present)


def with_former(cuts: Mapping[str, AddressCut], former: Mapping[str, str]) -> dict[str, AddressCut]:
    """Add former names to the cuts. No run has read the forward topic of a new name."""
    renamed = {
        name: replace(
            cut, former=former[name], forward=replace(cut.forward, recreated=True) if cut.forward else None
        )
        for name, cut in cuts.items()
        if name in former
    }
    return {**cuts, **renamed}


def since(address: AddressSettings, chain: Sequence["Run"]) -> int:
    """Return the first run with an address under its present name, after runs under another; 0 = none."""
    for later, run in pairwise(chain):
        if address.name in later.rules and address.name not in run.rules:
            inputs = {rule.get(_INPUT) for rule in run.rules.values()}
            return later.number if address.input_topic in inputs else 0
    return 0
